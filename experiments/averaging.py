"""Iterate averaging in stochastic dual descent with random coordinates, with and without Nesterov's momentum.

One loop yields all: the iterates ``α_t``, their geometric average ``ᾱ_t = χ α_t + (1 − χ) ᾱ_{t−1}`` and, once 70 % of
the iterations have passed, the arithmetic average of what followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import MEASURES, Recorder, checkpoints, prepare, regression_problem, share

AVERAGES = ("no averaging", "arithmetic averaging", "geometric averaging")
WITH, WITHOUT = "momentum", "no momentum"


@dataclass(frozen=True)
class Config:
    """Sizes; ``step`` is ``βn``, and ``averaging`` is ``χ``."""

    rows: int | None
    iterations: int = 100_000
    batch: int = 128
    step: float = 50.0
    averaging: float = 0.001
    momentum: float = 0.9
    tail: float = 0.7
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    problem = regression_problem("pol", rows=config.rows, seed=config.seed)
    K, y, n = problem.K.float(), problem.split.y_train[:, None], problem.rows
    # Evenly spread ones too, so that the tail is seen.
    evenly = range(config.iterations // 60, config.iterations + 1, config.iterations // 60)
    record = Recorder(problem, sorted({*checkpoints(config.iterations), *evenly}))
    generator = torch.Generator().manual_seed(config.seed)
    momentum = torch.tensor([config.momentum, 0.0])  # one column each, on the same coordinates
    alpha = torch.zeros(n, 2)
    velocity, geometric, arithmetic = (torch.zeros_like(alpha) for _ in range(3))
    begin = round(config.tail * config.iterations)
    for iteration in progress(range(1, config.iterations + 1), "iterations"):
        chosen = torch.randperm(n, generator=generator)[: config.batch]
        ahead = alpha + momentum * velocity
        gradient = K[chosen] @ ahead + problem.noise * ahead[chosen] - y[chosen]
        velocity = momentum * velocity
        velocity[chosen] -= config.step / config.batch * gradient
        alpha = alpha + velocity
        geometric = geometric.lerp(alpha, config.averaging)
        arithmetic = alpha if iteration <= begin else arithmetic.lerp(alpha, 1.0 / (iteration - begin))
        for average, weights in zip(AVERAGES, (alpha, arithmetic, geometric), strict=True):
            record(average, iteration, weights)

    columns = {WITH: 0, WITHOUT: 1}
    table = [
        {"momentum": name == WITH, "average": average} | record.final(average, column)
        for name, column in columns.items()
        for average in AVERAGES
    ]
    none, arithmetic_end, geometric_end = (record.final(average) for average in AVERAGES)
    plain = record.final(AVERAGES[0], columns[WITHOUT])
    claims = [
        at_most(
            f"{measure} of the iterates, momentum over none",
            measured=none[measure] / plain[measure],
            limit=limit,
            published="significantly faster",
        )
        for measure, limit in (("K-norm²", 0.5), ("K²-norm²", 0.5), ("test RMSE", 1.0))
    ]
    claims += [
        at_least(
            "K-norm² in the end, arithmetic averaging over none",
            measured=arithmetic_end["K-norm²"] / none["K-norm²"],
            limit=1.0,
            published="slows convergence down",
        ),
        at_most(
            "K-norm² in the end, geometric averaging over arithmetic",
            measured=geometric_end["K-norm²"] / arithmetic_end["K-norm²"],
            limit=1.0,
            published="outperforms",
        ),
        at_most(
            "K-norm² in the end, geometric averaging over none",
            measured=geometric_end["K-norm²"] / none["K-norm²"],
            limit=1.0,
            published="outperforms",
        ),
        at_least(
            "share of all recorded iterations with geometric averaging ahead of none in the K-norm",
            measured=share(record.curve(AVERAGES[2], "K-norm²"), record.curve(AVERAGES[0], "K-norm²")),
            limit=0.9,
            published="throughout",
        ),
    ]
    curves = {name: record.chosen(dict.fromkeys(AVERAGES, column)) for name, column in columns.items()}
    facts = {"rows": n, "exact test RMSE": float(problem.rmse(problem.alpha)), "averaging begins": begin}
    return Report(table, claims, facts | {"iterations": record.iterations} | curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, axes = style.panels(3, width=4.4, height=4.0)
    prepare(axes, curves)
    for ax in axes[:2]:
        ax.set_xscale("linear")
        ax.locator_params(axis="x", nbins=4)
    # The arithmetic average is the iterate until it begins: drawn from there on, over a thinner line of the iterates.
    begin = next(i for i, t in enumerate(curves["iterations"]) if t > curves["averaging begins"])
    looks = zip(AVERAGES, (style.ORANGE, style.GREEN, style.BLUE), (1.4, 2.6, 1.8), (0, begin - 1, 0), strict=True)
    for average, color, width, first in looks:
        for name, dash in ((WITH, "-"), (WITHOUT, ":")):
            for ax, measure in zip(axes, MEASURES, strict=True):
                ax.plot(
                    curves["iterations"][first:],
                    curves[name][average][measure][first:],
                    color=color,
                    linestyle=dash,
                    linewidth=width,
                    label=f"{average}, {name}",
                )
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


EXPERIMENT = Experiment(
    id="averaging",
    title="Iterate averaging and momentum in stochastic dual descent on pol",
    reproduces=("Figure 4.5 (arithmetic and geometric averaging), section 4.2.4",),
    budgets={
        "quick": Config(rows=4_000, iterations=20_000, averaging=0.005),
        "full": Config(rows=None, iterations=50_000, averaging=0.002),
        "thesis": Config(rows=None),
    },
    run=run,
    draw=draw,
    data=lambda config: ("pol",),
    sizes=lambda config: {"rows": config.rows or "all", "gradient_estimates": config.iterations},
)
