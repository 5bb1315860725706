"""Images in records: two hexadecimal digits for a pixel, small enough to keep beside the numbers."""

from __future__ import annotations

from torch import Tensor, uint8
from torch.nn.functional import avg_pool2d

SHOWN = 128
"""Pixels across of the pictures that are kept."""


def grays(image: Tensor, top: float | None = None) -> list[str]:
    """From zero to ``top``, or nearly the largest value, at most ``SHOWN`` pixels across."""
    while max(image.shape) > SHOWN:
        image = avg_pool2d(image[None], 2)[0]
    top = float(image.quantile(0.995)) if top is None else top
    levels = (255 * image / top).clamp(0, 255).round().to(uint8)
    return [bytes(row).hex() for row in levels.tolist()]


def pixels(rows: list[str]) -> list[list[int]]:
    """Levels from 0 to 255, to be drawn."""
    return [list(bytes.fromhex(row)) for row in rows]
