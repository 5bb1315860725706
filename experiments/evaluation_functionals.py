"""The posterior mean as a sum of evaluation functionals, ``f⋆ = Σ_i α_i k(·, x_i)``.

Eight observations and an RBF kernel with ``ψ = 0.5``. The representer weights ``α = (K + σ²I)⁻¹ Y`` come from a solver
of the library, the posterior mean beside them from the closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_curve import LENGTHSCALE, NOISE, kernel, observations, system
from experiments.toy_line import grid
from matheron.linear.exact import Dual


@dataclass(frozen=True)
class Config:
    """Sizes."""

    inputs: int = 401
    reach: float = 5.0
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    k, x, (X, y) = kernel(), grid(-config.reach, config.reach, config.inputs), observations(config.seed)
    alpha = mt.solvers.Cholesky().solve(system(X), y).solution
    functionals = k(x, X)
    parts = functionals * alpha
    mean = parts.sum(1)
    exact = Dual(k(X), B=1.0 / NOISE).functions(functionals, k(x), y)
    # The slope of the loss ½‖Y − f(X)‖²/σ² + ½‖f‖² when a multiple of k(z, ·) is added to f⋆, for every z.
    slope = mean - functionals @ (y - k(X) @ alpha) / NOISE
    distance = (x - X[:, 0]).abs().min(1).values
    far = distance > 5.0 * LENGTHSCALE
    peaks = functionals.argmax(0)
    table = [
        {"x": float(X[i]), "y": float(y[i]), "α": float(alpha[i]), "peak of its functional": float(x[peaks[i], 0])}
        for i in range(len(X))
    ]
    scale = float(mean.abs().max())
    claims = [
        at_most(
            "sum of the functionals against the posterior mean, largest difference",
            measured=float((mean - exact.mean).abs().max()),
            limit=1e-8,
            published="equal",
        ),
        at_most(
            "slope of the loss along any further functional, largest",
            measured=float(slope.abs().max()),
            limit=1e-8,
            published="functionals at the data suffice",
        ),
        at_most(
            "posterior mean beyond 5ψ from the data over its largest value",
            measured=float(mean[far].abs().max()) / scale,
            limit=0.01,
            published="goes to 0 far from the observations",
        ),
        within(
            "squared norm of the mean, αᵀKα over αᵀf⋆(X)",
            measured=float(alpha @ k(X) @ alpha / (alpha @ exact_at(X, y))),
            target=1.0,
            tolerance=1e-8,
            published="the reproducing property",
        ),
    ]
    curves = {
        "data": {"x": X[:, 0], "y": y},
        "x": x[::2, 0],
        "functionals": functionals[::2].mT,
        "parts": parts[::2].mT,
        "mean": mean[::2],
        "α": alpha,
    }
    return Report(table, claims, curves)


def exact_at(X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``f⋆(X)`` in closed form."""
    K = kernel()(X)
    return Dual(K, B=1.0 / NOISE).functions(K, K, y).mean


def draw(record: Record) -> Figure:
    curves = record["curves"]
    data = curves["data"]
    figure, (left, right) = style.panels(2, width=5.2, height=3.7)
    for functional, part, color in zip(curves["functionals"], curves["parts"], style.COLORS, strict=False):
        left.plot(curves["x"], functional, color=color)
        right.plot(curves["x"], part, color=color, linewidth=1.2)
    left.plot(data["x"], np.zeros(len(data["x"])), "o", color=style.INK, markersize=5, label="inputs of the data")
    left.set(title="Evaluation functionals k(·, xᵢ)", xlabel="x", ylim=(-0.06, 1.22))
    right.plot(curves["x"], curves["mean"], color=style.INK, linewidth=2.6, label="posterior mean, their sum")
    right.plot([], [], color=style.GRAY, linewidth=1.2, label="αᵢ k(·, xᵢ)")
    right.plot(data["x"], data["y"], "o", color=style.INK, markersize=5, label="observations")
    right.set(title="The posterior mean as their combination", xlabel="x")
    for ax in (left, right):
        ax.set_xlim(-4.5, 4.5)
        ax.legend(loc="upper right")
    right.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    id="evaluation-functionals",
    title="The posterior mean as a combination of evaluation functionals",
    reproduces=("Figure 2.4 (evaluation functionals and the posterior mean), section 2.2.2",),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": 8, "inputs": config.inputs},
)
