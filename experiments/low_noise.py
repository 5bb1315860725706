"""Resilience to ill conditioning: test RMSE of the posterior mean at the published noise and at noise variance 10⁻⁶.

The published table has CG fall apart at low noise and SGD unmoved (thesis §4.4). Ours combines the iterates of CG.
SDD, SGD and CG may take ``steps`` batches of 512 rows, newer solvers ``epochs``.
"""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_most
from experiments.gp_methods import solvers
from experiments.harness import Experiment, Progress, Record, Report
from experiments.uci_regression import SETS, make_task

LOW = 1e-6
PUBLISHED = {
    "SGD": {"published": (0.13, 0.38, 0.11, 0.51, 0.12), "low": (0.13, 0.38, 0.11, 0.51, 0.12)},
    "CG": {"published": (0.08, 0.35, 0.04, 0.50, 0.08), "low": (0.16, 0.68, 0.05, 3.03, 9.79)},
}
"""Table 4.2 of the thesis, in the order of ``SETS``."""


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most."""

    rows: int | None
    sets: tuple[str, ...] = SETS
    splits: int = 1
    epochs: float = 60.0
    steps: int = 20_000
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    """Every set, split, noise and solver."""
    runs = []
    cases = list(product(config.sets, range(config.splits), ("published", "low"), solvers(config.epochs)))
    for case in progress([case for case in cases if not progress.lacks(" ".join(map(str, case)))], "means"):
        part = progress.once(" ".join(map(str, case)), lambda case=case: measure(config, *case))
        runs.append(dict(zip(("set", "split", "noise", "solver"), case, strict=True)) | part)
    table = summary(runs)
    return Report(table, claims(table), {"runs": runs})


def measure(config: Config, name: str, index: int, noise: str, label: str) -> dict[str, Any]:
    """RMSE of one mean."""
    task = make_task(name, index, config.rows)
    solver = solvers(config.epochs, config.steps, len(task.split.y_train))[label]
    process = mt.GaussianProcess(task.kernel, LOW if noise == "low" else task.noise)
    generator = torch.Generator().manual_seed(config.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        post = process.condition(
            task.split.X_train, task.split.y_train, num_samples=0, solver=solver, generator=generator
        )
    error = post.mean(task.split.X_test) - task.split.y_test
    report = post.report
    return {
        "rmse": float(error.square().mean().sqrt()),
        "residual": report.residual,
        "epochs": report.epochs,
        "seconds": report.seconds,
        "restarts": sum("event" in record for record in report.trace),
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over splits."""
    table = []
    for name, solver in dict.fromkeys((r["set"], r["solver"]) for r in runs):
        entry: dict[str, Any] = {"set": name, "solver": solver}
        for noise in ("published", "low"):
            here = [r for r in runs if (r["set"], r["solver"], r["noise"]) == (name, solver, noise)]
            if not here:  # of a run that goes on
                break
            entry[f"rmse_{noise}"] = statistics.mean(r["rmse"] for r in here)
            entry[f"thesis_{noise}"] = PUBLISHED[solver][noise][SETS.index(name)] if solver in PUBLISHED else None
            entry[f"residual_{noise}"] = statistics.mean(r["residual"] for r in here)
        else:
            table.append(entry)
    return table


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """Stochastic solvers do not mind the noise; nothing is worse than published."""
    found = []
    for row in table:
        rise = row["rmse_low"] - row["rmse_published"]
        where = f"{row['set']}, {row['solver']}"
        if row["solver"] != "CG":
            found.append(at_most(f"{where}: rise of the RMSE from published to low noise", measured=rise, limit=0.02))
        if row["thesis_low"] is not None:
            found.append(
                at_most(
                    f"{where}: RMSE at low noise above the published",
                    measured=row["rmse_low"] - row["thesis_low"],
                    limit=0.01,
                    published=row["thesis_low"],
                )
            )
    return found


def draw(record: Record) -> Figure:
    """RMSE at both noises, joined, per set and solver."""
    table = record["table"]
    sets = list(dict.fromkeys(row["set"] for row in table))
    figure, axes = style.panels(len(sets), width=2.5, height=3.4)
    for ax, name in zip(axes, sets, strict=True):
        for color, row in zip(style.COLORS, (row for row in table if row["set"] == name), strict=False):
            label = row["solver"] if ax is axes[0] else None
            ax.plot([0, 1], [row["rmse_published"], row["rmse_low"]], "o-", color=color, label=label)
            if row["thesis_low"] is not None:
                ax.plot([0, 1], [row["thesis_published"], row["thesis_low"]], "x:", color=color, alpha=0.6)
        ax.set(title=name, yscale="log", xlim=(-0.3, 1.3))
        ax.set_xticks([0, 1], ["published\nnoise", "noise\n10⁻⁶"])
    axes[0].set_ylabel("test RMSE (crosses: thesis)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


FULL = Config(rows=None)

EXPERIMENT = Experiment(
    id="low-noise",
    title="Posterior means at the published noise and at 10⁻⁶",
    reproduces=("Table 4.2 (low-noise regression)",),
    budgets={
        "quick": replace(FULL, rows=3_000, sets=("pol", "elevators", "bike"), steps=3_000),
        "full": FULL,
        "thesis": replace(FULL, splits=5, steps=100_000),
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows or "all", "sets": len(config.sets), "splits": config.splits},
)
