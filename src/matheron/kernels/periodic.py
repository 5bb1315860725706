"""The periodic kernel: functions that repeat themselves exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels.positive import Positive
from matheron.kernels.stationary import SquaredExponential


class Periodic(SquaredExponential):
    """``σ² exp(−2 Σ_i sin²(π (x_i − z_i)/p_i) / ℓ_i²)``: smooth functions of period ``p``.

    Period and lengthscale are one number for all inputs or one for each. It is the squared exponential of the points
    ``(cos 2πx/p, sin 2πx/p)`` on a circle, whose chord is ``2 sin(π (x − z)/p)``.

    >>> import torch
    >>> k = Periodic(period=2.0, lengthscale=1.0)
    >>> k(torch.tensor([[0.0]]), torch.tensor([[1.0], [2.0]]))  # exp(−2) half a period away
    tensor([[0.1353, 1.0000]], grad_fn=<MulBackward0>)
    """

    period = Positive(vector=True)
    log_period: nn.Parameter

    def __init__(
        self,
        period: float | Sequence[float] | Tensor = 1.0,
        lengthscale: float | Sequence[float] | Tensor = 1.0,
        variance: float | Tensor = 1.0,
        *,
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(lengthscale, variance, columns=columns)
        self.period = period
        self.require_one_each("period", self.log_period)
        if self.log_period.ndim == 1 and super().dimension() not in (None, len(self.log_period)):
            raise ValueError(
                f"period has {len(self.log_period)} values but lengthscale has {super().dimension()}; give one each"
            )

    def dimension(self) -> int | None:
        """One lengthscale or one period per input fixes their number."""
        return super().dimension() if self.log_period.ndim == 0 else len(self.log_period)

    def scaled(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The points on the circles, in units of ``ℓ``."""
        turns = x.to(torch.float64) / self.period
        angle = 2.0 * math.pi * (turns - turns.round())
        return torch.cat([angle.cos() / self.lengthscale, angle.sin() / self.lengthscale], dim=1)
