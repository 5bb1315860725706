"""Residual networks for CIFAR (He et al., 2016, §4.2) and for ImageNet (their table 1), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """``relu(shortcut(x) + body(x))``; two 3 × 3 convolutions, or a bottleneck of 1 × 1, 3 × 3 and 1 × 1."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool = False) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                *convolution(inputs, width, 1, 1),
                nn.ReLU(inplace=True),
                *convolution(width, width, 3, stride),
                nn.ReLU(inplace=True),
                *convolution(width, outputs, 1, 1),
            )
        else:
            self.body = nn.Sequential(
                *convolution(inputs, width, 3, stride),
                nn.ReLU(inplace=True),
                *convolution(width, width, 3, 1),
            )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return torch.relu(self.shortcut(x) + self.body(x))


def convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """A convolution without bias and its batch norm."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)


def stages(inputs: int, widths: Sequence[int], depths: Sequence[int], *, bottleneck: bool = False) -> nn.Sequential:
    """``depths[i]`` blocks of ``widths[i]``; all stages but the first halve the image."""
    blocks: list[nn.Module] = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for place in range(depth):
            stride = 2 if stage > 0 and place == 0 else 1
            blocks.append(Block(inputs, width, stride, bottleneck=bottleneck))
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


def imagenet_resnet(depth: int = 50, *, classes: int = 1000) -> nn.Sequential:
    """ResNet-18, 34, 50 or 101 for images of 224 × 224; 25.6 million weights at depth 50 with 1,000 classes."""
    if depth not in IMAGENET:
        raise ValueError(f"depth must be one of {', '.join(map(str, IMAGENET))}, got {depth}")
    depths, bottleneck = IMAGENET[depth]
    return nn.Sequential(
        *convolution(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
        stages(64, (64, 128, 256, 512), depths, bottleneck=bottleneck),
        *head(2048 if bottleneck else 512, classes),
    )


def count(model: nn.Module) -> int:
    """Weights of a network."""
    return sum(parameter.numel() for parameter in model.parameters())
