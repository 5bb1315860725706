"""Rows that belong together."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

STEPS = 8
"""Of the power iteration for a direction of large spread; its exact end does not matter."""


def clusters(points: Float[Tensor, "n d"], size: int) -> Int[Tensor, "k b"]:
    """``k`` clusters of at most ``size`` rows and nearly equal numbers, by halving along the direction of most spread.

    Where a cluster has fewer rows than the largest, its last places are ``n``.

    >>> import torch
    >>> clusters(torch.tensor([[0.0], [5.0], [0.1], [5.1], [5.2]]), 3)
    tensor([[0, 2, 5],
            [1, 3, 4]])
    """
    n = points.shape[0]
    parts = [torch.arange(n, device=points.device)]
    while max(len(part) for part in parts) > size:
        parts = [half for part in parts for half in _halves(points, part)]
    places = torch.full((len(parts), max(len(part) for part in parts)), n, device=points.device)
    for place, part in zip(places, parts, strict=True):
        place[: len(part)] = part.sort().values
    return places


def _halves(points: Float[Tensor, "n d"], part: Int[Tensor, " m"]) -> tuple[Tensor, Tensor]:
    centered = points[part] - points[part].mean(0)
    direction = torch.linspace(1.0, 2.0, points.shape[1], dtype=points.dtype, device=points.device)
    for _ in range(STEPS):
        direction = centered.mT @ (centered @ direction)
        direction = direction / direction.norm().clamp_min(torch.finfo(points.dtype).tiny)
    order = (centered @ direction).argsort(stable=True)
    middle = len(part) // 2
    return part[order[:middle]], part[order[middle:]]
