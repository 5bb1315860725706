"""Images with a preferential direction, their scans, and how well they are reconstructed."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

FINE = 4
"""Points across a pixel, over which it is averaged."""


def rectangles(size: int, generator: torch.Generator, *, number: int = 3, spread: float = 0.05) -> Tensor:
    """``number`` rectangles that add up, largest value one, each turned by ``N(0, spread²)`` radians: edges have two
    preferential directions, that of the x-axis and the one across."""
    axis = (torch.arange(FINE * size) + 0.5) / FINE - size / 2
    y, x = -axis[:, None], axis
    image = torch.zeros(FINE * size, FINE * size)
    for _ in range(number):
        angle = spread * float(torch.randn((), generator=generator))
        middle = 0.4 * size * (torch.rand(2, generator=generator) - 0.5)
        half = size * (0.08 + 0.14 * torch.rand(2, generator=generator))
        across = (x - middle[0]) * math.cos(angle) + (y - middle[1]) * math.sin(angle)
        along = (y - middle[1]) * math.cos(angle) - (x - middle[0]) * math.sin(angle)
        image += ((across.abs() <= half[0]) & (along.abs() <= half[1])).float()
    image = avg_pool2d(image[None, None], FINE)[0, 0]
    return image / image.max()


def with_noise(clean: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, float]:
    """Gaussian noise of ``share`` of the mean size of what is measured, and its deviation."""
    deviation = share * float(clean.abs().mean())
    return clean + deviation * torch.randn(clean.shape, generator=generator), deviation
