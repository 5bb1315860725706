"""Images with a preferential direction, their scans, and how well they are reconstructed."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

FINE = 4
"""Points across a pixel, over which it is averaged."""


def rectangles(size: int, generator: torch.Generator, *, number: int = 3, spread: float = 0.05) -> tuple[Tensor, float]:
    """``number`` rectangles that add up, largest value one, each turned by ``N(α, spread²)`` radians: edges have two
    preferential directions, ``α``, which is drawn for every image and returned, and the one across.

    Densities between ½ and one, sides from a tenth to four fifths of the image's and middles are uniform, as in the
    code that was published with the thesis, as is ``α``: its text speaks of a mean of zero, and of "a different
    preferential angle" for each image. What reaches beyond the image is cut off.
    """

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    axis = (torch.arange(FINE * size) + 0.5) / FINE - size / 2
    y, x = -axis[:, None], axis
    image = torch.zeros(FINE * size, FINE * size)
    preferred = uniform(0.0, math.pi)
    for _ in range(number):
        angle = preferred + spread * float(torch.randn((), generator=generator))
        density, half = uniform(0.5, 1.0), [0.5 * size * uniform(0.1, 0.8) for _ in range(2)]
        middle = [0.5 * size * uniform(-0.75, 0.75) for _ in range(2)]
        across = (x - middle[0]) * math.cos(angle) + (y - middle[1]) * math.sin(angle)
        along = (y - middle[1]) * math.cos(angle) - (x - middle[0]) * math.sin(angle)
        image += density * ((across.abs() <= half[0]) & (along.abs() <= half[1])).float()
    image = avg_pool2d(image[None, None], FINE)[0, 0]
    return image / image.max(), preferred


def with_noise(clean: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, float]:
    """Gaussian noise of ``share`` of the mean size of what is measured, and its deviation."""
    deviation = share * float(clean.abs().mean())
    return clean + deviation * torch.randn(clean.shape, generator=generator), deviation
