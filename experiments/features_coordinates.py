"""Stochastic dual descent with three estimates of the gradient ``(K + σ²) α − y``.

Random features replace ``K`` by ``Φ Φᵀ`` with fresh features, random coordinates keep ``r`` coordinates of the whole
gradient times ``n/r``, and the third keeps ``r`` coordinates of ``K α`` alone, ``(n/r) S Sᵀ K α − y + σ² α``. All are
unbiased, but only the second vanishes at the solution. Every step size is one column of the same loop.

Fresh features add ``(tr K / r) K`` to ``E (ΦΦᵀ)²``, so that in mean square a step is stable while
``β (λ_max(K) + tr K / r)`` is of order one: on this kernel up to ``βn`` of tens for ``r = 512``, far beyond the
published ``5·10⁻⁴``. What features cannot do is converge: their noise does not vanish at the solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import (
    MEASURES,
    Recorder,
    RegressionProblem,
    checkpoints,
    prepare,
    regression_problem,
)

FEATURES, COORDINATES, PARTIAL = METHODS = ("random features", "random coordinates", "coordinates of Kα only")


@dataclass(frozen=True)
class Config:
    """Sizes; steps are values of ``βn``, and ``averaging`` is ``χ``."""

    rows: int | None
    iterations: int = 100_000
    batch: int = 512
    averaging: float = 0.001
    momentum: float = 0.9
    feature_steps: tuple[float, ...] = (5e-4, 5e-3, 5e-2, 5e-1, 5.0, 50.0)
    coordinate_steps: tuple[float, ...] = (0.5, 5.0, 50.0)
    seed: int = 0


def estimators(
    problem: RegressionProblem, batch: int, generator: torch.Generator
) -> dict[str, Callable[[Tensor], Tensor]]:
    """The three estimates of the dual gradient, for all columns of ``α``."""
    K, X = problem.K.float(), problem.split.X_train
    y, noise, n = problem.split.y_train[:, None], problem.noise, problem.rows

    def random_features(alpha: Tensor) -> Tensor:
        features = problem.kernel.features(batch, generator=generator)(X)
        return features @ (features.mT @ alpha) - y + noise * alpha

    def random_coordinates(alpha: Tensor) -> Tensor:
        chosen = torch.randperm(n, generator=generator)[:batch]
        gradient = torch.zeros_like(alpha)
        gradient[chosen] = n / batch * (K[chosen] @ alpha - y[chosen] + noise * alpha[chosen])
        return gradient

    def coordinates_of_product(alpha: Tensor) -> Tensor:
        chosen = torch.randperm(n, generator=generator)[:batch]
        gradient = noise * alpha - y
        gradient[chosen] += n / batch * (K[chosen] @ alpha)
        return gradient

    return dict(zip(METHODS, (random_features, random_coordinates, coordinates_of_product), strict=True))


def run(config: Config, progress: Progress) -> Report:
    problem = regression_problem("pol", rows=config.rows, seed=config.seed)
    n = problem.rows
    record = Recorder(problem, checkpoints(config.iterations))
    generator = torch.Generator().manual_seed(config.seed)
    steps = {
        FEATURES: config.feature_steps,
        COORDINATES: config.coordinate_steps,
        PARTIAL: config.coordinate_steps,
    }
    for method, estimate in estimators(problem, config.batch, generator).items():
        beta = torch.tensor(steps[method]) / n
        alpha = torch.zeros(n, len(beta))
        velocity, average = torch.zeros_like(alpha), torch.zeros_like(alpha)
        for iteration in progress(range(1, config.iterations + 1), method):
            velocity = config.momentum * velocity - beta * estimate(alpha + config.momentum * velocity)
            alpha = alpha + velocity
            average = average.lerp(alpha, config.averaging)
            record(method, iteration, average)

    zero = problem.errors(torch.zeros(n))
    table = []
    for method in METHODS:
        for column, step in enumerate(steps[method]):
            final = record.final(method, column)
            stable = math.isfinite(final["K-norm²"]) and final["K²-norm²"] < float(zero["K²-norm²"])
            table.append({"gradient": method, "βn": step, "stable": stable} | final)
    largest = {m: max((r["βn"] for r in table if r["gradient"] == m and r["stable"]), default=0.0) for m in METHODS}
    best = {method: record.best(method) for method in METHODS}
    ends = {method: record.final(method, best[method]) for method in METHODS}
    facts = {
        "rows": n,
        "exact test RMSE": float(problem.rmse(problem.alpha)),
        "largest stable βn": largest,
        "drawn βn": {method: steps[method][column] for method, column in best.items()},
        "iterations": record.iterations,
    }
    return Report(table, claims(ends, largest), facts | record.chosen(best))


def claims(ends: dict[str, dict[str, float]], largest: dict[str, float]) -> list[Claim]:
    """Ends of the best step of each estimate, chosen by the K-norm; limits say what "much" and "worse" mean here."""
    over_features = {m: ends[COORDINATES][m] / ends[FEATURES][m] for m in MEASURES}
    over_partial = {m: ends[PARTIAL][m] / ends[COORDINATES][m] for m in MEASURES}
    return [
        at_least(
            "largest stable step, random coordinates over random features",
            measured=largest[COORDINATES] / largest[FEATURES] if largest[FEATURES] else math.inf,
            limit=100,
            published=50 / 5e-4,
        ),
        at_most(
            "K-norm², random coordinates over random features",
            measured=over_features["K-norm²"],
            limit=0.1,
            published="much stronger",
        ),
        at_most(
            "K²-norm², random coordinates over random features",
            measured=over_features["K²-norm²"],
            limit=0.1,
            published="much stronger",
        ),
        at_most(
            "test RMSE, random coordinates over random features",
            measured=over_features["test RMSE"],
            limit=1.0,
            published="much stronger",
        ),
        at_least(
            "K-norm², only Kα subsampled over the whole gradient",
            measured=over_partial["K-norm²"],
            limit=2.0,
            published="worse",
        ),
        at_least(
            "K²-norm², only Kα subsampled over the whole gradient",
            measured=over_partial["K²-norm²"],
            limit=2.0,
            published="worse",
        ),
    ]


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, axes = style.panels(3, width=4.4, height=4.0)
    prepare(axes, curves)
    for method, color in zip(METHODS, (style.ORANGE, style.BLUE, style.GREEN), strict=True):
        for ax, measure in zip(axes, MEASURES, strict=True):
            label = rf"{method}, $\beta n$ = {curves['drawn βn'][method]:g}"
            ax.plot(curves["iterations"], curves[method][measure], color=color, label=label)
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


EXPERIMENT = Experiment(
    id="features-coordinates",
    title="Random features and random coordinates in stochastic dual descent on pol",
    reproduces=("Figure 4.4 (random features against random coordinates), section 4.2.3",),
    budgets={
        "quick": Config(rows=4_000, iterations=10_000, batch=128, averaging=0.01),
        "full": Config(rows=None, iterations=40_000, averaging=0.0025),
        "thesis": Config(rows=None),
    },
    run=run,
    draw=draw,
    data=lambda config: ("pol",),
    sizes=lambda config: {"rows": config.rows or "all", "gradient_estimates": 3 * config.iterations},
)
