"""Solvers on splits that no setting was chosen on.

Settings of ``SketchAndProject`` and of ``CG`` with a Nyström part and blocks were tried out on split 0. Here they run
as they are on splits 1 to 4, with the hyperparameters published for each, beside stochastic dual descent at its
measured step and at the thesis'.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import solvers_uci, style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import published_kernel, random_rows
from experiments.solvers_uci import BLOCKS, CLOSE, EXACT, LOW_NOISE, Task, compare, ratio, timed

OURS = ("SketchAndProject", BLOCKS)
METHODS = (*OURS, "SDD", "SDD, thesis' step")


@dataclass(frozen=True)
class Config:
    """Sets, splits and rows."""

    sets: tuple[str, ...] = ("pol", "elevators", "bike", "protein", "keggdirected")
    splits: tuple[int, ...] = (1, 2, 3, 4)
    noises: tuple[str, ...] = ("published", "low")
    rows: int | None = 20_000
    epochs: float = 60.0
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    """Every set, split and noise."""
    table: list[Record] = []
    cases = [(name, split, noise) for name in config.sets for split in config.splits for noise in config.noises]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        for name, split, noise in progress(cases, "splits"):
            key = f"{name}, split {split}, {noise} noise"
            rows = progress.once(key, lambda n=name, s=split, low=noise == "low": one_case(config, n, s, low, progress))
            table += [{"set": name, "split": split, "noise": noise, **row} for row in rows]
    return Report(table, list(claims(table, config)))


def one_case(config: Config, name: str, split: int, low: bool, progress: Progress) -> list[Record]:
    """The solvers, with what they cost to the goal."""
    kernel, noise = published_kernel(name, split)
    task = Task(random_rows(name, config.rows, config.seed, split), kernel, LOW_NOISE if low else noise)
    whole = replace(solvers_uci.EXPERIMENT.budgets["full"], epochs=config.epochs)
    methods = {label: solver for label, solver in solvers_uci.solvers(whole, name).items() if label in METHODS}
    return timed(*compare(task, methods, config.seed, progress))


def claims(table: Sequence[Record], config: Config) -> Iterator[Claim]:
    """As on split 0, by means over the splits."""
    for name in config.sets:
        for noise in config.noises:
            here = [row for row in table if (row["set"], row["noise"]) == (name, noise)]

            def values(solver: str, key: str, here: list[Record] = here) -> list[float]:
                found = [row.get(key) for row in here if row["solver"] == solver]
                return [math.inf if value is None else value for value in found]

            for solver in OURS:
                pairs = zip(values(solver, "rmse"), values(EXACT, "rmse"), strict=True)
                excess = statistics.fmean(rmse - exact for rmse, exact in pairs)
                yield at_most(f"{name}, {noise} noise: RMSE of {solver} above the exact", measured=excess, limit=CLOSE)
                epochs = (statistics.fmean(values(s, "epochs_to_goal")) for s in (solver, "SDD, thesis' step"))
                yield at_most(
                    f"{name}, {noise} noise: epochs of {solver} over SDD's at the thesis' step",
                    measured=ratio(*epochs), limit=0.5,
                )  # fmt: skip


def draw(record: Record) -> Figure:
    """Epochs to within 0.01 of the exact RMSE, a point per split."""
    sets, noises = record["config"]["sets"], record["config"]["noises"]
    figure, axes = style.panels(len(noises), width=6.4, height=3.6)
    colors = dict(zip(METHODS, (style.BLUE, style.GREEN, style.ORANGE, style.RED), strict=True))
    most = record["config"]["epochs"]
    for ax, noise in zip(axes, noises, strict=True):
        for shift, solver in zip((-0.24, -0.08, 0.08, 0.24), METHODS, strict=True):
            for place, name in enumerate(sets):
                rows = [r for r in record["table"] if (r["set"], r["noise"], r["solver"]) == (name, noise, solver)]
                epochs = [row.get("epochs_to_goal") or 1.5 * most for row in rows]
                label = solver if place == 0 else None
                ax.scatter([place + shift] * len(epochs), epochs, s=16, color=colors[solver], label=label)
        ax.axhline(most, color=style.GRAY, linewidth=0.8, linestyle=":")
        ax.set_xticks(range(len(sets)), sets)
        ax.set(yscale="log", title=f"{noise} noise; above the line: not reached", ylabel="epochs to exact RMSE + 0.01")
    axes[0].legend(fontsize=7)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="solvers-splits",
    title="Solvers on splits that no setting was chosen on",
    reproduces=("no figure of the thesis: a check of the settings behind solvers-uci",),
    budgets={
        "quick": replace(FULL, rows=3_000, noises=("published",)),
        "full": FULL,
        "thesis": replace(FULL, rows=None),
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"cases": len(config.sets) * len(config.splits) * len(config.noises)},
)
