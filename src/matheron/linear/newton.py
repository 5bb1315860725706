"""What Newton's steps toward a mode share, whichever side they solve on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.data import Data
from matheron.linear.prior import Prior
from matheron.linear.starting import set_out

SHORTEST = 1e-9
"""A step shorter than this share of Newton's is not tried."""

Direction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``H(w)⁻¹ ∂L`` from weights ``(d, 1)``, their predictions ``(m, 1)`` and the slope ``∂L (d, 1)``."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where Newton's steps ended, and how: ``trace`` has a record per step."""

    weights: Float[Tensor, " d"]
    steps: int
    trace: list[dict[str, Any]]
    events: list[str]


def newton(
    data: Data, prior: Prior, guess: Float[Tensor, " d"] | None, direction: Direction, *, steps: int, tolerance: float
) -> Minimum:
    """``w ← w − t H(w)⁻¹ ∂L(w)`` for ``L = ℓ(Φw) + ½‖w‖²_A``, within ``tolerance`` posterior deviations of its minimum.

    It sets out from the best multiple of ``guess`` or, without one, of the data's own. Each step takes a pass of
    ``Φᵀ``, one of ``Φ``, and what ``direction`` takes; its length takes none.
    """

    def objective(w: Tensor, F: Tensor) -> float:
        return total_loss(data, F) + 0.5 * float((w.double() * prior.precision(w)).sum())

    w, F = set_out(data, prior, data.guess if guess is None else guess)
    trace, events, last = list[dict[str, Any]](), list[str](), 0.0
    for step in range(steps):
        slope = prior.precision(w)
        for rows, batch in data.in_order():
            slope = slope + batch.features.T @ batch.loss_gradient(F[rows])
        down = direction(w, F, slope)
        ahead = predict(data, down)
        # ‖w − w⋆‖_H to second order: posterior standard deviations.
        distance = max(float((slope.double() * down).sum()), 0.0) ** 0.5
        value = objective(w, F)

        def along(t: float, here: tuple[Tensor, ...] = (w, F, down, ahead)) -> float:
            return objective(here[0] - t * here[2], here[1] - t * here[3])

        size, found = step_length(along, value)
        rounding = below_rounding(distance, value, w.dtype)
        if not found <= value:
            if not rounding:
                events.append(f"Newton's step {step} found no smaller objective")
            break
        w, F = w - size * down, F - size * ahead
        trace.append({"newton": step, "objective": found, "size": size, "distance": distance})
        # A whole step leaves no larger share of its distance than the whole step before it did.
        share = min(distance / last, 1.0) if size == 1.0 and last > 0.0 else 1.0
        if data.quadratic or share * distance <= tolerance or rounding:
            break
        last = distance if size == 1.0 else 0.0
    else:
        events.append(f"Newton's method used all {steps} steps")
    return Minimum(w[:, 0], step + 1, trace, events)


def predict(data: Data, W: Float[Tensor, "d s"]) -> Float[Tensor, "m s"]:
    """``Φ W``."""
    return torch.cat([batch.features @ W for batch in data.batches()])


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
