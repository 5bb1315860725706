"""What Newton's steps toward a mode share, whichever side they solve on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.data import Data

SHORTEST = 1e-3
"""A step shorter than this share of Newton's is not tried."""


def step_length(objective: Callable[[float], float], value: float) -> tuple[float, float]:
    """``t``, the first of 1, ½, ¼, … at which ``objective(t)`` is at most ``value``, and the objective there.

    Where none is, the shortest one that was tried, whose objective is then above ``value`` or not a number.

    >>> step_length(lambda t: (3.0 * t - 1.0) ** 2, 1.0)  # 4, then ¼
    (0.5, 0.25)
    """
    size = 1.0
    found = objective(size)
    while not found <= value and size > SHORTEST:
        size /= 2.0
        found = objective(size)
    return size, found


def below_rounding(distance: float, value: float, dtype: torch.dtype) -> bool:
    """Whether an objective of this value cannot tell if a step of ``½ distance²`` was good.

    >>> below_rounding(1e-5, 1.0, torch.float32), below_rounding(1e-2, 1.0, torch.float32)
    (True, False)
    """
    return 0.5 * distance**2 <= torch.finfo(dtype).eps * abs(value)


def total_loss(data: Data, F: Float[Tensor, "m 1"]) -> float:
    """``ℓ(F)`` of predictions in the order of the data, which takes no product with ``Φ``."""
    return sum(float(batch.loss(F[rows])) for rows, batch in data.in_order())
