"""The posterior over two weights of a line as a landscape, and the posterior functions of three bases.

The loss ``½‖Y − Φw‖²_B + ½‖w‖²_A`` is minus the log posterior density up to a constant, so that its contours are the
posterior's. Six observations, ``B = 2I``, ``A = 6I`` for the affine and ``A = 0.4I`` for the Fourier bases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import at_least, at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import (
    AFFINE,
    COLORS,
    FOURIER_PRECISION,
    LENGTHSCALES,
    LONG,
    MODELS,
    SHORT,
    bases,
    curve,
    draw_fit,
    draw_loss,
    fit,
    grid,
    observations,
)


@dataclass(frozen=True)
class Config:
    """Sizes; ``draws`` are for the moments, two of them are drawn."""

    features: int = 500
    inputs: int = 301
    reach: float = 4.0
    draws: int = 100_000
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    x, (inputs, y) = grid(-config.reach, config.reach, config.inputs), observations(config.seed)
    fits = {name: fit(name, basis, config.seed) for name, basis in bases(config.features, config.seed).items()}
    functions = {name: fitted.at(x) for name, fitted in fits.items()}
    deviation = {name: gaussian.variance.sqrt() for name, gaussian in functions.items()}
    line = fits[AFFINE].model
    posterior = line.weights(y)
    generator = torch.Generator().manual_seed(config.seed)
    draws = posterior.sample(config.draws, generator)
    offset = draws - posterior.mean
    radius = (offset @ line.hessian * offset).sum(1)
    quadratic = line.loss(posterior.mean, y) + 0.5 * radius
    standard_error = (posterior.variance / config.draws).sqrt()

    inside = (x[:, 0] >= inputs.min()) & (x[:, 0] <= inputs.max())
    distance = (x - inputs[:, 0]).abs().min(1).values
    prior = FOURIER_PRECISION**-0.5
    table = [
        {
            "basis": name,
            "mean std among the data": float(deviation[name][inside].mean()),
            "mean std over the picture": float(deviation[name].mean()),
            "log evidence": float(fits[name].model.log_evidence(y)),
            "effective dimension": float(fits[name].model.effective_dimension()),
        }
        for name in MODELS
    ]
    among = {row["basis"]: row["mean std among the data"] for row in table}

    def back_at_prior(name: str, far: Tensor) -> float:
        """The least share of the prior's standard deviation."""
        return float(deviation[name][far].min()) / prior

    claims = [
        at_most(
            "loss less its quadratic at the mode, largest over draws",
            measured=float((line.loss(draws, y) - quadratic).abs().max()),
            limit=1e-9,
            published="the posterior is Gaussian",
        ),
        within(
            "share of draws within the contour of 2 standard deviations",
            measured=float((radius < 4.0).double().mean()),
            target=1.0 - math.exp(-2.0),
            tolerance=0.005,
        ),
        at_most(
            "mean of the draws against the mode, in standard errors",
            measured=float(((draws.mean(0) - posterior.mean) / standard_error).abs().max()),
            limit=4.0,
        ),
        at_most(
            "error bars among the data, affine over ψ = 1",
            measured=among[AFFINE] / among[LONG],
            limit=1.0,
            published="affine smallest",
        ),
        at_most(
            "error bars among the data, ψ = 1 over ψ = 0.3",
            measured=among[LONG] / among[SHORT],
            limit=1.0,
            published="larger for ψ = 0.3",
        ),
        at_least(
            "standard deviation 3ψ from the data over the prior's, ψ = 0.3",
            measured=back_at_prior(SHORT, distance > 3.0 * LENGTHSCALES[SHORT]),
            limit=0.95,
            published="returns to the prior",
        ),
        at_least(
            "share of the picture with more than 0.9 of the prior's standard deviation, ψ = 0.3",
            measured=float((deviation[SHORT] > 0.9 * prior).double().mean()),
            limit=0.5,
            published="almost everywhere",
        ),
    ]
    curves = {
        "data": {"x": inputs[:, 0], "y": y},
        "functions": {name: curve(x, gaussian) for name, gaussian in functions.items()},
        "samples": {
            name: fits[name].model.weights(y).sample(2, generator) @ fits[name].basis(x).mT for name in LENGTHSCALES
        }
        | {AFFINE: draws[:2] @ fits[AFFINE].basis(x).mT},
        "weights": {
            "mean": posterior.mean,
            "covariance": posterior.covariance,
            "prior covariance": torch.linalg.inv(line.prior_precision),
            "least loss": float(line.loss(posterior.mean, y)),
            "samples": draws[:2],
        },
    }
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    weights = {key: np.asarray(value) for key, value in curves["weights"].items()}
    figure, (landscape, *rest) = style.panels(2, 2, width=5.0, height=3.8)
    draw_loss(landscape, curves["weights"], intercepts=(-1.4, 1.4), slopes=(-1.4, 1.6))
    zero = np.zeros(2)
    style.ellipses(landscape, zero, weights["prior covariance"], color=style.ORANGE, label="prior", dash="--")
    style.ellipses(landscape, weights["mean"], weights["covariance"], color=style.BLUE, label="posterior")
    for (horizontal, vertical), color in zip(weights["samples"], (style.RED, style.PURPLE), strict=True):
        landscape.plot(horizontal, vertical, "D", color=color, markersize=6, markeredgecolor="white", zorder=5)
    landscape.set(title="Affine: loss, and contours at 1, 2, 3 std")
    landscape.legend(loc="lower left", frameon=True, framealpha=0.9)
    for ax, name in zip(rest, MODELS, strict=True):
        draw_fit(ax, curves["functions"][name], curves["data"], color=COLORS[name], label="mean ± 2 std")
        for sample, color in zip(curves["samples"][name], (style.RED, style.PURPLE), strict=True):
            ax.plot(curves["functions"][name]["x"], sample, color=color, linewidth=1.2, linestyle="--")
        ax.plot([], [], color=style.GRAY, linewidth=1.2, linestyle="--", label="two functions from the posterior")
        ax.set(title=f"Posterior: {name}", ylim=(-4.6, 4.6))
        ax.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    id="posterior-landscape",
    title="Posterior over the weights of a line, and posterior functions of three bases",
    reproduces=("Figure 2.3 (posterior landscape and posterior functions), section 2.1.2",),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": 6, "features": config.features},
)
