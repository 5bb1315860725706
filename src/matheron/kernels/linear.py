"""The linear kernel: straight lines through the origin."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.evaluator import Evaluator
from matheron.kernels.lengthscale import LengthscaleKernel


class Linear(LengthscaleKernel):
    """``σ² Σ_i x_i z_i / ℓ_i²``: Bayesian linear regression, ``f(x) = xᵀw`` with ``w_i ~ N(0, σ²/ℓ_i²)``.

    Its ``d`` features ``σ x_i / ℓ_i`` are exact.

    >>> import torch
    >>> Linear(lengthscale=0.5)(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    44.0
    """

    def scaled(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """``σ x / ℓ``."""
        return (self.variance.sqrt() / self.lengthscale).to(x.dtype) * x

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """``(σ x / ℓ) (σ z / ℓ)ᵀ``."""
        return self.scaled(x) @ self.scaled(z).mT

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``‖σ x / ℓ‖²``."""
        return self.scaled(self.select(x)).square().sum(1)

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """One product per tile."""
        with torch.no_grad():
            return LinearEvaluator(self.scaled(self.select(x)), self.scaled(self.select(z)))


class LinearEvaluator(Evaluator):
    """The product of the scaled inputs."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left, self.right = left, right

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``."""
        return LinearEvaluator(self.left[index], self.right)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """One product."""
        torch.mm(self.left[rows], self.right[columns].mT, out=out)
