"""The thesis' LeNet-style networks on MNIST, trained and kept: what the experiments of section 6.3.1 share.

Three convolutions with stride 2, of 5 × 5, 3 × 3 and 3 × 3, each followed by a ReLU and batch norm, then the mean over
the image and a dense layer (thesis, appendix A.1.1). Paddings and the batch size of training are not in the text: half
the kernel, and 128. The affine parameters of batch norm are frozen once trained, since laplace-torch's KFAC refuses
them; what is left has the 14,634 and 29,226 weights of the thesis' small and medium network. Its large one is printed
with 46,024, which is what the same network has with affine batch norms and no biases of convolutions; here it has
45,874.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from experiments.harness import Progress
from matheron.data import load

SMALL, MEDIUM, LARGE = (16, 32, 32), (32, 32, 64), (42, 48, 60)
TINY = (8, 16, 16)
"""Not in the thesis: 3,866 weights, for minutes on a processor."""

NAMES = {TINY: "LeNetTiny", SMALL: "LeNetSmall", MEDIUM: "LeNet", LARGE: "LeNetBig"}

Images = tuple[Tensor, Tensor]
"""``(n, 1, 28, 28)`` with mean 0 and variance 1, and their classes."""


@dataclass(frozen=True)
class Training:
    """SGD as in the appendix: the step falls to a tenth after 4/9 and after 7/9 of the epochs, there 90."""

    filters: tuple[int, ...]
    images: int
    epochs: int
    seed: int
    batch: int = 128
    step: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4

    @property
    def key(self) -> str:
        """The name of the file that holds the trained network."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Trained:
    """A network in evaluation mode, and the seconds its training took, whenever that was."""

    model: nn.Module
    seconds: float


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


def trained(training: Training, data: Images, progress: Progress) -> Trained:
    """Train, or read what was trained before: from ``networks`` beside the results."""
    folder = None if progress.ledger is None else progress.ledger.path.parent / "networks"
    path = None if folder is None else folder / f"{training.key}.safetensors"
    if path is not None and path.exists():
        with safe_open(path, framework="pt") as file:
            seconds = float(file.metadata()["seconds"])
        return Trained(restored(training.filters, path), seconds)
    model, began = lenet(training.filters), time.perf_counter()
    train(model, training, data, progress)
    seconds = time.perf_counter() - began
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        save_file(model.state_dict(), beside, {"seconds": str(seconds), "training": json.dumps(asdict(training))})
        os.replace(beside, path)
    return Trained(freeze_norms(model.eval()), seconds)


def restored(filters: Sequence[int], path: Path | str) -> nn.Module:
    """A network from the file of its tensors, ready to be linearized."""
    model = lenet(tuple(filters))
    model.load_state_dict(load_file(path))
    return freeze_norms(model.eval())


def train(model: nn.Module, training: Training, data: Images, progress: Progress) -> None:
    """In place, from weights and an order of images that the seed decides."""
    X, y = data
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.reset_parameters()
    order = torch.Generator().manual_seed(training.seed)
    optimizer = torch.optim.SGD(
        model.parameters(), training.step, momentum=training.momentum, weight_decay=training.weight_decay
    )
    falls = [training.epochs * 4 // 9, training.epochs * 7 // 9]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, falls, gamma=0.1)
    model.train()
    for _ in progress(range(training.epochs), "training"):
        for index in torch.randperm(len(X), generator=order).split(training.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[index]), y[index]).backward()
            optimizer.step()
        schedule.step()
