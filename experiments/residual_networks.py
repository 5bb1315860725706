"""Residual networks for CIFAR (He et al., 2016, §4.2) and for ImageNet (their table 1), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from experiments.small_networks import Scalar


class Block(nn.Module):
    """``relu(shortcut(x) + body(x))``; two 3 × 3 convolutions, or a bottleneck of 1 × 1, 3 × 3 and 1 × 1.

    With ``fixup``, the number of blocks in the network, there is no normalization: single numbers are added and
    multiplied, and convolutions begin so small that the depth does not matter (Zhang et al., 2019).
    """

    def __init__(
        self, inputs: int, width: int, stride: int, *, bottleneck: bool = False, fixup: int | None = None
    ) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        sizes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        make = convolution if fixup is None else shrunk(fixup, len(sizes))
        parts: list[nn.Module] = []
        for place, size in enumerate(sizes):
            parts += [*([nn.ReLU(inplace=True)] if place else []), *make(*size)]
        self.body = nn.Sequential(*parts)
        if fixup is not None:
            nn.init.zeros_(next(part for part in reversed(parts) if isinstance(part, nn.Conv2d)).weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection, norm = convolution(inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(projection, norm) if fixup is None else projection

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return torch.relu(self.shortcut(x) + self.body(x))


def convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, ...]:
    """A convolution without bias and its batch norm."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)


def shrunk(blocks: int, depth: int) -> Callable[..., tuple[nn.Module, ...]]:
    """FixUp's convolutions: ``blocks^(−1 / (2 depth − 2))`` times the usual size, between single numbers."""

    def make(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, ...]:
        layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        with torch.no_grad():
            layer.weight.mul_(blocks ** (-1.0 / (2 * depth - 2)))
        return Scalar(multiplier=False), layer, Scalar(multiplier=True)

    return make


def stages(
    inputs: int, widths: Sequence[int], depths: Sequence[int], *, bottleneck: bool = False, fixup: bool = False
) -> nn.Sequential:
    """``depths[i]`` blocks of ``widths[i]``; all stages but the first halve the image."""
    blocks: list[nn.Module] = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for place in range(depth):
            stride = 2 if stage > 0 and place == 0 else 1
            number = sum(depths) if fixup else None
            blocks.append(Block(inputs, width, stride, bottleneck=bottleneck, fixup=number))
            inputs = 4 * width if bottleneck else width
    return nn.Sequential(*blocks)


def head(inputs: int, classes: int) -> tuple[nn.Module, ...]:
    """Mean over the image, then a dense layer."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)


def cifar_resnet(
    depth: int = 20, *, classes: int = 10, channels: int = 3, width: int = 16, stride: int = 1
) -> nn.Sequential:
    """ResNet-20, 32, 44, 56 or 110 for images of 32 × 32: ``(depth − 2) / 6`` blocks in each of three stages.

    With a ``stride`` of 2 the first convolution halves the image, for a quarter of the work.
    """
    if depth % 6 != 2:
        raise ValueError(f"depth must be 6 n + 2, such as 20, 32 or 56, got {depth}")
    widths = (width, 2 * width, 4 * width)
    return nn.Sequential(
        *convolution(channels, width, 3, stride),
        nn.ReLU(inplace=True),
        stages(width, widths, 3 * [(depth - 2) // 6]),
        *head(4 * width, classes),
    )


IMAGENET = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True), 101: ((3, 4, 23, 3), True)}
"""Blocks in each stage, and whether they are bottlenecks."""


def imagenet_resnet(depth: int = 50, *, classes: int = 1000, width: int = 64, fixup: bool = False) -> nn.Sequential:
    """ResNet-18, 34, 50 or 101 for images of 224 × 224; 25.6 million weights at depth 50 with 1,000 classes.

    ``fixup`` leaves out batch norm.
    """
    if depth not in IMAGENET:
        raise ValueError(f"depth must be one of {', '.join(map(str, IMAGENET))}, got {depth}")
    depths, bottleneck = IMAGENET[depth]
    first, norm = convolution(3, width, 7, 2)
    *middle, last = head((32 if bottleneck else 8) * width, classes)
    if fixup:
        norm = Scalar(multiplier=False)
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
    return nn.Sequential(
        first,
        norm,
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
        stages(width, (width, 2 * width, 4 * width, 8 * width), depths, bottleneck=bottleneck, fixup=fixup),
        *middle,
        last,
    )


def count(model: nn.Module) -> int:
    """Weights of a network."""
    return sum(parameter.numel() for parameter in model.parameters())
