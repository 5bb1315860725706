"""Stationary kernels ``k(x, z) = σ² κ(r²)``, ``r² = Σ_i (x_i − z_i)² / ℓ_i²``: RBF, Matérn and rational quadratic."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.contraction import Contraction
from matheron.kernels.evaluator import Evaluator, Scratch
from matheron.kernels.fused import FusedTile
from matheron.kernels.lengthscale import LengthscaleKernel
from matheron.kernels.positive import Positive

LOG2E = math.log2(math.e)


def squared_distance(x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """``‖x_i − z_j‖²`` from one product ``[−2x, ‖x‖², 1] [z, 1, ‖z‖²]ᵀ`` in float64, of the inputs' dtype.

    The product cancels badly when far from the origin and in float32; common offsets are removed and float64 costs a
    fifth more. Coincident rows give exactly zero.
    """
    left, right = embed(x, z, z.detach().to(torch.float64).mean(0))
    return (left @ right.mT).clamp_min(0).to(x.dtype)


def embed(x: Tensor, z: Tensor, center: Tensor) -> tuple[Float[Tensor, "n e"], Float[Tensor, "m e"]]:
    """The two sides of the product in :func:`squared_distance`.

    Norms are shrunk by a few float64 roundings, so that coincident rows fall below zero, where they are clamped.
    """
    x, z = x.to(torch.float64) - center, z.to(torch.float64) - center
    shrink = 1.0 - 4.0 * (x.shape[1] + 2) * torch.finfo(torch.float64).eps
    norm_x, norm_z = (shrink * (v * v).sum(1, keepdim=True) for v in (x, z))
    left = torch.cat([-2.0 * x, norm_x, torch.ones_like(norm_x)], dim=1)
    right = torch.cat([z, torch.ones_like(norm_z), norm_z], dim=1)
    return left, right


def fill_root(out: Tensor, scratch: Tensor) -> None:
    """``√s`` in place as ``s · s^(−½)`` for ``s > 0``: twice as fast as the square root itself."""
    torch.rsqrt(out, out=scratch)
    out.mul_(scratch)


def safe_sqrt(squared: Tensor) -> Tensor:
    """``√s`` with gradient zero at ``s = 0``, where that of the distance to itself belongs."""
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


class Stationary(LengthscaleKernel):
    """``σ² κ(r²)`` with one lengthscale for all inputs or one for each."""

    fused_correlation: ClassVar[Any] = None
    """``κ`` of ``stretch · r²`` as one expression, for :class:`FusedTile`; a plain function."""

    @abstractmethod
    def correlation(self, squared: Tensor) -> Tensor:
        """``κ(r²)``, differentiable."""

    @abstractmethod
    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """Turn ``stretch · r²`` into ``κ`` in place."""

    def stretch(self) -> float:
        """The factor on ``r²`` that saves :meth:`fill_correlation` a pass."""
        return 1.0

    def scaled(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The inputs in units of the lengthscale, in float64: ``r²`` is their squared distance."""
        return x.to(torch.float64) / self.lengthscale

    def coordinates(self, x: Tensor) -> Float[Tensor, "n e"] | None:
        """In units of the lengthscale."""
        return self.scaled(self.select(x)).detach()

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """``σ² κ(r²)``."""
        squared = squared_distance(self.scaled(x), self.scaled(z))
        return self.variance.to(x.dtype) * self.correlation(squared.to(x.dtype))

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``σ²``."""
        return self.variance.to(x.dtype).expand(x.shape[0])

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """In place on one tile; distances in float64."""
        return StationaryEvaluator(self, self.select(x), self.select(z))

    slope_scale: ClassVar[float | None] = None
    """What :meth:`fill_slope` leaves out of ``dκ/dr²``; ``None`` where a kernel has no such method."""

    def fill_slope(self, out: Tensor, slope: Tensor) -> None:
        """Turn ``stretch · r²`` into ``κ`` in place, and ``slope`` into ``dκ/dr² / slope_scale``."""
        raise NotImplementedError

    def contraction(self, x: Tensor, z: Tensor) -> Contraction:
        """By the chain rule through ``r²``, where it is a scaled distance and the slope is known."""
        from matheron.kernels.slopes import StationaryContraction

        if self.slope_scale is None or type(self).scaled is not Stationary.scaled:
            return super().contraction(x, z)
        return StationaryContraction(self, self.select(x), self.select(z))


class StationaryEvaluator(Evaluator):
    """One product for the distances, then ``κ`` in place."""

    def __init__(self, kernel: Stationary, x: Tensor, z: Tensor) -> None:
        with torch.no_grad():
            stretch = math.sqrt(kernel.stretch())
            right_inputs = stretch * kernel.scaled(z)
            left_inputs = right_inputs if x is z else stretch * kernel.scaled(x)
            self.left, self.right = embed(left_inputs, right_inputs, right_inputs.mean(0))
            self.variance = kernel.variance.item()
            self.fused: FusedTile | None = None
            x32, z32 = -0.5 * self.left[:, :-2], self.right[:, :-2]
            if kernel.fused_correlation is not None and FusedTile.worthwhile(x32, z32, x.dtype):
                self.fused = FusedTile(kernel.fused_correlation, *(c.float().mT.contiguous() for c in (x32, z32)))
        self.kernel: Stationary = kernel
        self.squared = Scratch(torch.float64, x.device)
        self.spare = Scratch(x.dtype, x.device)

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``; the other side is shared."""
        part = object.__new__(StationaryEvaluator)
        fused = None if self.fused is None else self.fused.gather(index)
        part.__dict__.update(self.__dict__, left=self.left[index], fused=fused)
        return part

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Distances, correlation, variance."""
        if self.fused is None or not self.fused.fill(rows, columns, out):
            self.fill_in_passes(rows, columns, out)
        if self.variance != 1.0:
            out.mul_(self.variance)

    def fill_in_passes(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """The correlation, from distances in float64."""
        double = out.dtype == torch.float64 and out.is_contiguous()
        squared = out if double else self.squared.like(out)
        torch.mm(self.left[rows], self.right[columns].mT, out=squared)
        if not double:
            out.copy_(squared)
        out.clamp_min_(torch.finfo(out.dtype).tiny)
        self.kernel.fill_correlation(out, self.spare.like(out))


class SquaredExponential(Stationary):
    """``σ² exp(−r²/2)``, whatever the inputs that ``r`` is measured between."""

    def correlation(self, squared: Tensor) -> Tensor:
        """``exp(−r²/2)``."""
        return torch.exp(-0.5 * squared)

    def stretch(self) -> float:
        """Base two is twice as fast as base e."""
        return 0.5 * LOG2E

    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """``2^(−s)``."""
        out.neg_().exp2_()

    slope_scale = -0.5

    def fill_slope(self, out: Tensor, slope: Tensor) -> None:
        """``dκ/dr² = −κ/2``."""
        slope.copy_(out.neg_().exp2_())

    @staticmethod
    def fused_correlation(stretched: Tensor) -> Tensor:
        """``2^(−s)``."""
        return torch.exp2(-stretched)


class RBF(SquaredExponential):
    """``σ² exp(−r²/2)``: the squared exponential kernel, infinitely smooth.

    >>> import torch
    >>> RBF(lengthscale=2.0, variance=3.0)(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item()  # 3 exp(−½)
    1.8195919...
    """


class Matern12(Stationary):
    """``σ² exp(−r)``: continuous, nowhere differentiable paths (Ornstein–Uhlenbeck).

    >>> import torch
    >>> Matern12()(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item()
    0.3678794...
    """

    degrees = 1

    def correlation(self, squared: Tensor) -> Tensor:
        """``exp(−r)``."""
        return torch.exp(-safe_sqrt(squared))

    def stretch(self) -> float:
        """``s = r log₂e`` after the root."""
        return LOG2E**2

    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """``2^(−s)``."""
        fill_root(out, scratch)
        out.neg_().exp2_()

    slope_scale = -0.5 * LOG2E

    def fill_slope(self, out: Tensor, slope: Tensor) -> None:
        """``dκ/dr² = −exp(−r) / (2r)``; zero between coincident rows, which no lengthscale parts."""
        torch.rsqrt(out, out=slope)
        apart = out > 1e-12
        out.mul_(slope).neg_().exp2_()
        slope.mul_(out).mul_(apart)

    @staticmethod
    def fused_correlation(stretched: Tensor) -> Tensor:
        """``2^(−√s)``."""
        return torch.exp2(-stretched.sqrt())


class Matern32(Stationary):
    """``σ² (1 + √3 r) exp(−√3 r)``: once differentiable paths.

    >>> import torch
    >>> Matern32()(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item()
    0.4833577...
    """

    degrees = 3

    def correlation(self, squared: Tensor) -> Tensor:
        """``(1 + √3 r) exp(−√3 r)``."""
        root = safe_sqrt(3.0 * squared)
        return (1.0 + root) * torch.exp(-root)

    def stretch(self) -> float:
        """``s = √3 r log₂e`` after the root."""
        return 3.0 * LOG2E**2

    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """``(1 + s / log₂e) 2^(−s)``."""
        fill_root(out, scratch)
        torch.neg(out, out=scratch).exp2_()
        torch.addcmul(scratch, out, scratch, value=1.0 / LOG2E, out=out)

    slope_scale = -1.5

    def fill_slope(self, out: Tensor, slope: Tensor) -> None:
        """``dκ/dr² = −(3/2) exp(−√3 r)``."""
        fill_root(out, slope)
        torch.neg(out, out=slope).exp2_()
        torch.addcmul(slope, out, slope, value=1.0 / LOG2E, out=out)

    @staticmethod
    def fused_correlation(stretched: Tensor) -> Tensor:
        """``(1 + t) 2^(−√s)`` with ``t = √s / log₂e``."""
        root = stretched.sqrt()
        return (1.0 + root * (1.0 / LOG2E)) * torch.exp2(-root)


class Matern52(Stationary):
    """``σ² (1 + √5 r + 5r²/3) exp(−√5 r)``: twice differentiable paths.

    >>> import torch
    >>> Matern52()(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item()
    0.5239940...
    """

    degrees = 5

    def correlation(self, squared: Tensor) -> Tensor:
        """``(1 + √5 r + 5r²/3) exp(−√5 r)``."""
        root = safe_sqrt(5.0 * squared)
        return (1.0 + root + 5.0 / 3.0 * squared) * torch.exp(-root)

    def stretch(self) -> float:
        """``s = √5 r log₂e`` after the root."""
        return 5.0 * LOG2E**2

    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """``(1 + t + t²/3) 2^(−s)`` with ``t = s / log₂e``."""
        fill_root(out, scratch)
        torch.neg(out, out=scratch).exp2_()
        out.mul_(1.0 / LOG2E)
        torch.addcmul(out, out, out, value=1.0 / 3.0, out=out)
        torch.addcmul(scratch, out, scratch, out=out)

    slope_scale = -5.0 / 6.0

    def fill_slope(self, out: Tensor, slope: Tensor) -> None:
        """``dκ/dr² = −(5/6) (1 + √5 r) exp(−√5 r)``, and ``κ`` is that in brackets plus ``(5/3) r² exp(−√5 r)``."""
        fill_root(out, slope)
        decay = torch.neg(out).exp2_()
        out.mul_(1.0 / LOG2E)
        torch.addcmul(decay, out, decay, out=slope)
        torch.addcmul(slope, out.mul_(out), decay, value=1.0 / 3.0, out=out)

    @staticmethod
    def fused_correlation(stretched: Tensor) -> Tensor:
        """``(1 + t + t²/3) 2^(−√s)`` with ``t = √s / log₂e``."""
        root = stretched.sqrt()
        t = root * (1.0 / LOG2E)
        return (1.0 + t + t * t * (1.0 / 3.0)) * torch.exp2(-root)


class RationalQuadratic(Stationary):
    """``σ² (1 + r²/(2α))^(−α)``: a mixture of RBF kernels over many lengthscales.

    >>> import torch
    >>> RationalQuadratic(alpha=1.0)(torch.tensor([[0.0]]), torch.tensor([[1.0]])).item()
    0.6666666...
    """

    alpha = Positive()

    def __init__(
        self,
        lengthscale: float | Sequence[float] | Tensor = 1.0,
        alpha: float | Tensor = 1.0,
        variance: float | Tensor = 1.0,
        *,
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(lengthscale, variance, columns=columns)
        self.alpha = alpha

    def correlation(self, squared: Tensor) -> Tensor:
        """``(1 + r²/(2α))^(−α)``."""
        alpha = self.alpha.to(squared.dtype)
        return torch.exp(-alpha * torch.log1p(squared / (2.0 * alpha)))

    def stretch(self) -> float:
        """``s = r²/(2α)``."""
        return 0.5 / self.alpha.item()

    def fill_correlation(self, out: Tensor, scratch: Tensor) -> None:
        """``exp(−α log(1 + s))``."""
        out.log1p_().mul_(-self.alpha.item()).exp_()
