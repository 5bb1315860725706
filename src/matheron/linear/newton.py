"""What Newton's steps toward a mode share, whichever side they solve on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.data import Data

SHORTEST = 1e-9
"""A step shorter than this share of Newton's is not tried."""


def step_length(objective: Callable[[float], float], value: float) -> tuple[float, float]:
    """``t``, of 1, ½, ¼, … the first at which ``objective(t)`` is at most ``value`` and halving it gains no more.

    The objective there comes with it. Far from the mode, where a loss saturates and has next to no curvature, Newton's
    step is too long by many powers of ten. Where no step is short enough, the shortest one that was tried, whose
    objective is then above ``value`` or not a number.

    >>> step_length(lambda t: (3.0 * t - 1.0) ** 2, 1.0)  # 4, ¼, 1/16, then 25/64
    (0.25, 0.0625)
    """
    size = 1.0
    found = objective(size)
    while size > SHORTEST:
        shorter = objective(size / 2.0)
        if found <= value and not shorter < found:
            break
        size, found = size / 2.0, shorter
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
