"""Full-batch gradient descent on the primal and on the dual objective, from zero, with the same step sizes.

Both are linear: with ``K = Q Λ Qᵀ`` the error of coordinate ``i`` in the eigenbasis after ``t`` iterations is
``(1 − β h_i)ᵗ`` times what it was, ``h = λ (λ + σ²)`` for the primal and ``h = λ + σ²`` for the dual. The curves are
these powers, exact at any iteration; a plain loop over matrix products measures the largest stable steps and checks
the powers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import (
    MEASURES,
    RegressionProblem,
    checkpoints,
    prepare,
    published_kernel,
    random_rows,
    regression_problem,
    share,
)

METHODS = ("primal", "dual")


@dataclass(frozen=True)
class Config:
    """Sizes; ``steps`` are values of ``βn``."""

    rows: int | None
    iterations: int = 100_000
    steps: tuple[float, ...] = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0)
    equal_step: float = 0.1
    early: int = 10_000
    trial: int = 100
    bisections: int = 12
    seed: int = 0


def gradient(problem: RegressionProblem, method: str) -> Callable[[Tensor], Tensor]:
    """``(K + σ²) α − y``, and ``K`` times that for the primal."""
    K, noise, y = problem.K, problem.noise, problem.targets

    def dual(alpha: Tensor) -> Tensor:
        return K @ alpha + noise * alpha - y

    def primal(alpha: Tensor) -> Tensor:
        return K @ dual(alpha)

    return dual if method == "dual" else primal


def descend(gradient: Callable[[Tensor], Tensor], start: Tensor, step: float, iterations: int) -> Tensor:
    alpha = start.clone()
    for _ in range(iterations):
        alpha -= step * gradient(alpha)
    return alpha


def largest_stable(problem: RegressionProblem, method: str, config: Config, beyond: float) -> float:
    """The largest ``βn`` below ``beyond`` from which ``trial`` iterations shrink a random error, by bisection."""
    low, high = 1e-3 * beyond, beyond
    noise = torch.randn(problem.rows, dtype=torch.float64, generator=torch.Generator().manual_seed(config.seed))
    start = problem.alpha + noise
    for _ in range(config.bisections):
        middle = math.sqrt(low * high)
        end = descend(gradient(problem, method), start, middle / problem.rows, config.trial)
        if (end - problem.alpha).norm() < noise.norm():
            low = middle
        else:
            high = middle
    return low


def largest_eigenvalue_of_all_rows(seed: int) -> tuple[float, int]:
    """``λ₁`` of the kernel matrix of every training row by power iteration, and their number."""
    split = random_rows("pol", None, seed)
    K = mt.operators.KernelOperator(published_kernel("pol")[0], split.X_train)
    vector = torch.ones(len(split.y_train))
    for _ in range(8):
        vector = K @ (vector / vector.norm())
    return float(vector.norm()), len(vector)


def run(config: Config, progress: Progress) -> Report:
    problem = regression_problem("pol", rows=config.rows, seed=config.seed)
    n, noise = problem.rows, problem.noise
    progress.note(f"eigendecomposition of {n} rows")
    eigenvalues, vectors = torch.linalg.eigh(problem.K)
    eigenvalues = eigenvalues.clamp_min(0.0)
    curvature = {"dual": eigenvalues + noise, "primal": eigenvalues * (eigenvalues + noise)}
    start = -(vectors.mT @ problem.alpha)
    pulled, exact = problem.K_test @ vectors, problem.K_test @ problem.alpha
    iterations = checkpoints(config.iterations)

    def errors_after(t: int, method: str, step: float) -> tuple[float, float, float]:
        error = (1.0 - step / n * curvature[method]) ** t * start
        prediction = exact + pulled @ error
        rmse = (problem.split.y_test - prediction).square().mean().sqrt()
        return (
            float((eigenvalues * error.square()).sum()),
            float((eigenvalues * error).square().sum()),
            float(rmse),
        )

    curves: dict[str, dict[str, dict[str, list[float]]]] = {method: {} for method in METHODS}
    table = []
    for method in METHODS:
        for step in progress(config.steps, method):
            along = list(zip(*(errors_after(t, method, step) for t in iterations), strict=True))
            curves[method][f"{step:g}"] = {m: list(values) for m, values in zip(MEASURES, along, strict=True)}
            last = {measure: values[-1] for measure, values in zip(MEASURES, along, strict=True)}
            stable = step / n * float(curvature[method].max()) < 2.0
            table.append({"gradient": method, "βn": step, "stable": stable} | last)

    limit = {method: 2.0 * n / float(curvature[method].max()) for method in METHODS}
    measured = {method: largest_stable(problem, method, config, 8.0 * limit[method]) for method in METHODS}
    everything, total = largest_eigenvalue_of_all_rows(config.seed)
    grid = {
        "dual": max(s for s in config.steps if s / total * (everything + noise) < 2.0),
        "primal": max(s for s in config.steps if s / total * everything * (everything + noise) < 2.0),
    }
    step = f"{config.equal_step:g}"
    primal, dual = curves["primal"][step], curves["dual"][step]
    looped = descend(gradient(problem, "dual"), torch.zeros(n, dtype=torch.float64), config.equal_step / n, 200)
    powers = problem.alpha + vectors @ ((1.0 - config.equal_step / n * curvature["dual"]) ** 200 * start)
    early = sum(t <= config.early for t in iterations)
    best = {m: min(r["test RMSE"] for r in table if r["gradient"] == m and r["stable"]) for m in METHODS}
    crossing = {
        measure: next((t for t, p, d in zip(iterations, primal[measure], dual[measure], strict=True) if d < p), None)
        for measure in MEASURES
    }
    facts = {
        "rows": n,
        "exact test RMSE": float(problem.rmse(problem.alpha)),
        "largest eigenvalue": float(eigenvalues[-1]),
        "largest eigenvalue of all rows": everything,
        "largest stable βn, measured": measured,
        "largest stable βn, theory": limit,
        "largest stable βn of the grid, all rows": grid,
        f"first recorded iteration with the dual ahead, βn = {step}": crossing,
    }
    claims = [
        at_least(
            "largest stable step of the grid at all rows, dual over primal",
            measured=grid["dual"] / grid["primal"],
            limit=500,
            published="as much as 500×",
        ),
        within(
            "measured ratio of the largest stable steps over the theoretical, λ₁",
            measured=measured["dual"] / measured["primal"] / (limit["dual"] / limit["primal"]),
            target=1.0,
            tolerance=0.1,
        ),
        at_most(
            "test RMSE in the end, best stable dual over best stable primal",
            measured=best["dual"] / best["primal"],
            limit=1.0,
            published="a better solution",
        ),
        at_least(
            f"share of the recorded iterations up to {config.early} with the dual ahead in the K-norm, βn = {step}",
            measured=share(dual["K-norm²"][:early], primal["K-norm²"][:early]),
            limit=0.9,
            published="dual better up to 70k",
        ),
        at_least(
            f"share of the recorded iterations up to {config.early} with the primal ahead in the K²-norm, βn = {step}",
            measured=share(primal["K²-norm²"][:early], dual["K²-norm²"][:early]),
            limit=0.9,
            published="primal better up to 70k",
        ),
        at_most(
            f"K²-norm² in the end, dual over primal, βn = {step}",
            measured=dual["K²-norm²"][-1] / primal["K²-norm²"][-1],
            limit=1.0,
            published="dual better after 70k",
        ),
        at_most(
            "relative difference of the eigenbasis to the plain loop after 200 iterations",
            measured=float((looped - powers).norm() / looped.norm()),
            limit=1e-8,
        ),
    ]
    return Report(table, claims, facts | {"iterations": iterations} | curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, axes = style.panels(3, width=4.4, height=4.0)
    prepare(axes, curves)
    stable = {(row["gradient"], f"{row['βn']:g}") for row in record["table"] if row["stable"]}
    shades = {"primal": style.ORANGE, "dual": style.BLUE}
    for method in METHODS:
        drawn = [step for step in curves[method] if (method, step) in stable]
        for place, step in enumerate(drawn):
            fade = 0.35 + 0.65 * (place + 1) / len(drawn)
            for ax, measure in zip(axes, MEASURES, strict=True):
                ax.plot(
                    curves["iterations"],
                    curves[method][step][measure],
                    color=shades[method],
                    alpha=fade,
                    linewidth=1.0 + 1.2 * fade,
                    label=rf"{method}, $\beta n$ = {step}",
                )
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


EXPERIMENT = Experiment(
    id="primal-dual",
    title="Primal and dual gradient descent on pol",
    reproduces=("Figure 4.3 (primal against dual gradient descent), section 4.2.3",),
    budgets={"quick": Config(rows=3_000), "full": Config(rows=8_000), "thesis": Config(rows=None)},
    run=run,
    draw=draw,
    data=lambda config: ("pol",),
    sizes=lambda config: {"rows": config.rows or "all", "gradient_evaluations": 2 * config.trial * config.bisections},
)
