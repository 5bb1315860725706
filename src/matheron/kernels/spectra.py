"""Frequencies drawn from the spectral measure of a kernel: ``k(x, z) = σ² E cos(ωᵀ(x − z))``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import gammaincinv, ive
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from matheron.kernels.feature_map import drawn
from matheron.kernels.lengthscale import LengthscaleKernel
from matheron.kernels.periodic import Periodic
from matheron.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

SPECTRAL = (RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic)


class Spectrum(nn.Module, ABC):
    """``num`` frequencies of one kernel at its current hyperparameters, from base draws that are kept."""

    kernel: LengthscaleKernel

    def __init__(self, kernel: LengthscaleKernel, dimension: int) -> None:
        super().__init__()
        self.__dict__["kernel"] = kernel
        self.dimension = dimension

    @abstractmethod
    def frequencies(self) -> Float[Tensor, "num d"]:
        """``ω`` in radians per unit of input."""

    def power(self) -> Float[Tensor, "..."]:
        """``σ²``, for all frequencies or for each."""
        return self.kernel.variance

    def select(self, x: Float[Tensor, "n all"]) -> Float[Tensor, "n d"]:
        """The columns that the frequencies belong to, in float64."""
        x = self.kernel.select(x)
        if x.shape[1] != self.dimension:
            raise ValueError(f"x has {x.shape[1]} columns to read but the features were drawn for {self.dimension}")
        return x.to(torch.float64)


class GaussianSpectrum(Spectrum):
    """``ω = z / ℓ``: RBF with ``z ~ N(0, I)``, Matérn with ``z √(2ν/u)`` and one ``u ~ χ²_{2ν}`` per frequency."""

    base: Tensor

    def __init__(self, kernel: LengthscaleKernel, base: Float[Tensor, "num d"]) -> None:
        super().__init__(kernel, base.shape[1])
        self.register_buffer("base", base)

    def frequencies(self) -> Float[Tensor, "num d"]:
        """``z / ℓ``."""
        return self.base / self.kernel.lengthscale


class GammaSpectrum(GaussianSpectrum):
    """``ω = z √τ / ℓ`` with ``τ ~ Gamma(α, rate α)``, the inverse CDF of a kept uniform: rational quadratic."""

    uniform: Tensor

    def __init__(self, kernel: RationalQuadratic, base: Float[Tensor, "num d"], uniform: Float[Tensor, " num"]) -> None:
        super().__init__(kernel, base)
        self.register_buffer("uniform", uniform)

    def frequencies(self) -> Float[Tensor, "num d"]:
        """``z √τ / ℓ`` at the current ``α``."""
        assert isinstance(self.kernel, RationalQuadratic)
        return super().frequencies() * UnitGamma.apply(self.kernel.alpha, self.uniform).sqrt()[:, None]


class UnitGamma(torch.autograd.Function):
    """The quantile of ``Gamma(α, rate α)``, differentiable in ``α``."""

    @staticmethod
    def quantile(alpha: float, uniform: Tensor) -> Tensor:
        """Never quite zero, where the derivative of the square root is infinite."""
        value = gammaincinv(alpha, uniform.cpu().numpy()) / alpha
        return torch.as_tensor(np.maximum(value, np.finfo(np.float64).tiny), device=uniform.device)

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, uniform: Tensor) -> Tensor:
        """``F⁻¹(u; α)``."""
        ctx.save_for_backward(alpha, uniform)
        return UnitGamma.quantile(alpha.item(), uniform)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """By a central difference: SciPy has no derivative in the shape, and this one is accurate to 1e-8."""
        alpha, uniform = ctx.saved_tensors
        center, step = alpha.item(), 1e-4
        up, down = (UnitGamma.quantile(center * (1.0 + sign * step), uniform) for sign in (1.0, -1.0))
        return (gradient * (up - down) / (2.0 * step * center)).sum().reshape(alpha.shape).to(alpha.dtype), None


class HarmonicSpectrum(Spectrum):
    """``ω_i = ±2π j_i / p_i`` with ``P(j) ∝ e^{−κ} I_j(κ)``, ``κ = 1/ℓ_i²``, from kept uniforms: periodic.

    As ``exp(κ cos θ) = Σ_j I_j(κ) e^{ijθ}``, these are all frequencies there are.
    """

    uniform: Tensor
    sign: Tensor

    def __init__(self, kernel: Periodic, uniform: Float[Tensor, "num d"], sign: Float[Tensor, "num d"]) -> None:
        super().__init__(kernel, uniform.shape[1])
        self.register_buffer("uniform", uniform)
        self.register_buffer("sign", sign)

    def concentration(self) -> Float[Tensor, " d"]:
        """``κ = 1/ℓ²``."""
        return self.kernel.lengthscale.pow(-2).expand(self.dimension)

    def harmonics(self) -> Float[Tensor, "num d"]:
        """``j`` at the current lengthscale."""
        uniform = self.uniform.cpu().numpy()
        columns = []
        for i, kappa in enumerate(self.concentration().tolist()):
            # Ten standard deviations, and enough of the Poisson-like tail where κ is small.
            order = np.arange(math.ceil(10.0 * math.sqrt(kappa)) + 40)
            mass = ive(order, kappa) * np.where(order == 0, 1.0, 2.0)
            columns.append(np.searchsorted(mass.cumsum(), uniform[:, i]).clip(max=order[-1]))
        return torch.as_tensor(np.stack(columns, axis=1), dtype=torch.float64, device=self.uniform.device)

    def frequencies(self) -> Float[Tensor, "num d"]:
        """``±2π j / p``."""
        assert isinstance(self.kernel, Periodic)
        return 2.0 * math.pi * self.sign * self.harmonics() / self.kernel.period

    def power(self) -> Float[Tensor, " num"]:
        """``σ²``, with the gradient in ``ℓ`` that the whole-numbered ``j`` cannot carry.

        The factor is one; its derivative is that of ``log P(j)``, so that of ``φ(x) φ(z)ᵀ`` is unbiased.
        """
        kappa, order = self.concentration(), self.harmonics().cpu().numpy()
        value = kappa.detach().cpu().numpy()
        score = ive(order + 1, value) / ive(order, value) + order / value - 1.0
        score = torch.as_tensor(score, device=kappa.device)
        return self.kernel.variance * (1.0 + (score * (kappa - kappa.detach())).sum(1))


def spectrum(
    kernel: LengthscaleKernel, num: int, dimension: int, *, orthogonal: bool, generator: torch.Generator
) -> Spectrum:
    """``num`` frequencies for one of the ``SPECTRAL`` kernels, which reads ``dimension`` columns."""
    if isinstance(kernel, Periodic):
        uniform = drawn(torch.rand, num, dimension, kernel=kernel, generator=generator)
        sign = drawn(torch.rand, num, dimension, kernel=kernel, generator=generator).round() * 2.0 - 1.0
        return HarmonicSpectrum(kernel, uniform, sign)
    base = directions(kernel, num, dimension, orthogonal=orthogonal, generator=generator)
    if isinstance(kernel, RationalQuadratic):
        return GammaSpectrum(kernel, base, drawn(torch.rand, num, kernel=kernel, generator=generator))
    if isinstance(kernel, (Matern12, Matern32, Matern52)):
        # One χ² per frequency: one per dimension would be the spectrum of a product of one-dimensional kernels.
        normal = drawn(torch.randn, num, kernel.degrees, kernel=kernel, generator=generator)
        base = base * (kernel.degrees / normal.square().sum(1, keepdim=True)).sqrt()
    return GaussianSpectrum(kernel, base)


def directions(
    kernel: LengthscaleKernel, num: int, dimension: int, *, orthogonal: bool, generator: torch.Generator
) -> Float[Tensor, "num d"]:
    """``z ~ N(0, I)``; if orthogonal, in blocks of ``d`` at right angles with independent norms of law ``χ_d``."""
    normal = drawn(torch.randn, num, dimension, kernel=kernel, generator=generator)
    if not orthogonal:
        return normal
    blocks = -(-num // dimension)
    square = drawn(torch.randn, blocks, dimension, dimension, kernel=kernel, generator=generator)
    # The signs of R make Q uniform among orthogonal matrices.
    q, r = torch.linalg.qr(square)
    q = q * torch.diagonal(r, dim1=-2, dim2=-1).sign()[:, None, :]
    return q.reshape(-1, dimension)[:num] * normal.norm(dim=1, keepdim=True)
