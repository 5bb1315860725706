"""Exact posterior covariances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows

BLOCK = 1024
"""Inputs whose rows ``K_xX`` exist at once."""

Factors = tuple[Tensor, Tensor | None]


class ExactCovariance:
    """``k(x, x') − K_xZ (L Lᵀ)⁻¹ K_Zx' + K_xZ (R Rᵀ)⁻¹ K_Zx'``, in float64.

    For data ``X`` the support is ``X``, ``L Lᵀ = K + N``, and there is no ``R``. For inducing points ``L Lᵀ = K_ZZ``
    and ``R Rᵀ = K_ZZ + K_ZX B K_XZ`` (thesis §3.1.2). The factors are computed when first asked for, and kept.
    """

    def __init__(self, kernel: Kernel, support: Tensor, factorize: Callable[[], Factors]) -> None:
        self.kernel, self.support, self.factorize = kernel, support.double(), factorize
        self._factors: Factors | None = None

    @property
    def factors(self) -> Factors:
        """``L`` and ``R``, lower triangular."""
        if self._factors is None:
            # Kept for later calls, which may ask for gradients.
            with torch.inference_mode(False), torch.no_grad():
                self._factors = self.factorize()
        return self._factors

    def variance(self, x: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """The diagonal, never negative."""
        parts = []
        for start in range(0, x.shape[0], BLOCK):
            part = take_rows(x, slice(start, start + BLOCK)).double()
            minus, plus = self.halves(part)
            value = self.kernel.diagonal(part) - minus.square().sum(0)
            parts.append((value if plus is None else value + plus.square().sum(0)).clamp_min(0.0))
        return torch.cat(parts).to(x.dtype)

    def covariance(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m m"]:
        """The matrix, symmetric."""
        minus, plus = self.halves(x.double())
        value = self.kernel(x.double()) - minus.mT @ minus
        value = value if plus is None else value + plus.mT @ plus
        return (0.5 * (value + value.mT)).to(x.dtype)

    def halves(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m"] | None]:
        """``L⁻¹ K_Zx`` and ``R⁻¹ K_Zx``."""
        across = self.kernel(self.support, x)
        minus, plus = self.factors
        solve = torch.linalg.solve_triangular
        return solve(minus, across, upper=False), None if plus is None else solve(plus, across, upper=False)
