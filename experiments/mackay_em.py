"""Learning a prior precision by EM: MacKay's update against two bounds on the evidence, and what its samples estimate.

The tangent model of a small network with layer norm on a toy set, with an isotropic prior and a known noise. The four
updates of the M-step are exact; then the effective dimension is estimated from a few posterior samples, in function
space and in weight space, many times over; last, predictive deviations before and after EM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_network import toy_problem
from matheron.linear.bounds import fixed_mean_bound, precision_path
from matheron.linear.exact import Dual, Primal
from matheron.networks import JacobianOperator, TangentModel

UPDATES = {"mackay": "MacKay's update", "bound": "bound M", "elbo": "decoupled ELBO", "evidence": "evidence"}
SETTLED = 0.05
"""An update has converged where the precision is within this of its limit, relatively."""


@dataclass(frozen=True)
class Config:
    """Sizes."""

    data: str = "matern_1d"
    width: int = 20
    training_steps: int = 3_000
    noise: float = 0.05
    starts: tuple[float, ...] = (500.0, 5.0)
    steps: int = 400
    samples: int = 8
    repeats: int = 500
    grid: int = 60
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    """Exact paths, estimators, predictions."""
    problem = toy_problem(config.data, config.width, config.training_steps, config.seed)
    tangent = TangentModel(problem.model)
    Phi = JacobianOperator(tangent, problem.X).dense()
    offset = tangent.predict(problem.X).flatten() - Phi @ tangent.weights
    Y, b = problem.y.flatten() - offset, 1.0 / config.noise
    optimum = precision_path(Phi, b, Y, config.starts[0], 1, "evidence")[-1]
    paths = {
        f"{start:g}": {
            update: precision_path(Phi, b, Y, start, config.steps if update == "elbo" else 40, update)  # type: ignore[arg-type]
            for update in UPDATES
        }
        for start in progress(config.starts, "starts")
    }
    table: list[dict[str, Any]] = [
        {"start": float(start), "update": update, "steps_to_converge": steps_to(path, optimum), "ends_at": path[-1]}
        for start, found in paths.items()
        for update, path in found.items()
    ]
    estimates = effective_dimensions(Phi, b, optimum, config)
    for name in ("function", "weight"):
        values = torch.tensor(estimates[name])
        table.append({"estimator": name, "mean": float(values.mean()), "variance": float(values.var())})
    deviations = predictions(problem, tangent, Phi, Y, b, {"before": config.starts[1] / 1e3, "after": optimum})
    curves = {
        "paths": paths,
        "optimum": optimum,
        "evidence": evidence_curves(Phi, b, Y, config, optimum),
        "estimates": estimates,
        "predictions": deviations,
    }
    table.append({"weights": Phi.shape[1], "rows": len(Y), "effective_dimension": estimates["exact"]})
    return Report(table, claims(table, deviations), curves)


def steps_to(path: list[float], limit: float) -> int | None:
    """The first step from which on the precision stays near its limit."""
    near = [abs(value / limit - 1.0) <= SETTLED for value in path]
    if not near[-1]:
        return None
    return len(near) - next((place for place, ok in enumerate(reversed(near)) if not ok), len(near))


def effective_dimensions(Phi: torch.Tensor, b: float, a: float, config: Config) -> dict[str, Any]:
    """Both estimators from ``samples`` exact posterior samples, ``repeats`` times."""
    model = Primal(Phi, a, b)
    generator = torch.Generator().manual_seed(config.seed)
    root = torch.linalg.cholesky(model.covariance)
    found: dict[str, Any] = {"function": [], "weight": [], "exact": float(model.effective_dimension())}
    for _ in range(config.repeats):
        draws = torch.randn(config.samples, len(root), generator=generator, dtype=torch.float64) @ root.mT
        found["function"].append(float(b * (draws @ Phi.mT).square().sum(1).mean()))
        found["weight"].append(float(Phi.shape[1] - a * draws.square().sum(1).mean()))
    return found


def evidence_curves(Phi: torch.Tensor, b: float, Y: torch.Tensor, config: Config, optimum: float) -> dict[str, Any]:
    """The log evidence, and 𝓜 at the mode of the first start, against the precision."""
    grid = torch.logspace(math.log10(optimum) - 2.5, math.log10(config.starts[0]) + 0.5, config.grid).tolist()
    mode = Primal(Phi, config.starts[0], b).weights(Y).mean
    return {
        "precision": grid,
        "evidence": [float(Dual(Phi @ Phi.mT / a, b).log_evidence(Y)) for a in grid],
        "bound": [float(fixed_mean_bound(Primal(Phi, a, b), mode, Y)) for a in grid],
    }


def predictions(
    problem: Any, tangent: TangentModel, Phi: torch.Tensor, Y: torch.Tensor, b: float, precisions: dict[str, float]
) -> dict[str, Any]:
    """Mean and deviation of the function on a grid around the data."""
    low, high = float(problem.X.min()), float(problem.X.max())
    x = torch.linspace(low - 1.0, high + 1.0, 200, dtype=torch.float64)[:, None]
    J = JacobianOperator(tangent, x).dense()
    found: dict[str, Any] = {
        "x": x.flatten(),
        "mean": tangent.predict(x).flatten(),
        "X": problem.X.flatten(),
        "y": problem.y.flatten(),
    }
    for name, a in precisions.items():
        covariance = Primal(Phi, a, b).covariance
        found[name] = ((J @ covariance) * J).sum(1).clamp(min=0.0).sqrt()
    return found


def claims(table: list[dict[str, Any]], deviations: dict[str, Any]) -> list[Claim]:
    """Fewest steps for MacKay's update; less variance in function space; error bars no wider than the targets."""
    steps = {(r["start"], r["update"]): r["steps_to_converge"] or math.inf for r in table if "update" in r}
    variance = {r["estimator"]: r["variance"] for r in table if "estimator" in r}
    first, second = sorted({start for start, _ in steps}, reverse=True)
    inside = (deviations["x"] >= deviations["X"].min()) & (deviations["x"] <= deviations["X"].max())
    return [
        at_most("steps of MacKay's update from above", measured=steps[first, "mackay"], limit=5, published=2),
        at_most("steps of MacKay's update from below", measured=steps[second, "mackay"], limit=10),
        at_least(
            "steps of 𝓜 over MacKay's, from above", measured=steps[first, "bound"] / steps[first, "mackay"], limit=1,
            published="5 / 2",
        ),
        at_least(
            "steps of the ELBO over MacKay's, from above", measured=steps[first, "elbo"] / steps[first, "mackay"],
            limit=5, published="100 / 2",
        ),
        at_least(
            "variance of the estimator in weight space over function space",
            measured=variance["weight"] / variance["function"], limit=5, published="654 / 9.2",
        ),
        at_most(
            "mean deviation inside the data after EM, in deviations of the targets",
            measured=float(deviations["after"][inside].mean()), limit=0.5,
        ),
    ]  # fmt: skip


def draw(record: Record) -> Figure:
    """Evidence and bound, paths, estimators, predictions."""
    curves = record["curves"]
    figure, axes = style.panels(4, width=3.6, height=3.4)
    left, paths, estimators, right = axes
    evidence = curves["evidence"]
    for key, color, label in (
        ("evidence", style.INK, "log evidence"),
        ("bound", style.BLUE, "bound M"),
    ):
        left.plot(evidence["precision"], evidence[key], color=color, label=label)
    left.axvline(curves["optimum"], color=style.GREEN, linestyle="--", label="optimum")
    top = max(evidence["evidence"])
    left.set(xscale="log", title="Evidence", xlabel="prior precision", ylim=(top - 150, top + 15))
    left.legend(frameon=False)
    first = next(iter(curves["paths"]))
    for color, (update, path) in zip(style.COLORS, curves["paths"][first].items(), strict=False):
        paths.plot(range(1, len(path) + 1), path, "o-", ms=3, color=color, label=UPDATES[update])
    paths.set(xscale="log", yscale="log", title="EM steps", xlabel="step, from 1", ylabel="prior precision")
    paths.legend(frameon=False)
    for name, color in (("weight", style.ORANGE), ("function", style.BLUE)):
        estimators.hist(curves["estimates"][name], bins=40, density=True, color=color, alpha=0.6, label=f"{name} space")
    estimators.axvline(curves["estimates"]["exact"], color=style.INK, label="exact")
    estimators.set(title="Effective dimension", xlabel=f"from {record['config']['samples']} samples")
    estimators.legend(frameon=False)
    shown = {key: torch.tensor(value) for key, value in curves["predictions"].items()}
    for name, color in (("before", style.ORANGE), ("after", style.BLUE)):
        low, high = shown["mean"] - 2 * shown[name], shown["mean"] + 2 * shown[name]
        right.fill_between(shown["x"], low, high, color=color, alpha=0.3, label=f"{name} EM")
    right.plot(shown["x"], shown["mean"], color=style.INK)
    right.scatter(shown["X"], shown["y"], s=5, color=style.GRAY)
    right.set(title="Two deviations", xlabel="x", ylim=(-5, 5))
    right.legend(frameon=False)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="mackay-em",
    title="MacKay's update, its rivals, and the effective dimension from samples",
    reproduces=(
        "Figure 6.1 (evidence and bounds)",
        "Figure 6.2 (M-steps)",
        "Figure 6.3 (estimators of the effective dimension)",
        "Figure 6.5 (before and after EM)",
    ),
    budgets={
        "quick": replace(FULL, width=16, training_steps=1_500, repeats=200, steps=300),
        "full": FULL,
        "thesis": replace(FULL, width=50),
    },
    run=run,
    draw=draw,
    data=lambda config: (config.data,),
    sizes=lambda config: {"width": config.width, "samples": config.samples, "repeats": config.repeats},
)
