"""Conjugate gradients in two regimes, without a preconditioner: how far they are after as many products.

The budget is what conjugate gradients need on the grid for a relative residual of 0.01 in the mean and in every
function. Where data crowd they have the same, and then ten times that. Errors are 2-Wasserstein distances of the
marginals to those of exact weights for the same functions. One iteration is one product with the kernel matrix; the
answer is the iterate with the smallest residual so far, which is zero until the first that is better.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.two_regimes import INFILL, LARGE, NOISE, REGIMES, Problem, draw_posterior, problem

TOLERANCE = 0.01
DTYPES = ("float32", "float64")
COLORS = {INFILL: style.BLUE, LARGE: style.ORANGE}


@dataclass(frozen=True)
class Config:
    """Sizes."""

    rows: int = 10_000
    samples: int = 2_000
    products: int = 300
    seed: int = 0


def trace(setting: Problem, dtype: str, products: int) -> list[dict[str, Any]]:
    """Residual, errors and moments after every iteration."""
    moments = []

    def measure(solution: Tensor) -> dict[str, float]:
        found = setting.moments(solution)
        moments.append(found)
        distance = found.distance(setting.exact_functions)
        return {"RMS W2": float(distance.square().mean().sqrt()), "largest W2": float(distance.max())}

    kind = getattr(torch, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        solver = mt.solvers.CG(epochs=products, tolerance=1e-12)
        result = solver.solve(setting.system(kind), setting.targets.to(kind), monitor=measure)
    return [record | {"moments": found} for record, found in zip(result.trace, moments, strict=True)]


def needed(along: list[dict[str, Any]], residual: float) -> int | None:
    """Products until the residual is this small."""
    return next((round(record["epochs"]) for record in along if record["estimate"] <= residual), None)


def after(along: list[dict[str, Any]], products: int) -> dict[str, Any]:
    """What stands after so many products."""
    return max((record for record in along if record["epochs"] <= products + 0.5), key=lambda record: record["epochs"])


def run(config: Config, progress: Progress) -> Report:
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    traces = {}
    for regime in progress(REGIMES, "regimes"):
        setting = problem(regime, config.rows, config.samples, config.seed)
        curves[regime] = setting.curves()
        condition = condition_number(setting)
        for dtype in DTYPES:
            along = traces[regime, dtype] = trace(setting, dtype, config.products)
            table.append(
                {
                    "regime": regime,
                    "dtype": dtype,
                    "rows": config.rows,
                    "condition number": condition,
                    **{f"products to a residual of {r:g}": needed(along, r) for r in (0.1, 0.01, 1e-4)},
                }
            )
    budget = needed(traces[LARGE, "float32"], TOLERANCE) or config.products
    for row in table:
        along = traces[row["regime"], row["dtype"]]
        for label, products in (("at the budget", budget), ("at ten times it", 10 * budget)):
            stop = after(along, products)
            row |= {f"RMS W2 {label}": stop["RMS W2"], f"largest W2 {label}": stop["largest W2"]}
        if row["dtype"] == "float32":
            curves[row["regime"]] |= {
                "CG": after(along, budget)["moments"].curve(),
                "products": [record["epochs"] for record in along],
                "RMS W2": [record["RMS W2"] for record in along],
                "residual": [record["estimate"] for record in along],
                "budget": budget,
            }
    return Report(table, claims(table, budget), curves)


def condition_number(setting: Problem) -> float:
    """``(λ₁ + σ²) / σ²``, with ``λ₁`` by power iteration; the least eigenvalue of ``K`` is next to nothing."""
    K = mt.operators.KernelOperator(setting.kernel, setting.X)
    vector = setting.y[:, None].abs()
    for _ in range(50):
        vector = K @ (vector / vector.norm())
    return (float(vector.norm()) + NOISE) / NOISE


def claims(table: list[dict[str, Any]], budget: int) -> list[Claim]:
    """One regime converges within the budget and the other does not; more compute mends it."""
    rows = {(row["regime"], row["dtype"]): row for row in table}
    crowded, spread = rows[INFILL, "float32"], rows[LARGE, "float32"]
    return [
        at_least(
            "condition number, infill over large domain",
            measured=crowded["condition number"] / spread["condition number"],
            limit=10.0,
            published="very ill-conditioned against better conditioned",
        ),
        at_most(
            f"large domain: largest W2 after {budget} products",
            measured=spread["largest W2 at the budget"],
            limit=0.05,
            published="recovers the exact solution",
        ),
        at_least(
            f"infill: largest W2 after {budget} products",
            measured=crowded["largest W2 at the budget"],
            limit=0.3,
            published="significant errors if stopped too early",
        ),
        at_least(
            "RMS W2 at the budget, infill over large domain",
            measured=crowded["RMS W2 at the budget"] / spread["RMS W2 at the budget"],
            limit=10.0,
            published="prevented from converging",
        ),
        at_most(
            "infill: largest W2 after ten times as many",
            measured=crowded["largest W2 at ten times it"],
            limit=0.05,
            published="converges with more compute",
        ),
        at_least(
            "products to a residual of 0.01, infill over large domain",
            measured=(crowded["products to a residual of 0.01"] or float("inf")) / budget,
            limit=2.0,
            published="slower where ill-conditioned",
        ),
    ]


def draw(record: Record) -> Figure:
    figure, (left, middle, right) = style.panels(3, width=4.9, height=3.7)
    for ax, regime in zip((left, middle), REGIMES, strict=True):
        curves = record["curves"][regime]
        title = f"{regime.capitalize()}: CG after {curves['budget']} products"
        draw_posterior(ax, curves, curves["CG"], color=COLORS[regime], label="CG", title=title)
        right.plot(curves["products"], curves["RMS W2"], color=COLORS[regime], label=f"{regime}, W2")
        right.plot(
            curves["products"], curves["residual"], color=COLORS[regime], linestyle=":", label=f"{regime}, residual"
        )
    right.axvline(curves["budget"], ymin=0.25, color=style.GRAY, linewidth=1.0, label=f"{curves['budget']} products")
    right.set(title="Errors by product", xscale="log", yscale="log", xlabel="products with the kernel matrix")
    right.set_ylim(bottom=1e-14)
    right.legend(loc="lower left", ncols=2, fontsize=8)
    return figure


WHOLE = Config()

EXPERIMENT = Experiment(
    id="cg-regimes",
    title="Conjugate gradients where data crowd and where they spread",
    reproduces=("Figure 3.4 (conjugate gradients in two regimes), section 3.3", "Figure 4.1, its CG"),
    budgets={
        "quick": Config(rows=5_000, samples=32, products=200),
        "full": replace(WHOLE, samples=256),
        "thesis": WHOLE,
    },
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "samples": config.samples, "solves": 4},
)
