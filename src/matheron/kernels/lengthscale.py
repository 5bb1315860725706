"""Kernels with a variance and one lengthscale for all inputs or one for each."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from matheron.kernels.base import Kernel
from matheron.kernels.positive import Positive


class LengthscaleKernel(Kernel):
    """``σ² κ(x/ℓ, z/ℓ)`` with a scalar ``ℓ``, or a vector of one value per input the kernel reads."""

    variance = Positive()
    lengthscale = Positive(vector=True)
    log_lengthscale: nn.Parameter

    def __init__(
        self,
        lengthscale: float | Sequence[float] | Tensor = 1.0,
        variance: float | Tensor = 1.0,
        *,
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(columns)
        self.variance = variance
        self.lengthscale = lengthscale
        self.require_one_each("lengthscale", self.log_lengthscale)

    def require_one_each(self, name: str, value: Tensor) -> None:
        """Refuse a vector hyperparameter that does not match ``columns``."""
        if self.columns is not None and value.ndim == 1 and len(value) != len(self.columns):
            raise ValueError(f"{name} has {len(value)} values for {len(self.columns)} columns; give one each")

    def dimension(self) -> int | None:
        """One lengthscale per input fixes their number."""
        return None if self.log_lengthscale.ndim == 0 else len(self.log_lengthscale)
