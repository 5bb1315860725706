"""Large-scale Bayesian optimization by parallel Thompson sampling: the best value found, solver by solver.

The target is a draw from a Matérn-3/2 prior on the unit cube in eight dimensions, known to every method but for its
weights. All start from the same random inputs. At each step a method conditions on all that it has seen, draws as many
fresh posterior functions as a batch has inputs, and observes the target where each is largest. Solvers of the thesis
have its small budget: the passes over the kernel matrix that 15,000 steps of 512 rows are at 50,000 rows, and ten for
CG, as for ours. Inducing points are the KL-optimal ones among thinned rows, in place of SVGP's; random search observes
anywhere (thesis, section 4.5.2).
"""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least
from experiments.gp_methods import OURS
from experiments.harness import Experiment, Progress, Record, Report

RANDOM, INDUCING = "random search", "inducing points"


@dataclass(frozen=True)
class Config:
    """Sizes; ``passes`` are those of SDD and SGD, ``products`` those of CG."""

    dimension: int = 8
    lengthscales: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    start: int = 50_000
    batch: int = 1_000
    steps: int = 30
    passes: float = 150.0
    products: float = 10.0
    inducing: int = 1_024
    noise: float = 1e-3
    seeds: tuple[int, ...] = tuple(range(10))


def methods(config: Config) -> dict[str, dict[str, Any]]:
    """What each conditions with."""
    few, many = ({"epochs": epochs, "tolerance": 0.01} for epochs in (config.products, config.passes))
    return {
        OURS: {"solver": mt.solvers.CG(**few, preconditioner=mt.solvers.NystromBlocks())},
        "SDD": {"solver": mt.solvers.SDD(**many)},
        "SGD": {"solver": mt.solvers.SGD(**many)},
        "CG": {"solver": mt.solvers.CG(**few, preconditioner=mt.solvers.PivotedCholesky(100))},
        INDUCING: {"inducing": config.inducing},
        RANDOM: {},
    }


def search(config: Config, label: str, lengthscale: float, seed: int) -> dict[str, Any]:
    """The largest value of the target so far after every step, and the seconds it took to get there."""
    g = torch.Generator().manual_seed(seed)
    kernel = mt.kernels.Matern32(torch.full((config.dimension,), lengthscale)).requires_grad_(False)
    features = kernel.features(2_000, generator=g)
    weights = torch.randn(2_000, generator=g)
    gp, options = mt.GaussianProcess(kernel, config.noise), methods(config)[label]

    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([features(part) @ weights for part in x.split(4_096)])

    def observed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = target(x)
        return values, values + config.noise**0.5 * torch.randn(len(x), generator=g)

    X = torch.rand(config.start, config.dimension, generator=g)
    values, y = observed(X)
    best, seconds, residuals = [float(values.max())], [0.0], []
    for _ in range(config.steps):
        began = time.perf_counter()
        if label == RANDOM:
            x = torch.rand(config.batch, config.dimension, generator=g)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
                post = gp.condition(X, y, num_samples=config.batch, generator=g, **options)
            residuals.append(post.report.residual)
            x = mt.decisions.thompson(post, (0.0, 1.0), generator=g).inputs
        seconds.append(seconds[-1] + time.perf_counter() - began)
        values, more = observed(x)
        best.append(max(best[-1], float(values.max())))
        X, y = torch.cat([X, x]), torch.cat([y, more])
    return {"best": best, "seconds": seconds, "residual": max(residuals, default=None)}


def run(config: Config, progress: Progress) -> Report:
    """Every lengthscale, method and seed."""
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    for lengthscale in config.lengthscales:
        curves[str(lengthscale)] = {}
        for label in progress(methods(config), f"lengthscale {lengthscale}"):
            keys = {seed: f"{lengthscale} {label}, seed {seed}" for seed in config.seeds}
            found = [
                progress.once(key, lambda seed=seed, label=label, at=lengthscale: search(config, label, at, seed))
                for seed, key in keys.items()
                if not progress.lacks(key)
            ]
            if not found:
                continue
            steps = list(zip(*(part["best"] for part in found), strict=True))
            curves[str(lengthscale)][label] = {
                "best": [statistics.mean(values) for values in steps],
                "error": [statistics.stdev(v) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in steps],
                "seconds": [statistics.mean(v) for v in zip(*(part["seconds"] for part in found), strict=True)],
            }
            ends = [part["best"][-1] for part in found]
            worst = [part["residual"] for part in found if part["residual"] is not None]
            table.append(
                {
                    "lengthscale": lengthscale,
                    "method": label,
                    "seeds": len(found),
                    "start": statistics.mean(part["best"][0] for part in found),
                    "best": statistics.mean(ends),
                    "error": curves[str(lengthscale)][label]["error"][-1],
                    "seconds": curves[str(lengthscale)][label]["seconds"][-1],
                    "residual": max(worst, default=None),
                }
            )
    return Report(table, claims(table), curves)


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """Over all lengthscales: every method beats random search, and SDD and ours make the most progress."""

    def mean(label: str) -> float | None:
        values = [row["best"] for row in table if row["method"] == label]
        return statistics.mean(values) if len(values) == len({row["lengthscale"] for row in table}) else None

    ends = {label: mean(label) for label in (OURS, "SDD", "SGD", "CG", INDUCING, RANDOM)}
    pairs = [(label, RANDOM, None) for label in ends if label != RANDOM]
    pairs += [("SDD", rival, "SDD makes the most progress") for rival in ("SGD", "CG", INDUCING)]
    pairs += [(OURS, rival, None) for rival in ("SGD", "CG", INDUCING)]
    return [
        at_least(f"best value, {label} less {rival}", measured=more - less, limit=0.0, published=published)
        for label, rival, published in pairs
        if (more := ends[label]) is not None and (less := ends[rival]) is not None
    ]


def draw(record: Record) -> Figure:
    """The best value against steps, above seconds."""
    curves = record["curves"]
    figure, axes = style.panels(len(curves), 2, width=3.2, height=3.0)
    for column, (lengthscale, lines) in enumerate(curves.items()):
        above, below = axes[column], axes[len(curves) + column]
        for color, (label, line) in zip(style.COLORS, lines.items(), strict=False):
            style.band(above, range(len(line["best"])), line["best"], line["error"], color=color, label=label)
            if label != RANDOM:
                below.plot(line["seconds"], line["best"], color=color)
        above.set(title=f"ℓ = {lengthscale}", xlabel="step")
        below.set(xlabel="seconds")
        if column == 0:
            above.set_ylabel("best value")
            below.set_ylabel("best value")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


THESIS = Config()

EXPERIMENT = Experiment(
    id="bayesian-optimization",
    title="The maximum of an unknown function by parallel Thompson sampling",
    reproduces=("Figure 4.11 (large-scale Bayesian optimization), section 4.5.2",),
    budgets={
        "quick": replace(
            THESIS, lengthscales=(0.2, 0.4), start=1_500, batch=50, steps=4, inducing=256, seeds=(0, 1),
        ),
        "full": replace(THESIS, lengthscales=(0.1, 0.3, 0.5), start=10_000, batch=200, steps=8, seeds=(0, 1, 2)),
        "thesis": THESIS,
    },
    run=run,
    draw=draw,
    sizes=lambda config: {
        "searches": len(config.lengthscales) * len(methods(config)) * len(config.seeds),
        "rows at the end": config.start + config.steps * config.batch,
    },
)  # fmt: skip
