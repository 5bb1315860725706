"""The thesis' LeNet-style networks on MNIST, trained and kept: what the experiments of section 6.3.1 share.

Three convolutions with stride 2, of 5 × 5, 3 × 3 and 3 × 3, each followed by a ReLU and batch norm, then the mean over
the image and a dense layer (thesis, appendix A.1.1). Paddings and the batch size of training are not in the text: half
the kernel, and 128. The affine parameters of batch norm are frozen once trained, since laplace-torch's KFAC refuses
them; what is left has the 14,634 and 29,226 weights of the thesis' small and medium network. Its large one is printed
with 46,024, which is what the same network has with affine batch norms and no biases of convolutions; here it has
45,874.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from experiments.harness import Progress
from experiments.training import Images, Recipe, Trained, trained
from matheron.data import load

SMALL, MEDIUM, LARGE = (16, 32, 32), (32, 32, 64), (42, 48, 60)
TINY, MINI = (8, 16, 16), (12, 24, 24)
"""Not in the thesis: 3,866 and 8,386 weights that are uncertain, for minutes on a processor."""

NAMES = {TINY: "LeNetTiny", MINI: "LeNetMini", SMALL: "LeNetSmall", MEDIUM: "LeNet", LARGE: "LeNetBig"}


def lenet(filters: tuple[int, ...] = SMALL, *, classes: int = 10) -> nn.Sequential:
    """Convolution, ReLU and batch norm three times, then a dense layer on the mean over the image."""
    layers: list[nn.Module] = []
    inputs = 1
    for outputs, size in zip(filters, (5, 3, 3), strict=True):
        layers += [nn.Conv2d(inputs, outputs, size, stride=2, padding=size // 2), nn.ReLU(), nn.BatchNorm2d(outputs)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def freeze_norms(model: nn.Module) -> nn.Module:
    """Hold the affine parameters of batch norm, for every method alike."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    return model


def num_weights(filters: tuple[int, ...]) -> int:
    """Those that are uncertain."""
    with torch.device("meta"):
        return sum(p.numel() for p in freeze_norms(lenet(filters)).parameters() if p.requires_grad)


def mnist(train: int, test: int) -> tuple[Images, Images]:
    """The first ``train`` and ``test`` images of either part, standardized by all training pixels."""
    data = load("mnist")
    counts = torch.bincount(data.train_images.flatten(), minlength=256).double() / data.train_images.numel()
    shades = torch.arange(256, dtype=torch.float64) / 255.0
    mean = float(counts @ shades)
    deviation = float(counts @ (shades - mean).square()) ** 0.5

    def standardized(images: Tensor) -> Tensor:
        return (images.float() / 255.0 - mean) / deviation

    return (
        (standardized(data.train_images[:train]), data.train_labels[:train]),
        (standardized(data.test_images[:test]), data.test_labels[:test]),
    )


def trained_lenet(
    filters: tuple[int, ...], images: int, epochs: int, seed: int, data: Images, progress: Progress
) -> Trained:
    """Trained as in the appendix, or read from where it was kept."""
    recipe = Recipe(f"lenet {filters}", images, epochs, seed)
    found = trained(recipe, lambda: lenet(filters), data, progress)
    freeze_norms(found.model)
    return found


def restored(filters: Sequence[int], path: Path | str) -> nn.Module:
    """A network from the file of its tensors, ready to be linearized."""
    model = lenet(tuple(filters))
    model.load_state_dict(load_file(path))
    return freeze_norms(model.eval())
