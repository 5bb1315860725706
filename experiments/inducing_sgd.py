"""Stochastic descent through inducing points on household electricity: test RMSE and NLL over time, for fewer points.

Inducing points are training rows, those closest to others eliminated. Descent on them, on all rows (SGD) and in the
dual (SDD) makes as many passes over the data, and conjugate gradients as many products; SVGP learns 1,024 locations
until its bound stops rising. Descent on inducing points is preconditioned by its leading directions, SGD on all rows
is not; in the thesis neither is. Hyperparameters are shared: the published ones, or for few rows those of the most
exact evidence on some of them. Where a factorization is affordable, the KL-optimal posterior of the same points and the
exact one stand beside. Every method runs in a fresh child process; choosing the points is timed apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.gp_methods import Outcome, Task, gpytorch_svgp, posterior
from experiments.harness import Experiment, Progress, Record, Report
from experiments.large_regression import task_of
from experiments.peer import GIB, Peer
from matheron.data import load

AFFORDABLE = 6_000
"""Rows or inducing points up to which a factorization stands beside the descent."""

INDUCING, OPTIMAL, SVGP, EXACT = "inducing SGD", "KL-optimal", "SVGP, GPyTorch", "exact"


@dataclass(frozen=True)
class Config:
    """Sizes; ``shares`` of the rows become inducing points."""

    rows: int | None = None
    data: str = "houseelectric"
    shares: tuple[float, ...] = (0.6, 0.234, 0.119)
    passes: float = 28.0
    batch: int = 512
    evidence_rows: int | None = None
    test_rows: int | None = None
    samples: int = 64
    svgp_points: int = 1_024
    svgp_epochs: int = 200
    memory: int = 20 * GIB
    timeout: float = 24 * 3600.0
    seed: int = 0


def labels(config: Config, rows: int) -> list[str]:
    """Of all methods, the most inducing points first."""
    points = [round(share * rows) for share in config.shares]
    found = [*(f"{INDUCING}, m = {m:,}" for m in points), "SGD", "SDD", "CG", SVGP]
    found += [f"{OPTIMAL}, m = {m:,}" for m in points if m <= AFFORDABLE]
    return found + [EXACT] * (rows <= AFFORDABLE)


def method(config: dict[str, Any], label: str) -> Callable[[], Any]:
    """What a child runs."""
    settings = Config(**{**config, "shares": tuple(config["shares"])})
    task = task_of(settings.data, settings.rows, settings.evidence_rows)
    split, order = task.split, torch.Generator().manual_seed(settings.seed)
    tested = torch.randperm(len(split.y_test), generator=order)[: settings.test_rows]
    task = replace(task, split=replace(split, X_test=split.X_test[tested], y_test=split.y_test[tested]))

    def work() -> dict[str, Any]:
        kind, _, number = label.partition(", m = ")
        if kind == SVGP:
            points = min(settings.svgp_points, len(task.split.y_train) // 2)
            outcome = gpytorch_svgp(task, points=points, seed=settings.seed, most_epochs=settings.svgp_epochs)
            return outcome.as_dict() | {"points": points}
        if number:
            return through(task, settings, int(number.replace(",", "")), descend=kind == INDUCING)
        outcome = posterior(task, whole(settings, kind), num_samples=settings.samples, seed=settings.seed)
        return outcome.as_dict()

    return work


def through(task: Task, config: Config, points: int, *, descend: bool) -> dict[str, Any]:
    """The posterior of so many inducing points, by descent or by a factorization."""
    began = time.perf_counter()
    Z = mt.gp.eliminate_neighbors(task.split.X_train, points)
    chosen = time.perf_counter() - began
    # An epoch is n² entries of the kernel matrix, and a pass over the data n·m of them.
    epochs = config.passes * points / len(task.split.y_train)
    descent = mt.gp.InducingSGD(epochs=epochs, tolerance=0.01, batch=config.batch)
    solver = descent if descend else mt.solvers.Cholesky()
    outcome: Outcome = posterior(task, solver, num_samples=config.samples, seed=config.seed, inducing=Z)
    return outcome.as_dict() | {"points": points, "selection_seconds": chosen}


def whole(config: Config, name: str) -> Any:
    """A solver on all rows for as many passes: two epochs each for SGD, which evaluates its rows twice."""
    if name == EXACT:
        return mt.solvers.Cholesky()
    if name == "SGD":
        return mt.solvers.SGD(epochs=2.0 * config.passes, tolerance=0.01, batch=config.batch)
    if name == "SDD":
        return mt.solvers.SDD(epochs=config.passes, tolerance=0.01, batch=config.batch)
    return mt.solvers.CG(epochs=config.passes, tolerance=0.01, preconditioner=mt.solvers.PivotedCholesky(100))


def ask(config: Config, label: str) -> dict[str, Any]:
    """Run in a child; however it ends is the result."""
    arguments = {"config": vars(config) | {"shares": list(config.shares)}, "label": label}
    peer = Peer("experiments.inducing_sgd:method", arguments, memory=config.memory, timeout=config.timeout)
    peer.run()
    answer = {"ended": peer.ended} if peer.ended else dict(peer.runs[-1])
    peer.close()
    return answer


def run(config: Config, progress: Progress) -> Report:
    rows = min(len(load(config.data).split(0).y_train), config.rows or 10**9)
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    for label in progress([label for label in labels(config, rows) if not progress.lacks(label)], "methods"):
        answer = progress.once(label, lambda label=label: ask(config, label))
        curves[label] = answer.get("trace", [])
        last = curves[label][-1] if curves[label] else {}
        table.append(
            {
                "method": label.partition(", m")[0],
                "m": answer.get("points", rows),
                **{key: last.get(key) for key in ("rmse", "nll", "epochs", "seconds")},
                "selection_seconds": answer.get("selection_seconds"),
                "residual": answer.get("residual"),
                "restarts": answer.get("restarts"),
                "peak_gib": answer["peak"] / GIB if "peak" in answer else None,
                "ended": answer.get("ended"),
            }
        )
    return Report(table, claims(table), curves | {"rows": rows})


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """Fewer points cost little and save as much time; CG and SVGP do worse."""
    ours = [row for row in table if row["method"] == INDUCING and row["rmse"] is not None]
    by = {row["method"]: row for row in table if row["rmse"] is not None}
    if len(ours) < 2 or not {"SGD", "CG", SVGP} <= set(by):
        return []
    most, least = ours[0], ours[-1]
    full, cg, svgp = by["SGD"], by["CG"], by[SVGP]
    best = min(ours, key=lambda row: row["nll"])
    per_point = [row["seconds"] / row["m"] for row in ours]
    return [
        at_most(
            f"RMSE of {least['m']:,} points over that of SGD on all rows",
            measured=least["rmse"] / full["rmse"],
            limit=1.1,
            published="degrades less than 10 %",
        ),
        at_most(
            f"NLL of {least['m']:,} points above that of SGD on all rows, over its size",
            measured=(least["nll"] - full["nll"]) / abs(full["nll"]),
            limit=0.1,
            published="degrades less than 10 %",
        ),
        at_most(
            f"RMSE of {least['m']:,} points over that of {most['m']:,}",
            measured=least["rmse"] / most["rmse"],
            limit=1.1,
            published=1.0,
        ),
        at_most(
            "seconds per inducing point, most over least of the three",
            measured=max(per_point) / min(per_point),
            limit=1.5,
            published="time scales roughly linearly",
        ),
        at_most(
            f"seconds of {least['m']:,} points over those of SGD on all rows",
            measured=least["seconds"] / full["seconds"],
            limit=0.25,
            published=0.28 / 2.69,
        ),
        at_least(
            "NLL of CG above the best of inducing SGD", measured=cg["nll"] - best["nll"], limit=0.0, published=3.2
        ),
        at_least(
            "NLL of SVGP above the best of inducing SGD", measured=svgp["nll"] - best["nll"], limit=0.0, published=0.19
        ),
        at_most("restarts of inducing SGD", measured=sum(row["restarts"] for row in ours), limit=0),
    ]


def draw(record: Record) -> Figure:
    curves = {label: trace for label, trace in record["curves"].items() if label != "rows" and trace}
    figure, axes = style.panels(2, width=5.4, height=4.0)
    descents = [label for label in curves if label.startswith(INDUCING)]
    colors = dict(zip(descents, (style.BLUE, style.SKY, style.GREEN), strict=False))
    colors |= {"SGD": style.ORANGE, "SDD": style.RED, "CG": style.PURPLE, SVGP: style.BROWN}
    for ax, measure in zip(axes, ("rmse", "nll"), strict=True):
        for label, color in colors.items():
            trace = curves.get(label, [])
            name = label if label != SVGP else f"{SVGP}, m = {record['config']['svgp_points']:,}"
            ax.plot([p["seconds"] for p in trace], [p[measure] for p in trace], ".-", ms=4, color=color, label=name)
        for label in (label for label in curves if label not in colors):
            color = colors.get(label.replace(OPTIMAL, INDUCING), style.INK)
            ax.axhline(curves[label][-1][measure], color=color, linestyle=":", linewidth=1.2, label=label)
        last = [trace[-1][measure] for trace in curves.values()]
        low, high = min(last), max(last)
        ax.set(xscale="log", xlabel="seconds", title={"rmse": "Test RMSE", "nll": "Test NLL"}[measure])
        ax.set_ylim(low - 0.15 * (high - low), high + 0.4 * (high - low))
    axes[0].set(yscale="log", ylim=(0.8 * min(trace[-1]["rmse"] for trace in curves.values()), 1.0))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"{record['config']['data']}, {record['curves']['rows']:,} rows", fontsize=10)
    return figure


THESIS = Config()
FULL = replace(THESIS, data="houseelectric_subset", passes=16.0, samples=16, svgp_epochs=30)

EXPERIMENT = Experiment(
    id="inducing-sgd",
    title="Stochastic descent through fewer and fewer inducing points",
    reproduces=(
        "Figure 4.8 (inducing-point SGD over time), section 4.3",
        "Table 4.1 (inducing-point SGD on houseelectric)",
    ),
    budgets={
        "quick": replace(
            FULL,
            rows=4_000,
            passes=60.0,
            batch=128,
            evidence_rows=1_000,
            test_rows=4_000,
            svgp_points=256,
            svgp_epochs=50,
            memory=3 * GIB,
            timeout=150.0,
        ),
        "full": FULL,
        "thesis": THESIS,
    },
    run=run,
    draw=draw,
    data=lambda config: (config.data,),
    sizes=lambda config: {"rows": config.rows or "all", "shares": list(config.shares), "passes": config.passes},
)
