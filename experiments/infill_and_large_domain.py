"""Stochastic gradient descent and stochastic dual descent in two regimes, against the exact Gaussian process.

Both solve for the mean and for functions that the exact posterior updates too; the error is the 2-Wasserstein distance
of the marginals. SGD is the low-variance form, which moves the noise of the targets into the regularizer, and averages
about the last tenth of its iterates. Where data crowd the kernel matrix is ill-conditioned and where they lie on a grid
it is not.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.two_regimes import (
    EXTRAPOLATION,
    FAR,
    INFILL,
    INTERPOLATION,
    LARGE,
    REGIMES,
    Problem,
    draw_posterior,
    problem,
)

COLORS = {"SGD": style.BLUE, "SDD": style.GREEN}


@dataclass(frozen=True)
class Config:
    """Sizes."""

    rows: int = 10_000
    samples: int = 2_000
    sgd_epochs: float = 10_000.0
    sdd_epochs: float = 1_000.0
    batch: int = 512
    averaging: float = 10.0
    seed: int = 0


def solve(setting: Problem, name: str, config: Config) -> mt.solvers.Result:
    """Mean and functions by one of the two, for all its epochs."""
    generator = torch.Generator().manual_seed(config.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        if name == "SGD":
            solver = mt.solvers.SGD(
                epochs=config.sgd_epochs, tolerance=1e-12, batch=config.batch, averaging=config.averaging
            )
            return solver.solve(setting.system(), setting.targets, noise=setting.noise, generator=generator)
        dual = mt.solvers.SDD(epochs=config.sdd_epochs, tolerance=1e-12, batch=config.batch)
        return dual.solve(setting.system(), setting.targets, generator=generator)


def run(config: Config, progress: Progress) -> Report:
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    for regime in progress(REGIMES, "regimes"):
        setting = problem(regime, config.rows, config.samples, config.seed)
        curves[regime] = setting.curves()
        for name in progress(COLORS, "solvers"):
            result = solve(setting, name, config)
            found = setting.moments(result.solution)
            distance = found.distance(setting.exact_functions)
            curves[regime][name] = found.curve() | {"W2": distance}
            table.append(
                {
                    "regime": regime,
                    "solver": name,
                    "rows": config.rows,
                    **setting.errors(distance),
                    "residual": float(result.residual.max()),
                    "epochs": result.epochs,
                    "seconds": result.seconds,
                }
            )
    return Report(table, claims(table), curves)


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """What the caption says of SGD, and of SDD beside it; the prior's standard deviation is 1."""
    rows = {(row["regime"], row["solver"]): row for row in table}
    sgd, dual = rows[INFILL, "SGD"], rows[INFILL, "SDD"]
    return [
        at_most(
            "infill: RMS W2 of SGD among the data",
            measured=sgd[INTERPOLATION],
            limit=0.1,
            published="converges except at the edges",
        ),
        at_least(
            "infill: RMS W2 of SGD at the edges over that among the data",
            measured=sgd[EXTRAPOLATION] / sgd[INTERPOLATION],
            limit=3.0,
            published="converges except at the edges",
        ),
        at_most(
            "infill: RMS W2 of SGD far from the data",
            measured=sgd[FAR],
            limit=0.02,
            published="converges except at the edges",
        ),
        at_most(
            "large domain: largest W2 of SGD",
            measured=rows[LARGE, "SGD"]["largest W2"],
            limit=0.1,
            published="recovers the exact solution",
        ),
        at_most(
            "large domain: largest W2 of SDD",
            measured=rows[LARGE, "SDD"]["largest W2"],
            limit=0.02,
            published="recovers the exact solution",
        ),
        at_most(
            "infill: RMS W2 at the edges, SDD over SGD",
            measured=dual[EXTRAPOLATION] / sgd[EXTRAPOLATION],
            limit=0.5,
            published="SDD is better conditioned",
        ),
    ]


def draw(record: Record) -> Figure:
    figure, axes = style.panels(2, 2, width=5.6, height=3.3)
    axes[2].sharex(axes[0])
    for column, regime in enumerate(REGIMES):
        curves, top, bottom = record["curves"][regime], axes[column], axes[2 + column]
        title = f"{regime.capitalize()}, {curves['rows']:,} rows: SGD"
        draw_posterior(top, curves, curves["SGD"], color=style.BLUE, label="SGD", title=title)
        for name, color in COLORS.items():
            bottom.plot(curves["x"], curves[name]["W2"], color=color, label=name)
        bottom.set(title="2-Wasserstein distance to the exact posterior", xlabel="x", yscale="log", ylim=(1e-16, 10.0))
        bottom.set_xlim(curves["x"][0], curves["x"][-1])
        bottom.legend(loc="center right")
    return figure


WHOLE = Config()

EXPERIMENT = Experiment(
    id="infill-and-large-domain",
    title="Stochastic descent where data crowd and where they spread",
    reproduces=("Figure 4.1 (SGD, CG and SVGP in two regimes: its SGD), section 4.2",),
    budgets={
        "quick": Config(rows=2_000, samples=32, sgd_epochs=1_000.0, sdd_epochs=100.0, batch=128),
        "full": replace(WHOLE, samples=64),
        "thesis": WHOLE,
    },
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "samples": config.samples, "solves": 4},
)
