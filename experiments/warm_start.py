"""New rows arrive: epochs to condition on them from the posterior at hand, against a solve from nothing.

Mean and sampled functions of a posterior of ``rows`` rows are continued on ``new`` more (``Posterior.condition_on``)
and, for comparison, solved afresh on all rows, both to the same residual, with the published hyperparameters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import published_kernel, random_rows

TOLERANCE = 0.01


@dataclass(frozen=True)
class Config:
    """Sizes."""

    rows: int = 20_000
    new: int = 1_000
    samples: int = 16
    epochs: float = 200.0
    sets: tuple[str, ...] = ("protein", "keggdirected")
    seed: int = 0


def solvers(config: Config) -> dict[str, Any]:
    """Those with a state worth continuing."""
    common = {"epochs": config.epochs, "tolerance": TOLERANCE}
    return {
        "SketchAndProject": mt.solvers.SketchAndProject(**common),
        "SDD": mt.solvers.SDD(**common),
        "CG, Nyström and blocks": mt.solvers.CG(**common, preconditioner=mt.solvers.NystromBlocks()),
    }


def run(config: Config, progress: Progress) -> Report:
    """Every set and solver."""
    table = []
    for name in progress(config.sets, "sets"):
        chosen = {k: v for k, v in solvers(config).items() if not progress.lacks(f"{name} {k}")}
        for label, solver in progress(chosen.items(), "solvers"):
            part = progress.once(f"{name} {label}", lambda name=name, solver=solver: compare(config, name, solver))
            table.append({"set": name, "solver": label, **part})
    return Report(table, claims(table))


def compare(config: Config, name: str, solver: Any) -> dict[str, Any]:
    """Epochs and residuals of the first rows, of going on, and of starting afresh."""
    kernel, noise = published_kernel(name)
    split = random_rows(name, config.rows + config.new, config.seed)
    X, y = split.X_train, split.y_train
    process = mt.GaussianProcess(kernel, noise)
    generator = torch.Generator().manual_seed(config.seed)
    settings = {"num_samples": config.samples, "solver": solver, "generator": generator}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        first = process.condition(X[: config.rows], y[: config.rows], **settings)
        warm = first.condition_on(X[config.rows :], y[config.rows :], generator=generator)
        fresh = process.condition(X, y, **settings)
    return {
        "first_epochs": first.report.epochs,
        "warm_epochs": warm.report.epochs,
        "fresh_epochs": fresh.report.epochs,
        "warm_residual": warm.report.residual,
        "fresh_residual": fresh.report.residual,
        "ratio": warm.report.epochs / fresh.report.epochs,
    }


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """A third of the epochs."""
    return [
        at_most(
            f"{row['set']}, {row['solver']}: epochs over those of a fresh solve", measured=row["ratio"], limit=1 / 3
        )
        for row in table
    ]


def draw(record: Record) -> Figure:
    """Epochs, warm and fresh."""
    table = record["table"]
    figure, (ax,) = style.panels(1, width=max(6.0, 1.6 * len(table)), height=3.4)
    place = torch.arange(len(table))
    ax.bar(
        place - 0.2, [row["warm_epochs"] for row in table], 0.38, color=style.BLUE, label="from the posterior at hand"
    )
    ax.bar(place + 0.2, [row["fresh_epochs"] for row in table], 0.38, color=style.GRAY, label="from nothing")
    labels = [row["set"] + "\n" + row["solver"].replace(" and ", "\nand ") for row in table]
    ax.set_xticks(place.tolist(), labels, fontsize=8)
    ax.set(ylabel="epochs", title=f"{record['config']['new']:,} rows more than {record['config']['rows']:,}")
    ax.legend(frameon=False)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="warm-start",
    title="Conditioning on more rows from the posterior at hand",
    reproduces=("no figure of the thesis: section 4.1, continued",),
    budgets={
        "quick": replace(FULL, rows=5_000, new=250, sets=("protein",), epochs=100.0),
        "full": FULL,
        "thesis": FULL,
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows, "new": config.new, "samples": config.samples},
)
