"""``sin 2x + cos 5x`` with two ways of getting more data, and its exact posterior: what five pictures share.

Infill: inputs from ``N(0, 1)``, ever more of them in one place. Large domain: a regular grid that only grows longer.
RBF kernel with ``ψ = 0.5`` and unit variance, noise of variance 0.5; the grid has five inputs per lengthscale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.toy_line import grid

INFILL, LARGE = REGIMES = ("infill", "large domain")
INTERPOLATION, EXTRAPOLATION, FAR = REGIONS = ("interpolation", "extrapolation", "far away")
LENGTHSCALE, NOISE, SPACING, REACH = 0.5, 0.5, 0.1, 6.5
"""``ψ``, the variance of the noise, the distance of inputs on the grid, and half the width of the window looked at."""

NEAR, PRIOR = 0.3, 0.99
"""Exact standard deviations, the prior's being 1, below which an input interpolates and above which it is far away."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Marginal means and standard deviations of a latent function."""

    mean: Tensor
    std: Tensor

    def distance(self, other: Moments) -> Tensor:
        """``W₂ = √((μ − μ′)² + (s − s′)²)`` of the Gaussian marginals."""
        return torch.hypot(self.mean - other.mean, self.std - other.std)

    def curve(self) -> dict[str, Tensor]:
        """For the record."""
        return {"mean": self.mean, "std": self.std}


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations, inputs to look at, and ``f(·) = φ(·) w`` and ``ε`` of functions that every method shares.

    As all methods update the same prior functions, their standard deviations differ by what the methods do and not by
    what was drawn.
    """

    regime: str
    X: Tensor
    y: Tensor
    x: Tensor
    features: mt.kernels.feature_map.FeatureMap
    weights: Tensor
    epsilon: Tensor

    @property
    def kernel(self) -> mt.kernels.Kernel:
        """``k``."""
        return self.features.kernel

    def system(self, dtype: torch.dtype = torch.float64) -> mt.operators.Operator:
        """``K + σ²I``."""
        noise = torch.tensor(NOISE, dtype=dtype)
        return mt.operators.KernelOperator(self.kernel, self.X.to(dtype)) + mt.operators.Diagonal(noise)

    @cached_property
    def targets(self) -> Tensor:
        """``[y | f(X) + ε]``."""
        return torch.cat([self.y[:, None], self.features(self.X) @ self.weights + self.epsilon], dim=1)

    @cached_property
    def noise(self) -> Tensor:
        """``[0 | ε]``: the part of the targets that is noise, for solvers that treat it apart."""
        return torch.cat([torch.zeros_like(self.y)[:, None], self.epsilon], dim=1)

    @cached_property
    def across(self) -> Tensor:
        """``K_xX``."""
        return self.kernel(self.x, self.X)

    def moments(self, alpha: Tensor) -> Moments:
        """Of the mean ``K_xX α_y`` and of the functions ``f − K_xX α_f``."""
        pulled = self.across @ alpha.double()
        deviations = self.features(self.x) @ self.weights - pulled[:, 1:]
        return Moments(pulled[:, 0], deviations.square().mean(1).sqrt())

    @cached_property
    def _solved(self) -> Tensor:
        """``(K + σ²I)⁻¹ [y | f(X) + ε | K_Xx]``, exactly."""
        columns = torch.cat([self.targets, self.across.mT], dim=1)
        return mt.solvers.Cholesky().solve(self.system(), columns, generator=torch.Generator()).solution

    @property
    def alpha(self) -> Tensor:
        """The exact weights of mean and functions."""
        return self._solved[:, : self.targets.shape[1]]

    @cached_property
    def exact(self) -> Moments:
        """The exact posterior's own moments."""
        reduction = (self.across * self._solved[:, self.targets.shape[1] :].mT).sum(1)
        std = (self.kernel.diagonal(self.x) - reduction).clamp_min(0.0).sqrt()
        return Moments(self.across @ self.alpha[:, 0], std)

    @cached_property
    def exact_functions(self) -> Moments:
        """The same from exact weights and the functions drawn."""
        return self.moments(self.alpha)

    def inducing(self, points: int | Tensor, generator: torch.Generator) -> tuple[Moments, mt.gp.Posterior]:
        """The KL-optimal posterior of so many inducing points; it is what SVGP converges to with these."""
        process = mt.GaussianProcess(self.kernel, NOISE)
        post = process.condition(self.X, self.y, num_samples=0, inducing=points, generator=generator)
        return Moments(post.mean(self.x), post.variance(self.x).sqrt()), post

    def regions(self) -> dict[str, Tensor]:
        """Masks of the three regions, by the exact standard deviation."""
        near, far = self.exact.std < NEAR, self.exact.std > PRIOR
        return {INTERPOLATION: near, EXTRAPOLATION: ~near & ~far, FAR: far}

    def errors(self, distance: Tensor) -> dict[str, float | None]:
        """Root mean square and largest ``W₂`` of the window, and by region where there are regions."""
        found: dict[str, float | None] = {"RMS W2": rms(distance), "largest W2": float(distance.max())}
        if self.regime == INFILL:
            found |= {region: rms(distance[mask]) for region, mask in self.regions().items()}
        return found

    def curves(self, shown: int = 300) -> dict[str, Any]:
        """For the picture: inputs, the exact posterior, and data of the window."""
        visible = (self.X[:, 0].abs() < REACH).nonzero()[:, 0]
        some = visible[torch.randperm(len(visible), generator=torch.Generator().manual_seed(0))[:shown]]
        return {
            "x": self.x[:, 0],
            "exact": self.exact.curve(),
            "data": {"x": self.X[some, 0], "y": self.y[some]},
            "rows": len(self.y),
        }


def problem(regime: str, rows: int, samples: int, seed: int, *, features: int = 2_000, inputs: int = 261) -> Problem:
    """One of the two regimes in float64."""
    generator = torch.Generator().manual_seed(seed)
    lengthscale = torch.tensor([LENGTHSCALE], dtype=torch.float64)
    kernel = mt.kernels.RBF(lengthscale=lengthscale).requires_grad_(False)
    if regime == INFILL:
        X = normal(rows, 1, generator=generator)
    else:
        X = SPACING * (torch.arange(rows, dtype=torch.float64)[:, None] - 0.5 * (rows - 1))
    y = (2.0 * X[:, 0]).sin() + (5.0 * X[:, 0]).cos() + NOISE**0.5 * normal(rows, generator=generator)
    phi = kernel.features(features, generator=generator)
    weights = normal(phi.num, samples, generator=generator)
    epsilon = NOISE**0.5 * normal(rows, samples, generator=generator)
    return Problem(regime, X, y, grid(-REACH, REACH, inputs), phi, weights, epsilon)


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def rms(values: Tensor) -> float:
    """Root mean square; of nothing, zero."""
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def draw_posterior(
    ax: Axes, curves: Mapping[str, Any], method: Mapping[str, Any], *, color: str, label: str, title: str
) -> None:
    """A posterior's mean and two standard deviations, the exact one dashed, and some of the data."""
    x, data, exact = curves["x"], curves["data"], curves["exact"]
    ax.plot(data["x"], data["y"], ".", color=style.LIGHT, markersize=3.5, zorder=1, label="some data")
    style.band(ax, x, method["mean"], [2.0 * s for s in method["std"]], color=color, label=f"{label} ± 2 std")
    for sign, name in ((0.0, "exact ± 2 std"), (2.0, None), (-2.0, None)):
        line = [m + sign * s for m, s in zip(exact["mean"], exact["std"], strict=True)]
        ax.plot(x, line, color=style.INK, linestyle="--", linewidth=1.0, label=name)
    ax.set(title=title, xlabel="x", xlim=(x[0], x[-1]), ylim=(-4.2, 5.4))
    ax.legend(loc="upper center", ncols=3, fontsize=8, columnspacing=1.0, handlelength=1.4)
