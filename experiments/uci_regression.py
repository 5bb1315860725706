"""Gaussian processes on five regression sets: RMSE, NLL and minutes of every method, beside the published table.

All methods share the hyperparameters published for each split, and ours are run once more at values learnt here.
Predictive variances come from 64 posterior functions (thesis §4.5.1). SDD, SGD and CG may take a fifth of the thesis'
100,000 steps of 512 rows, hundreds of epochs on a small set; newer solvers have ``epochs`` and go first, on every
split, then learnt hyperparameters, SDD, SGD and CG, and peers. GPyTorch's exact GP has its fast variances: with its
plain ones it solves for every test row, hours on these sets.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_most
from experiments.gp_methods import OURS, Outcome, Task, gpytorch_exact, gpytorch_svgp, ours
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import published_kernel, random_rows
from matheron.data import describe, load

SETS = ("pol", "elevators", "bike", "protein", "keggdirected")

PUBLISHED = {
    "SDD": {"rmse": (0.08, 0.35, 0.04, 0.50, 0.08), "nll": (-1.18, 0.38, -2.49, 0.63, -0.92)},
    "SGD": {"rmse": (0.13, 0.38, 0.11, 0.51, 0.12)},
    "CG": {"rmse": (0.08, 0.35, 0.04, 0.50, 0.08), "nll": (-1.17, 0.38, -2.62, 0.62, -0.92)},
    "SVGP": {"rmse": (0.10, 0.37, 0.08, 0.57, 0.10)},
}
"""Table 4.3 of the thesis, in the order of ``SETS``."""

MARGIN = {"rmse": 0.01, "nll": 0.05}
"""How far above the table counts as reproduced."""


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most.

    Hyperparameters are learnt on the first ``learn_splits``; SDD, SGD and CG run on the first ``descent_splits``, peers
    on the first ``peer_splits``. An exact GP of GPyTorch has at most ``exact_rows``; SVGP with more than the fewest
    points, of which an epoch takes a minute on pol and a plateau hours, ``svgp_rows``.
    """

    rows: int | None
    sets: tuple[str, ...] = SETS
    splits: int = 1
    epochs: float = 60.0
    steps: int = 20_000
    samples: int = 64
    svgp_points: tuple[int, ...] = (1024, 3000)
    svgp_epochs: int = 200
    exact_rows: int | None = 20_000
    svgp_rows: int | None = 14_000
    descent_splits: int = 1
    peer_splits: int = 1
    learn_splits: int = 1
    learn_steps: int = 100
    seed: int = 0


def make_task(name: str, index: int, rows: int | None) -> Task:
    """One split with the hyperparameters published for it, of half a year of houseelectric those of all four."""
    split = load(name).split(index) if rows is None else random_rows(name, rows, index, index)
    return Task(split, *published_kernel(name, index))


def learnt(task: Task, steps: int, seed: int) -> Task:
    """The same data with hyperparameters learnt here, from the training rows alone."""
    kernel = mt.kernels.Matern32(lengthscale=torch.ones(task.split.X_train.shape[1]))
    process = mt.GaussianProcess(kernel)
    process.fit(
        task.split.X_train, task.split.y_train, "iterative", steps=steps, generator=torch.Generator().manual_seed(seed)
    )
    return Task(task.split, kernel.requires_grad_(False), process.noise.item())


@dataclass(frozen=True)
class Part:
    """One run: a method, what it works on, and whether the hyperparameters are to be learnt before."""

    name: str
    split: int
    method: str
    work: Callable[[Task], Outcome]
    learns: bool = False

    @property
    def key(self) -> str:
        """In the ledger."""
        return f"{self.name} {self.split} {self.method}"


def plan(config: Config) -> Iterator[Part]:
    """Every run, those that take most time for what they tell last."""
    methods = dict(ours(config.epochs, config.samples, config.seed, config.steps))
    slow = ("SDD", "SGD", "CG")

    def parts(splits: range, chosen: Iterable[str]) -> Iterator[Part]:
        for index in splits:
            for name in config.sets:
                yield from (Part(name, index, method, methods[method]) for method in chosen)

    yield from parts(range(config.splits), [method for method in methods if method not in slow])
    for index in range(config.learn_splits):
        for name in config.sets:
            yield Part(name, index, f"{OURS}, learnt", methods[OURS], learns=True)
    yield from parts(range(config.descent_splits), slow)
    for method, (work, most) in peers(config).items():
        for index in range(config.peer_splits):
            for name in config.sets:
                if most is None or rows_of(name, config.rows) <= most:
                    yield Part(name, index, method, work)


def peers(config: Config) -> dict[str, tuple[Callable[[Task], Outcome], int | None]]:
    """GPyTorch's, and the most rows each may have."""
    methods: dict[str, tuple[Callable[[Task], Outcome], int | None]] = {
        "exact, GPyTorch": (partial(gpytorch_exact, fast_variance=True), config.exact_rows)
    }
    for points in sorted(config.svgp_points):
        work = partial(gpytorch_svgp, points=points, seed=config.seed, most_epochs=config.svgp_epochs)
        methods[f"SVGP {points:,}, GPyTorch"] = (work, config.svgp_rows if points > min(config.svgp_points) else None)
    return methods


def rows_of(name: str, rows: int | None) -> int:
    """Training rows of a set, nine tenths of it."""
    return min(describe(name).rows * 9 // 10, rows or sys.maxsize)


def run(config: Config, progress: Progress) -> Report:
    """Every set, split and method."""
    rows = []
    for part in progress([part for part in plan(config) if not progress.lacks(part.key)], "runs"):
        found = progress.once(part.key, lambda part=part: measure(part, config))
        rows.append({"set": part.name, "split": part.split, "method": part.method, **found})
    table = summary(rows)
    return Report(table, claims(table), {"runs": rows})


def measure(part: Part, config: Config) -> dict[str, Any]:
    """The scores of one run."""
    task = make_task(part.name, part.split, config.rows)
    return row(part.work, learnt(task, config.learn_steps, config.seed) if part.learns else task)


def row(work: Callable[[Task], Outcome], task: Task) -> dict[str, Any]:
    """The answer of one run; a method that fails is recorded as it ended."""
    try:
        outcome = work(task)
    except (MemoryError, RuntimeError) as error:
        return {"ended": f"{type(error).__name__}: {error}"[:200]}
    last = outcome.trace[-1]
    return {"rmse": last["rmse"], "nll": last["nll"], "minutes": last["seconds"] / 60, **outcome.facts}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard error over splits."""
    table = []
    order = list(dict.fromkeys(r["set"] for r in rows))
    pairs = dict.fromkeys((r["set"], r["method"]) for r in rows)
    for name, method in sorted(pairs, key=lambda pair: order.index(pair[0])):
        here = [r for r in rows if (r["set"], r["method"]) == (name, method)]
        done = [r for r in here if "rmse" in r]
        entry: dict[str, Any] = {"set": name, "method": method, "splits": len(done)}
        for key in ("rmse", "nll", "minutes"):
            values = [r[key] for r in done]
            entry[key] = statistics.mean(values) if values else None
            entry[f"{key}_error"] = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        entry["ended"] = next((r["ended"] for r in here if "ended" in r), None)
        table.append(entry)
    return table


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """Ours against the published table; a run on fewer rows is not that table's, and says so by its sizes."""
    found = []
    for entry in table:
        column = SETS.index(entry["set"])
        method = "SDD" if entry["method"].startswith((OURS, "SketchAndProject")) else entry["method"]
        for key, values in PUBLISHED.get(method, {}).items():
            if entry[key] is None or "GPyTorch" in entry["method"]:
                continue
            found.append(
                at_most(
                    f"{entry['set']}: {key.upper()} of {entry['method']} above the published",
                    measured=entry[key] - values[column],
                    limit=MARGIN[key],
                    published=f"{values[column]:g} ({method})",
                )
            )
    return found


def draw(record: Record) -> Figure:
    """RMSE and NLL per set, a point per method, hollow where it has one split only."""
    table = record["table"]
    sets = list(dict.fromkeys(row["set"] for row in table))
    methods = list(dict.fromkeys(row["method"] for row in table))
    figure = Figure(figsize=(max(9.0, 2.6 * len(sets)), 6.4), layout="constrained")
    axes = figure.subplots(3, len(sets), squeeze=False)
    for column, name in enumerate(sets):
        entries = {r["method"]: r for r in table if r["set"] == name}
        for line, (key, label) in enumerate((("rmse", "test RMSE"), ("nll", "test NLL"), ("minutes", "minutes"))):
            ax = axes[line, column]
            values = [e[key] for e in entries.values() if e[key] is not None]
            highest = math.inf if key == "minutes" else outlying(values)
            for place, method in enumerate(methods):
                entry, color = entries.get(method, {}), style.COLORS[place % len(style.COLORS)]
                if entry.get(key) is None:
                    continue
                fill = color if entry["splits"] > 1 else "white"
                if entry[key] > highest:
                    ax.plot(place, 0.97, "^", color=color, mfc=fill, label=method, transform=ax.get_xaxis_transform())
                    ax.annotate(f"{entry[key]:.3g}", (place, 0.9), xycoords=ax.get_xaxis_transform(), ha="center",
                                va="top", fontsize=8)  # fmt: skip
                    continue
                error = entry.get(f"{key}_error")
                ax.errorbar(place, entry[key], yerr=error, fmt="o", color=color, mfc=fill, label=method)
            ax.set(xticks=[], xlim=(-0.7, len(methods) - 0.3))
            if line == 0:
                ax.set_title(name)
            if line == 2:
                ax.set_yscale("log")
            if column == 0:
                ax.set_ylabel(label)
    handles = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("filled: mean and standard error over splits; hollow: the first split", fontsize=9)
    return figure


def outlying(values: list[float]) -> float:
    """What lies above would squeeze all else together: eight spreads of the better half above the median, of many.

    >>> outlying([1.0, 2.0, 3.0, 4.0, 500.0])
    19.0
    """
    if len(values) < 5:
        return math.inf
    middle, best = statistics.median(values), min(values)
    return middle + 8.0 * (middle - best)


FULL = Config(rows=None, splits=5)

EXPERIMENT = Experiment(
    id="uci-regression",
    title="UCI regression: Gaussian processes by stochastic solvers and their peers",
    reproduces=("Table 4.3 (UCI regression)",),
    budgets={
        # All rows, so that the table is the one to compare with; an exact GP of GPyTorch takes too long there.
        "quick": replace(
            FULL,
            splits=1,
            sets=("elevators",),
            epochs=50.0,
            steps=0,
            learn_steps=60,
            svgp_points=(512,),
            svgp_epochs=15,
            exact_rows=6_000,
        ),
        "full": FULL,
        "thesis": replace(
            FULL, steps=100_000, descent_splits=5, peer_splits=5, learn_splits=5, exact_rows=None, svgp_rows=None
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows or "all", "sets": len(config.sets), "splits": config.splits},
)
