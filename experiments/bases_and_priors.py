"""Functions from the priors of three bases, and the covariance that each basis puts between inputs.

``f(x) = φ(x) w`` with ``w ~ N(0, I)``, for the affine basis ``[1, x]`` and for 500 random sines and cosines with
Gaussian frequencies of lengthscale 1 and 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import AFFINE, LENGTHSCALES, LONG, MODELS, NOISE_PRECISION, SHORT, bases, grid
from matheron.linear.exact import Dual


@dataclass(frozen=True)
class Config:
    """Sizes; all as in the thesis."""

    features: int = 500
    inputs: int = 501
    reach: float = 3.0
    functions: int = 4
    seed: int = 0


def half_width(covariance: Tensor, x: Tensor) -> float:
    """The distance from the middle at which the covariance with it is first half the variance there."""
    middle = len(x) // 2
    row = covariance[middle, middle:] / covariance[middle, middle]
    first = int((row < 0.5).nonzero()[0])
    share = (row[first - 1] - 0.5) / (row[first - 1] - row[first])
    return float(x[middle + first - 1, 0] + share * (x[1, 0] - x[0, 0]) - x[middle, 0])


def run(config: Config, progress: Progress) -> Report:
    x = grid(-config.reach, config.reach, config.inputs)
    generator = torch.Generator().manual_seed(config.seed)
    covariances, samples, table = {}, {}, []
    for name, basis in bases(config.features, config.seed).items():
        Phi = basis(x)
        K = covariances[name] = Phi @ Phi.mT
        weights = torch.randn(config.functions, Phi.shape[1], dtype=torch.float64, generator=generator)
        samples[name] = weights @ Phi.mT
        deviation = K.diagonal().sqrt()
        related = ((K / torch.outer(deviation, deviation)).abs() > 0.5).double().mean()
        row = {
            "basis": name,
            "features": Phi.shape[1],
            "effective dimension": float(Dual(K, NOISE_PRECISION).effective_dimension()),
            "share of pairs with |correlation| > 1/2": float(related),
        }
        if name != AFFINE:
            exact = mt.kernels.RBF(LENGTHSCALES[name]).requires_grad_(False)(x)
            row["RMS error against the kernel"] = float((K - exact).square().mean().sqrt())
            row["half width"] = half_width(K, x)
        table.append(row)

    rows = {row["basis"]: row for row in table}
    correlated = {name: rows[name]["share of pairs with |correlation| > 1/2"] for name in MODELS}
    dimension = {name: rows[name]["effective dimension"] for name in MODELS}
    # Second differences of a straight line vanish.
    bend = samples[AFFINE].diff(n=2, dim=1).abs().max() / samples[AFFINE].abs().max()
    claims = [
        at_most("bend of the affine functions", measured=float(bend), limit=1e-12, published="straight lines"),
        at_least(
            "pairs of inputs with |correlation| > 1/2, affine",
            measured=correlated[AFFINE],
            limit=0.6,
            published="strong correlations throughout",
        ),
        at_most(
            "the same, ψ = 1 over affine",
            measured=correlated[LONG] / correlated[AFFINE],
            limit=0.6,
            published="a band around the diagonal",
        ),
        within(
            "half width of the band, ψ = 1 over ψ = 0.3",
            measured=rows[LONG]["half width"] / rows[SHORT]["half width"],
            target=1.0 / 0.3,
            tolerance=0.5,
            published="thinner for the smaller ψ",
        ),
        at_least(
            "effective dimension, ψ = 1 over affine",
            measured=dimension[LONG] / dimension[AFFINE],
            limit=1.5,
            published="more flexible",
        ),
        at_least(
            "effective dimension, ψ = 0.3 over ψ = 1",
            measured=dimension[SHORT] / dimension[LONG],
            limit=1.5,
            published="even more flexible",
        ),
    ]
    claims += [
        at_most(
            f"RMS error of the covariance against the RBF kernel, {name}",
            measured=rows[name]["RMS error against the kernel"],
            limit=2.0 / config.features**0.5,
            published="the kernel, as d grows",
        )
        for name in LENGTHSCALES
    ]
    # Pairs of sine and cosine have a covariance of differences alone: one row tells the matrix.
    curves = {
        "x": x[::4, 0],
        "functions": {name: values[:, ::4] for name, values in samples.items()},
        "covariance by distance": {name: covariances[name][0, ::4] for name in LENGTHSCALES},
    }
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    x = np.asarray(curves["x"])
    figure, axes = style.panels(3, 2, width=4.3, height=3.5)
    for ax, below, name in zip(axes[:3], axes[3:], MODELS, strict=True):
        for sample, color in zip(curves["functions"][name], style.COLORS, strict=False):
            ax.plot(x, sample, color=color)
        ax.set(title=f"{name[0].upper() + name[1:]}: functions", xlabel="x", xlim=(x[0], x[-1]), ylim=(-5.5, 4.5))
        if name == AFFINE:
            covariance = 1.0 + np.outer(x, x)
        else:
            steps = np.abs(np.subtract.outer(np.arange(len(x)), np.arange(len(x))))
            covariance = np.asarray(curves["covariance by distance"][name])[steps]
        image = below.imshow(covariance, extent=(x[0], x[-1], x[-1], x[0]), interpolation="bilinear")
        below.set(title="Covariance of f(x) and f(x′)", xlabel="x′", ylabel="x")
        below.grid(False)
        figure.colorbar(image, ax=below, shrink=0.9)
    axes[0].set_ylabel("f(x), from the prior")
    return figure


EXPERIMENT = Experiment(
    id="bases-and-priors",
    title="Prior functions and covariances of three bases",
    reproduces=("Figure 2.1 (functions from three priors)", "Figure 2.2 (their covariance matrices), section 2.1.1"),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"inputs": config.inputs, "features": config.features},
)
