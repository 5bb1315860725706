"""Variance starvation: a posterior made of random features alone, beside pathwise conditioning with the same features.

Observations crowd one stretch of inputs. Inference in a linear model of ``d`` random features spends them on the data:
its mean runs off beyond them, sure of itself. Pathwise conditioning uses the same features for prior functions only and
updates them with the kernel itself, ``f + k(·, X)(K + σ²I)⁻¹(Y − f(X) − ε)``. Matérn-3/2, lengthscale 1, noise variance
0.01; the observed function is drawn from the prior. Kernel, stretch and noise were chosen among about twenty settings,
on three other seeds, so that the effect is plain: smooth targets that fit the kernel well showed little of it. Errors
are measured outside the data, at up to five lengthscales.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import grid
from matheron.linear.exact import Primal

EXACT, PATHWISE = "exact Gaussian process", "pathwise"


@dataclass(frozen=True)
class Config:
    """Sizes; the first number of features is the one drawn."""

    rows: int = 5_000
    features: tuple[int, ...] = (500, 100, 2_000)
    samples: int = 512
    inputs: int = 161
    half_width: float = 3.0
    reach: float = 8.0
    noise: float = 0.01
    truth_features: int = 10_000
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    generator = torch.Generator().manual_seed(config.seed)
    k = mt.kernels.Matern32(torch.ones(1, dtype=torch.float64)).requires_grad_(False)
    X = config.half_width * (2.0 * torch.rand(config.rows, 1, dtype=torch.float64, generator=generator) - 1.0)
    x = grid(-config.reach, config.reach, config.inputs)
    truth = mt.kernels.sample_prior(k, torch.cat([X, x]), 1, generator, config.truth_features)[0]
    y = truth[: config.rows] + config.noise**0.5 * normal(config.rows, generator=generator)

    maps = {num: k.features(num, generator=generator) for num in config.features}
    drawn = maps[config.features[0]]
    weights = normal(drawn.num, config.samples, generator=generator)
    epsilon = config.noise**0.5 * normal(config.rows, config.samples, generator=generator)
    cross = k(x, X)
    system = mt.operators.KernelOperator(k, X) + mt.operators.Diagonal(torch.tensor(config.noise).double())
    targets = torch.cat([y[:, None], cross.mT, drawn(X) @ weights + epsilon], dim=1)
    solution = mt.solvers.Cholesky().solve(system, targets, generator=generator).solution
    mean, reduction, update = (cross @ solution).split([1, config.inputs, config.samples], dim=1)
    mean, paths = mean[:, 0], mean + drawn(x) @ weights - update
    moments = {
        EXACT: (mean, (k.diagonal(x) - reduction.diagonal()).clamp(min=0.0).sqrt()),
        PATHWISE: (paths.mean(1), paths.std(1)),
    }
    dimension = {}
    for num, phi in maps.items():
        model = Primal(phi(X), A=1.0, B=1.0 / config.noise)
        functions = model.functions(phi(x), y)
        moments[name(num)] = (functions.mean, functions.variance.sqrt())
        dimension[name(num)] = float(model.effective_dimension())

    outside = (x[:, 0].abs() > config.half_width) & (x[:, 0].abs() < config.half_width + 5.0)
    exact_std = moments[EXACT][1][outside]
    table = []
    for method, (method_mean, method_std) in moments.items():
        difference = (method_mean - mean)[outside]
        table.append(
            {
                "posterior": method,
                "RMS error of the mean outside": float(difference.square().mean().sqrt()),
                "largest error in its own std": float((difference / method_std[outside]).abs().max()),
                "least std over exact": float((method_std[outside] / exact_std).min()),
                "mean std over exact": float((method_std[outside] / exact_std).mean()),
                "effective dimension": dimension.get(method),
            }
        )
    rows = {row["posterior"]: row for row in table}
    starved, pathwise = rows[name(config.features[0])], rows[PATHWISE]
    error = "RMS error of the mean outside"
    claims = [
        at_least(
            "error of the mean outside the data, features over pathwise",
            measured=starved[error] / pathwise[error],
            limit=5.0,
            published="arbitrary extrapolation",
        ),
        at_least(
            "largest error of the features' mean, in their own standard deviations",
            measured=starved["largest error in its own std"],
            limit=3.0,
            published="arbitrary extrapolation",
        ),
        at_most(
            "the same, pathwise",
            measured=pathwise["largest error in its own std"],
            limit=0.3,
            published="does not happen",
        ),
        at_most(
            "least standard deviation over the exact one, features",
            measured=starved["least std over exact"],
            limit=0.7,
            published="reduced uncertainty",
        ),
        at_least(
            "least standard deviation over the exact one, pathwise",
            measured=pathwise["least std over exact"],
            limit=0.8,
            published="does not happen",
        ),
        at_most(
            "mean standard deviation over the exact one, features",
            measured=starved["mean std over exact"],
            limit=0.95,
            published="reduced uncertainty",
        ),
        at_most(
            f"error of the mean, {max(config.features):,} features over {config.features[0]}",
            measured=rows[name(max(config.features))][error] / starved[error],
            limit=0.7,
            published="many features needed",
        ),
    ]
    shown = torch.randperm(config.rows, generator=generator)[:400]
    curves = {
        "x": x[:, 0],
        "data": {"x": X[shown, 0], "y": y[shown]},
        "moments": {method: {"mean": m, "std": s} for method, (m, s) in moments.items()},
        "paths": paths[:, :3].mT,
        "features": config.features[0],
        "half width": config.half_width,
    }
    return Report(table, claims, curves)


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def name(num: int) -> str:
    """Of the posterior of a linear model with ``num`` features."""
    return f"{num:,} random features"


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (left, right) = style.panels(2, width=5.6, height=3.9)
    exact = curves["moments"][EXACT]
    starved = name(curves["features"])
    for ax, method, color in ((left, starved, style.ORANGE), (right, PATHWISE, style.GREEN)):
        data = curves["data"]
        ax.plot(
            data["x"], data["y"], ".", color=style.GRAY, alpha=0.5, markersize=3, zorder=1, label="some of the data"
        )
        for moments, shade, label in (
            (exact, style.BLUE, f"{EXACT} ± 1 std"),
            (curves["moments"][method], color, f"{method} ± 1 std"),
        ):
            style.band(ax, curves["x"], moments["mean"], moments["std"], color=shade, label=label)
        ax.set(xlabel="x", xlim=(curves["x"][0], curves["x"][-1]))
        ax.legend(loc="upper left", fontsize=8.5)
    for path in curves["paths"]:
        right.plot(curves["x"], path, color=style.GREEN, linewidth=0.8, alpha=0.7)
    right.plot([], [], color=style.GREEN, linewidth=0.8, label="three of its functions")
    right.legend(loc="upper left", fontsize=8.5)
    left.set_title(f"Inference with {curves['features']} features")
    right.set_title("The same features, conditioned pathwise")
    seen = [curves["moments"][m]["mean"] for m in (EXACT, starved)] + curves["paths"]
    low, high = min(map(min, seen)) - 0.5, max(map(max, seen)) + 2.5
    for ax in (left, right):
        ax.set_ylim(low, high)
    return figure


EXPERIMENT = Experiment(
    id="variance-starvation",
    title="Variance starvation of random features, and pathwise conditioning without it",
    reproduces=("Figure 2.6 (variance starvation), section 2.2.4",),
    budgets={"quick": Config(), "full": Config(samples=2_048), "thesis": Config(samples=2_048)},
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "features": config.features[0], "samples": config.samples},
)
