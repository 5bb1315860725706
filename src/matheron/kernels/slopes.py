"""Gradients of stationary kernels in their lengthscales without a graph."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.contraction import Contraction
from matheron.kernels.evaluator import Scratch
from matheron.kernels.stationary import Stationary, embed


class StationaryContraction(Contraction):
    """``∂/∂log ℓ_k Σ W σ²κ(r²) = −2 Σ_ij G_ij (x_ik − z_jk)²/ℓ_k²`` with ``G = W ∘ σ² dκ/dr²``.

    The square is multiplied out: sums over rows and columns of the tile ``G``, and one product with ``z``, serve all
    lengthscales.
    """

    def __init__(self, kernel: Stationary, x: Tensor, z: Tensor) -> None:
        with torch.no_grad():
            scaled_z = kernel.scaled(z)
            center = scaled_z.mean(0)
            scaled_x = scaled_z if x is z else kernel.scaled(x)
            stretch = math.sqrt(kernel.stretch())
            self.left, self.right = embed(stretch * scaled_x, stretch * scaled_z, stretch * center)
            self.x = scaled_x - center
            centered = scaled_z - center
            self.x_square, self.z_square = self.x.square(), centered.square()
            self.z = torch.cat([centered, torch.ones_like(centered[:, :1])], dim=1).to(z.dtype)
        self.kernel: Stationary = kernel
        self.variance = kernel.variance.item()
        self.value = 0.0
        self.squares = torch.zeros(z.shape[1], dtype=torch.float64, device=z.device)
        self.squared = Scratch(torch.float64, x.device)
        self.correlation, self.slope = Scratch(z.dtype, x.device), Scratch(z.dtype, x.device)

    def add(self, rows: slice, columns: slice, weight: Float[Tensor, "r c"]) -> float:
        """One tile."""
        squared = self.squared.like(weight)
        torch.mm(self.left[rows], self.right[columns].mT, out=squared)
        correlation, slope = self.correlation.like(weight), self.slope.like(weight)
        correlation.copy_(squared).clamp_min_(torch.finfo(weight.dtype).tiny)
        self.kernel.fill_slope(correlation, slope)
        value = self.variance * float(torch.dot(weight.view(-1), correlation.view(-1)))
        self.value += value
        moments = (slope.mul_(weight) @ self.z[columns]).to(torch.float64)
        by_row, by_column = moments[:, -1], slope.sum(0).to(torch.float64)
        self.squares += by_row @ self.x_square[rows] + by_column @ self.z_square[columns]
        self.squares -= 2.0 * (self.x[rows] * moments[:, :-1]).sum(0)
        return value

    def gradients(self) -> list[Tensor]:
        """Of the log-variance, then of the log-lengthscales."""
        assert self.kernel.slope_scale is not None
        by_input = -2.0 * self.variance * self.kernel.slope_scale * self.squares
        lengthscale = by_input if self.kernel.log_lengthscale.ndim == 1 else by_input.sum()
        named = {
            "log_variance": torch.full_like(self.kernel.variance, self.value),
            "log_lengthscale": lengthscale,
        }
        return [named[name] for name, _ in self.kernel.named_parameters()]
