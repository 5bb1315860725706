"""Hyperparameters learnt on UCI sets: their exact evidence against that of the published ones, and their predictions.

On pol, elevators and bike, by gradients from posterior samples on all rows. On protein, predictions with
hyperparameters learnt so on all rows against those of the most evidence on the rows around one centroid, both followed
by a posterior on all rows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import published_kernel, random_rows
from matheron.data import Split

WORSE = 0.01
"""Nats per row that the learnt evidence may fall short of the published."""

WORSE_NLL = 0.02


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most."""

    sets: tuple[str, ...] = ("pol", "elevators", "bike")
    rows: int | None = None
    steps: int = 40
    predicted: str = "protein"
    predicted_rows: int | None = None
    subset_rows: int = 10_000
    centroids: int = 1
    samples: int = 64
    seed: int = 0


def process(inputs: int) -> mt.GaussianProcess:
    return mt.GaussianProcess(mt.kernels.Matern32(lengthscale=torch.ones(inputs)))


def run(config: Config, progress: Progress) -> Report:
    table, claims, curves = [], [], {}
    for name in progress(config.sets, "evidence"):
        rows, curves[name] = progress.once(name, lambda name=name: evidences(config, name))
        table += rows
        ours, theirs = (row["evidence_per_row"] for row in rows)
        label = f"{name}: log evidence per row above that of the published hyperparameters"
        claims.append(at_least(label, measured=ours - theirs, limit=-WORSE))
    rows = [
        progress.once(f"{config.predicted} {label}", lambda label=label: prediction(config, label))
        for label in progress(("learnt", "subset"), config.predicted)
    ]
    table += rows
    losses = {row["hyperparameters"]: row["nll"] for row in rows}
    claims.append(
        at_most(
            f"{config.predicted}: test NLL above that of hyperparameters from a subset",
            measured=losses["learnt"] - losses["subset"],
            limit=WORSE_NLL,
            published="test NLL .63 by SDD (table 4.3)",
        )
    )
    return Report(table, claims, curves)


def evidences(config: Config, name: str) -> tuple[list[Record], Record]:
    """The exact evidence of what is learnt on one set and of the published values, and the way of the former."""
    split = random_rows(name, config.rows, config.seed)
    learnt = process(split.X_train.shape[1])
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(config.seed)
    learnt.fit(split.X_train, split.y_train, "iterative", steps=config.steps, generator=generator)
    seconds = time.perf_counter() - began
    kernel, noise = published_kernel(name)
    published = mt.GaussianProcess(kernel, noise=noise)
    ours, theirs = evidence(learnt, split), evidence(published, split)
    rows = [
        {"set": name, "hyperparameters": "learnt", "evidence_per_row": ours, **scales(learnt), "seconds": seconds},
        {"set": name, "hyperparameters": "published", "evidence_per_row": theirs, **scales(published)},
    ]
    climbed = [record for record in learnt.history if "residual" in record]  # on all rows
    curve = {
        "seconds": [record["seconds"] for record in climbed],
        "noise": [record["hyperparameters"]["noise"] for record in climbed],
        "residual": [record["residual"] for record in climbed],
    }
    return rows, curve


def evidence(gp: mt.GaussianProcess, split: Split) -> float:
    with torch.no_grad():
        return gp.log_evidence(split.X_train, split.y_train).item() / len(split.y_train)


def scales(gp: mt.GaussianProcess) -> Record:
    return {"noise": gp.noise.item(), "variance": gp.kernel.variance.item()}


def prediction(config: Config, label: str) -> Record:
    """Test scores on one set with hyperparameters learnt in one of two ways."""
    split = random_rows(config.predicted, config.predicted_rows, config.seed)
    method = {
        "learnt": mt.gp.fitting.Iterative(steps=config.steps),
        "subset": mt.gp.fitting.Subset(config.subset_rows, config.centroids),
    }[label]
    generator = torch.Generator().manual_seed(config.seed)
    gp = process(split.X_train.shape[1])
    began = time.perf_counter()
    gp.fit(split.X_train, split.y_train, method, generator=generator)
    fitted = time.perf_counter()
    posterior = gp.condition(split.X_train, split.y_train, num_samples=config.samples, generator=generator)
    found = posterior.predict(split.X_test)
    conditioned = time.perf_counter()
    error, variance = split.y_test - found.mean, found.variance
    nll = 0.5 * (error.square() / variance + variance.log() + math.log(2.0 * math.pi))
    return {
        "set": config.predicted,
        "hyperparameters": label,
        **scales(gp),
        "seconds": fitted - began,
        "posterior_seconds": conditioned - fitted,
        "rmse": float(error.square().mean().sqrt()),
        "nll": float(nll.mean()),
    }


def draw(record: Record) -> Figure:
    figure, (left, right) = style.panels(2, width=4.8, height=3.4)
    sets = record["config"]["sets"]
    colors = {"learnt": style.BLUE, "published": style.GRAY}
    for place, name in enumerate(sets):
        for shift, kind in ((-0.2, "learnt"), (0.2, "published")):
            row = next(r for r in record["table"] if r["set"] == name and r["hyperparameters"] == kind)
            left.bar(place + shift, row["evidence_per_row"], width=0.38, color=colors[kind], label=kind)
    left.set_xticks(range(len(sets)), sets)
    left.set(title="Exact log evidence per row")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[:2], labels[:2])
    for color, name in zip(style.COLORS, sets, strict=False):
        curve = record["curves"][name]
        right.plot(curve["seconds"], curve["noise"], color=color, label=name)
    right.set(title="Noise variance while learning", xlabel="seconds", yscale="log")
    right.legend()
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="evidence-uci",
    title="Hyperparameters learnt on UCI sets against the published ones",
    reproduces=("Section 4.5.1 (hyperparameters of the UCI benchmark)",),
    budgets={
        "quick": replace(FULL, rows=3_000, predicted_rows=4_000, subset_rows=1_000),
        "full": FULL,
        "thesis": replace(FULL, centroids=10),
    },
    run=run,
    draw=draw,
    data=lambda config: (*config.sets, config.predicted),
    sizes=lambda config: {"rows": config.rows or "all", "steps": config.steps},
)
