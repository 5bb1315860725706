"""Six observations near a straight line, and three linear models of them: what the pictures of chapter 2 share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

import matheron as mt
from experiments import style
from matheron.linear.exact import Gaussian, Primal

AFFINE, LONG, SHORT = MODELS = ("affine", "Fourier, ψ = 1", "Fourier, ψ = 0.3")
COLORS = dict(zip(MODELS, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
LENGTHSCALES = {LONG: 1.0, SHORT: 0.3}
NOISE_PRECISION, AFFINE_PRECISION, FOURIER_PRECISION = 2.0, 6.0, 0.4
"""``B = 2I``, and ``A = 6I`` for the affine basis or ``A = 0.4I`` for the Fourier bases."""

Basis = Callable[[Tensor], Tensor]
"""``φ``, from inputs ``(n, 1)`` to features ``(n, d)``."""


def grid(low: float, high: float, count: int) -> Tensor:
    """Equally spaced inputs ``(count, 1)`` in float64."""
    return torch.linspace(low, high, count, dtype=torch.float64)[:, None]


def observations(seed: int) -> tuple[Tensor, Tensor]:
    """``y = 0.3 + 0.6 x`` with noise of standard deviation 0.3, at six inputs."""
    x = torch.tensor([-2.0, -1.3, -0.4, 0.3, 1.2, 1.9], dtype=torch.float64)[:, None]
    noise = torch.randn(len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x, 0.3 + 0.6 * x[:, 0] + 0.3 * noise


def affine(x: Tensor) -> Tensor:
    """``[1, x]``."""
    return torch.cat([torch.ones_like(x), x], dim=1)


def fourier(lengthscale: float, num: int, seed: int) -> Basis:
    """Random sines and cosines with Gaussian frequencies; of one seed, those of one lengthscale stretch to another."""
    kernel = mt.kernels.RBF(lengthscale=torch.tensor([lengthscale], dtype=torch.float64)).requires_grad_(False)
    return kernel.features(num, generator=torch.Generator().manual_seed(seed))


def bases(num: int, seed: int) -> dict[str, Basis]:
    """The three bases by name."""
    return {AFFINE: affine} | {name: fourier(scale, num, seed) for name, scale in LENGTHSCALES.items()}


@dataclass(frozen=True, eq=False)
class Fit:
    """A basis with its linear model of the observations."""

    basis: Basis
    model: Primal
    y: Tensor

    def at(self, x: Tensor) -> Gaussian:
        """The posterior function at ``x``."""
        return self.model.functions(self.basis(x), self.y)


def fit(name: str, basis: Basis, seed: int) -> Fit:
    """One of the models on the observations."""
    x, y = observations(seed)
    precision = AFFINE_PRECISION if name == AFFINE else FOURIER_PRECISION
    return Fit(basis, Primal(basis(x), A=precision, B=NOISE_PRECISION), y)


def curve(x: Tensor, functions: Gaussian) -> dict[str, Any]:
    """Mean and standard deviation for the record."""
    return {"x": x[:, 0], "mean": functions.mean, "std": functions.variance.sqrt()}


def draw_fit(ax: Axes, fitted: Mapping[str, Any], data: Mapping[str, Any], *, color: str, label: str = "") -> None:
    """Mean, two standard deviations and the observations."""
    style.band(ax, fitted["x"], fitted["mean"], [2.0 * s for s in fitted["std"]], color=color, label=label)
    ax.plot(data["x"], data["y"], "o", color=style.INK, markersize=4.5, zorder=4)
    ax.set(xlabel="x", xlim=(fitted["x"][0], fitted["x"][-1]))


def draw_loss(
    ax: Axes,
    weights: Mapping[str, Any],
    *,
    intercepts: tuple[float, float],
    slopes: tuple[float, float],
    top: float = 30.0,
) -> None:
    """The quadratic loss of an intercept and a slope, from its least value and the posterior's moments."""
    sides = [np.linspace(*ends, 161) for ends in (intercepts, slopes)]
    offset = np.stack(np.meshgrid(*sides), axis=-1) - np.asarray(weights["mean"])
    hessian = np.linalg.inv(np.asarray(weights["covariance"]))
    loss = weights["least loss"] + 0.5 * np.einsum("...i,ij,...j", offset, hessian, offset)
    style.landscape(ax, *sides, loss, top=top, label="loss")
    ax.set(xlabel="intercept", ylabel="slope", xlim=intercepts, ylim=slopes)
