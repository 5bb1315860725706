"""SGD against conjugate gradients, with stochastic dual descent and sketch-and-project beside them.

Four errors of the posterior mean along the way: test RMSE, RMSE to the exact mean at the test inputs, ``‖α − α⋆‖`` and
``‖α − α⋆‖_K``, with the noise that maximizes the evidence and with a noise scale of 10⁻³. Epochs count entries of the
kernel matrix in units of ``n²``; seconds leave the measurements out. Shown is what a solver would return if stopped
there: for conjugate gradients the iterate with the smallest residual so far, for SGD and SDD the average.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import RegressionProblem, checkpoints, columns, regression_problem

SOLVERS = ("SGD", "CG", "SDD", "SketchAndProject")
MEASURES = ("test RMSE", "RMSE to the exact mean", "weight error", "K-norm error")
NOISES = ("published noise", "low noise")
LOW_NOISE = 1e-6


@dataclass(frozen=True)
class Config:
    """Sizes; ``dtype`` is that of the solvers, the exact solution is in float64."""

    rows: int | None
    epochs: float
    batch: int = 512
    dtype: str = "float32"
    sets: tuple[str, ...] = ("pol", "elevators", "bike", "protein")
    seed: int = 0


def solvers(config: Config) -> dict[str, mt.solvers.CG | mt.solvers.SGD | mt.solvers.SDD | mt.solvers.SketchAndProject]:
    """As the library has them, all for the same number of epochs; the tolerance is out of reach."""
    common = {"epochs": config.epochs, "tolerance": 1e-12}
    return {
        "SGD": mt.solvers.SGD(batch=config.batch, **common),
        "CG": mt.solvers.CG(**common),
        "SDD": mt.solvers.SDD(batch=config.batch, **common),
        "SketchAndProject": mt.solvers.SketchAndProject(**common),
    }


def errors(problem: RegressionProblem) -> Callable[[Tensor], dict[str, float]]:
    """The four errors of ``α``."""
    left_by_exact = problem.split.y_test.double()[:, None] - problem.K_test @ problem.alpha[:, None]

    def measure(weights: Tensor) -> dict[str, float]:
        difference = columns(weights) - problem.alpha[:, None]
        prediction = problem.K_test @ difference
        return {
            "test RMSE": float((left_by_exact - prediction).square().mean().sqrt()),
            "RMSE to the exact mean": float(prediction.square().mean().sqrt()),
            "weight error": float(difference.norm()),
            "K-norm error": float((difference * (problem.K @ difference)).sum().clamp_min(0.0).sqrt()),
        }

    return measure


def trace(problem: RegressionProblem, name: str, config: Config) -> dict[str, list[float]]:
    """Errors of one solver after every sweep, from zero on."""
    dtype, measure = getattr(torch, config.dtype), errors(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        result = solvers(config)[name].solve(
            problem.system(dtype),
            problem.split.y_train.to(dtype),
            generator=torch.Generator().manual_seed(config.seed),
            monitor=measure,
        )
    start = {"epochs": 0.0, "seconds": 0.0} | measure(torch.zeros(problem.rows))
    rows: list[dict[str, Any]] = [start, *result.trace]
    return {key: [row[key] for row in rows] for key in ("epochs", "seconds", *MEASURES)}


def run(config: Config, progress: Progress) -> Report:
    curves: dict[str, dict[str, dict[str, dict[str, list[float]]]]] = {}
    exact: dict[str, dict[str, float]] = {}
    table = []
    for data in config.sets:
        curves[data], exact[data] = {}, {}
        for label, noise in zip(NOISES, (None, LOW_NOISE), strict=True):
            problem = regression_problem(data, rows=config.rows, seed=config.seed, noise=noise)
            exact[data][label] = float(problem.rmse(problem.alpha))
            curves[data][label] = {}
            for name in progress(SOLVERS, f"{data}, {label}"):
                along = curves[data][label][name] = trace(problem, name, config)
                ends = {key: values[-1] for key, values in along.items()}
                table.append({"data": data, "noise": label, "solver": name} | ends | {"exact RMSE": exact[data][label]})
    return Report(table, claims(curves, exact), {"exact test RMSE": exact, "traces": thinned(curves)})


def thinned(curves: Any) -> Any:
    """At most 60 sweeps of every curve, for the record; claims have seen all."""
    if isinstance(curves, dict):
        return {key: thinned(value) for key, value in curves.items()}
    return [curves[0], *(curves[i] for i in checkpoints(len(curves) - 1))]


def claims(curves: Any, exact: dict[str, dict[str, float]]) -> list[Claim]:
    """The worst of all data sets for each sentence of the thesis."""
    high, low = NOISES

    def end(data: str, noise: str, solver: str, measure: str) -> float:
        return curves[data][noise][solver][measure][-1]

    def progress_early(data: str) -> float:
        along = curves[data][high]["SGD"]
        tenth = next(i for i, epochs in enumerate(along["epochs"]) if epochs >= 0.1 * along["epochs"][-1])
        rmse = along["test RMSE"]
        return (rmse[0] - rmse[tenth]) / (rmse[0] - rmse[-1])

    def worst_of_cg(data: str, noise: str) -> float:
        rmse = curves[data][noise]["CG"]["test RMSE"]
        return max(rmse) / rmse[0]

    def ratio(data: str, noise: str, solver: str, other: str, measure: str) -> float:
        return end(data, noise, solver, measure) / max(end(data, noise, other, measure), 1e-300)

    sets = list(curves)
    return [
        at_most(
            "largest test RMSE of SGD over the exact, published noise",
            measured=max(end(d, high, "SGD", "test RMSE") / exact[d][high] for d in sets),
            limit=1.05,
            published="effectively the same",
        ),
        at_least(
            "smallest ‖α − α⋆‖ of SGD over that of CG, published noise",
            measured=min(ratio(d, high, "SGD", "CG", "weight error") for d in sets),
            limit=1.0,
            published="much slower",
        ),
        at_least(
            "smallest ‖α − α⋆‖_K of SGD over that of CG, published noise",
            measured=min(ratio(d, high, "SGD", "CG", "K-norm error") for d in sets),
            limit=1.0,
            published="much slower",
        ),
        at_least(
            "least share of SGD's progress in test RMSE within a tenth of its epochs",
            measured=min(progress_early(d) for d in sets),
            limit=0.8,
            published="the vast majority in its first few iterations",
        ),
        at_most(
            "largest test RMSE of SGD at low noise over that at published noise",
            measured=max(end(d, low, "SGD", "test RMSE") / end(d, high, "SGD", "test RMSE") for d in sets),
            limit=1.1,
            published="essentially unchanged",
        ),
        at_least(
            "smallest test RMSE of CG at low noise over that at published noise",
            measured=min(end(d, low, "CG", "test RMSE") / end(d, high, "CG", "test RMSE") for d in sets),
            limit=1.1,
            published="severely degrades on all",
        ),
        at_least(
            "largest test RMSE of CG on its way over that of zero",
            measured=max(worst_of_cg(d, noise) for d in sets for noise in NOISES),
            limit=1.0 + math.ulp(1.0),
            published="initial steps increase test error",
        ),
        at_most(
            "largest ‖α − α⋆‖_K of SDD over that of SGD, published noise",
            measured=max(ratio(d, high, "SDD", "SGD", "K-norm error") for d in sets),
            limit=1.0,
            published="SDD converges faster",
        ),
    ]


def draw(record: Record) -> Figure:
    curves = record["curves"]
    sets = list(curves["traces"])
    panels = [*((measure, "epochs") for measure in MEASURES), ("test RMSE", "seconds")]
    figure, axes = style.panels(len(panels), len(sets), width=3.5, height=2.7)
    colors = dict(zip(SOLVERS, (style.ORANGE, style.GREEN, style.BLUE, style.PURPLE), strict=True))
    for place, ax in enumerate(axes):
        data, (measure, clock) = sets[place // len(panels)], panels[place % len(panels)]
        for noise, look in zip(NOISES, ("-", ":"), strict=True):
            for name, color in colors.items():
                along = curves["traces"][data][noise][name]
                ax.plot(along[clock][1:], along[measure][1:], color=color, linestyle=look, label=f"{name}, {noise}")
            if measure == "test RMSE":
                ax.axhline(
                    curves["exact test RMSE"][data][noise],
                    color=style.GRAY,
                    linewidth=1.0,
                    linestyle=look,
                    label=f"exact, {noise}",
                )
        ax.set(xscale="log", yscale="log", xlabel=clock)
        if measure == "test RMSE":  # less than a decade; what leaves the panel is beyond any use
            least = min(curves["exact test RMSE"][data].values())
            ax.set(yscale="linear", ylim=(0.9 * least, min(1.5, ax.get_ylim()[1])))
        if place < len(panels):
            ax.set_title(measure[0].upper() + measure[1:] + (", by time" if clock == "seconds" else ""))
        if place % len(panels) == 0:
            ax.set_ylabel(data, fontweight="bold")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


EXPERIMENT = Experiment(
    id="sgd-cg-convergence",
    title="SGD and conjugate gradients on their way to the posterior mean",
    reproduces=("Figure 4.9 (convergence of SGD and CG at two noise levels), section 4.4",),
    budgets={
        "quick": Config(rows=2_500, epochs=200, batch=128, dtype="float64"),
        "full": Config(rows=10_000, epochs=1_000, dtype="float64"),
        "thesis": Config(rows=None, epochs=7_500),
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows or "all", "solves": 2 * len(config.sets) * len(SOLVERS)},
)
