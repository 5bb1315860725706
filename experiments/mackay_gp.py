"""MacKay's fixed point against Adam for the scales of a Gaussian process, from the same posterior samples.

First noise and signal variance alone, at the published lengthscales, from ten times and a tenth of the published
values; then all hyperparameters, from values read off the data. Steps are counted until the exact evidence per row is
within 0.01 of the most that either reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import published_kernel, random_rows
from experiments.solvers_uci import ratio

CLOSE = 0.01
"""Of log evidence per row: there."""

WAYS = {"gradient": "Adam", "mackay": "MacKay"}


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most."""

    sets: tuple[str, ...] = ("pol", "elevators", "protein")
    rows: int = 5_000
    steps: int = 60
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    table, curves = [], {}
    for name in progress(config.sets, "sets"):
        split = random_rows(name, config.rows, config.seed)
        for what in ("scales", "all"):
            traces = {
                way: progress.once(
                    f"{name}, {what}, {way}",
                    lambda way=way, name=name, what=what, split=split: trace(
                        name, what, way, split.X_train, split.y_train, config
                    ),
                )
                for way in WAYS
            }
            best = max(max(evidences) for evidences in traces.values())
            for way, evidences in traces.items():
                steps = next((i for i, value in enumerate(evidences) if value >= best - CLOSE), None)
                table.append(
                    {"set": name, "learnt": what, "way": WAYS[way], "steps": steps, "evidence_per_row": evidences[-1]}
                )
            curves[f"{name}, {what}"] = traces
    return Report(table, claims(table), curves)


def trace(name: str, what: str, way: str, X: Tensor, y: Tensor, config: Config) -> list[float]:
    """The exact evidence per row at the hyperparameters of every step."""
    kernel, noise = published_kernel(name)
    gp = mt.GaussianProcess(kernel, noise=10.0 * noise)
    gp.kernel.requires_grad_(True)
    if what == "scales":
        gp.kernel.log_lengthscale.requires_grad_(False)
        gp.kernel.variance = 0.1 * gp.kernel.variance.detach()
    generator = torch.Generator().manual_seed(config.seed)
    start = "current" if what == "scales" else "data"
    gp.fit(
        X,
        y,
        "iterative",
        steps=config.steps,
        amplitude=way,
        tolerance=0.0,
        first_rows=0,
        start=start,
        generator=generator,
    )
    evidences = []
    for record in gp.history:
        values = record["hyperparameters"]
        gp.noise, gp.kernel.variance = values["noise"], values["kernel.variance"]
        if "kernel.lengthscale" in values:
            gp.kernel.lengthscale = values["kernel.lengthscale"]
        with torch.no_grad():
            gp.mean.fill_(values["mean"])
            evidences.append(gp.log_evidence(X, y).item() / len(y))
    return evidences


def claims(table: list[Record]) -> list:
    found = []
    for name, what in dict.fromkeys((row["set"], row["learnt"]) for row in table):
        steps = {row["way"]: row["steps"] for row in table if (row["set"], row["learnt"]) == (name, what)}
        counts = {way: math.inf if n is None else max(n, 1) for way, n in steps.items()}
        published = "2–3 steps on a toy problem (section 6.2.1)" if what == "scales" else None
        limit = 0.5 if what == "scales" else 1.0
        label = f"{name}, {what}: MacKay's steps over Adam's"
        found.append(at_most(label, measured=ratio(counts["MacKay"], counts["Adam"]), limit=limit, published=published))
    return found


def draw(record: Record) -> Figure:
    sets = record["config"]["sets"]
    figure, panels = style.panels(len(sets), 2, width=3.8, height=2.9)
    colors = {"gradient": style.ORANGE, "mackay": style.BLUE}
    for place, (axes, (what, name)) in enumerate(
        zip(panels, ((what, name) for what in ("scales", "all") for name in sets), strict=True)
    ):
        traces = record["curves"][f"{name}, {what}"]
        best = max(max(values) for values in traces.values())
        for way, values in traces.items():
            gap = [max(best - value, 1e-4) for value in values]
            axes.plot(range(len(gap)), gap, color=colors[way], label=WAYS[way])
        axes.axhline(CLOSE, color=style.GRAY, linewidth=0.8, linestyle="--")
        axes.set(title=f"{name}, {what}", yscale="log")
        if place % len(sets) == 0:
            axes.set_ylabel("evidence per row below the best")
        if place >= len(sets):
            axes.set_xlabel("step")
    panels[0].legend()
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="mackay-gp",
    title="MacKay's fixed point for the scales of a Gaussian process",
    reproduces=("Section 8.2 (future work: MacKay's update for Gaussian processes)",),
    budgets={"quick": replace(FULL, rows=1_000), "full": FULL, "thesis": FULL},
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows, "evidences": 4 * config.steps * len(config.sets)},
)
