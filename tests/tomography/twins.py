"""Projectors of a few lines, ray by ray, that import nothing they check."""

import itertools
import math

import torch
from torch import Tensor


def hat(distance: float) -> float:
    return max(0.0, 1.0 - abs(distance))


def integrate(origin: tuple[float, ...], target: tuple[float, ...], shape: tuple[int, ...], spacing: float) -> Tensor:
    """``∫`` along the line through two points of every hat function of the grid, by Joseph's rule.

    Points are ``(x, y)`` or ``(x, y, z)``; the line is followed along ``x`` or ``y``.
    """
    *depth, height, width = shape
    depth = depth[0] if depth else 1
    o, t = ([*p, 0.0] if len(p) == 2 else list(p) for p in (origin, target))
    d = [b - a for a, b in zip(o, t, strict=True)]
    row = torch.zeros(depth, height, width, dtype=torch.float64)
    axis = 0 if abs(d[0]) >= abs(d[1]) else 1
    step = spacing * math.hypot(*d) / abs(d[axis])
    for k in range((width, height)[axis]):
        along = (k - (width - 1) / 2) * spacing if axis == 0 else ((height - 1) / 2 - k) * spacing
        share = (along - o[axis]) / d[axis]
        x, y, z = (a + share * b for a, b in zip(o, d, strict=True))
        for i in range(height):
            for j in range(width):
                if k != (j if axis == 0 else i):
                    continue
                side = (
                    hat(y / spacing - ((height - 1) / 2 - i)) if axis == 0 else hat(x / spacing - (j - (width - 1) / 2))
                )
                if side > 0:
                    for layer in range(depth):
                        up = hat(z / spacing - (layer - (depth - 1) / 2)) if len(shape) == 3 else 1.0
                        row[layer, i, j] += side * up * step
    return row.flatten()


def places(number: int, spacing: float, offset: float) -> list[float]:
    return [(k - (number - 1) / 2) * spacing + offset for k in range(number)]


def parallel(shape, angles, detectors, pixel=1.0, spacing=1.0, offset=0.0) -> Tensor:
    return torch.stack(
        [
            integrate((u * c, u * s), (u * c - s, u * s + c), shape, pixel)
            for c, s in ((math.cos(angle), math.sin(angle)) for angle in angles)
            for u in places(detectors, spacing, offset)
        ]
    )


def fan(shape, angles, detectors, source, whole, pixel=1.0, spacing=1.0, offset=0.0) -> Tensor:
    return torch.stack(
        [
            integrate(
                (source * c, source * s), ((source - whole) * c - u * s, (source - whole) * s + u * c), shape, pixel
            )
            for c, s in ((math.cos(angle), math.sin(angle)) for angle in angles)
            for u in places(detectors, spacing, offset)
        ]
    )


def cone(shape, angles, detectors, source, whole, pixel=1.0, spacing=(1.0, 1.0), offset=(0.0, 0.0)) -> Tensor:
    rows = []
    for c, s in ((math.cos(angle), math.sin(angle)) for angle in angles):
        for v in places(detectors[0], spacing[0], offset[0]):
            ends = (
                ((source - whole) * c - u * s, (source - whole) * s + u * c, v)
                for u in places(detectors[1], spacing[1], offset[1])
            )
            rows += [integrate((source * c, source * s, 0.0), end, shape, pixel) for end in ends]
    return torch.stack(rows)


def fourier(height: int, width: int, lines: list[int]) -> Tensor:
    """Cosines and minus sines over ``√(height · width)``, line by line."""
    i, j = torch.arange(height, dtype=torch.float64)[:, None], torch.arange(width, dtype=torch.float64)
    rows = []
    for k in lines:
        phases = [2 * math.pi * (k * i / height + f * j / width) for f in range(width)]
        rows += [phase.cos().flatten() for phase in phases] + [-phase.sin().flatten() for phase in phases]
    return torch.stack(rows) / math.sqrt(height * width)


def edges(shape: tuple[int, ...]) -> Tensor:
    """A row for every pair of neighbors, axis by axis."""
    number = torch.arange(math.prod(shape)).reshape(shape)
    rows = []
    for axis in range(len(shape)):
        for place in itertools.product(*(range(n - (k == axis)) for k, n in enumerate(shape))):
            row = torch.zeros(number.numel(), dtype=torch.float64)
            row[number[place]] = -1.0
            row[number[tuple(i + (k == axis) for k, i in enumerate(place))]] = 1.0
            rows.append(row)
    return torch.stack(rows) if rows else torch.zeros(0, number.numel(), dtype=torch.float64)
