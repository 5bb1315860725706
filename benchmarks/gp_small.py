"""A few hundred rows from data to predictions, beside scikit-learn: seconds, evidence and test scores.

Both learn a Matérn-3/2 kernel with one lengthscale per input, its variance and the noise by the exact evidence with
L-BFGS, on standardized targets, in one process and on as many threads. scikit-learn runs with its own defaults: one
start, its bounds on hyperparameters, numerical precision of its own. Predictions are means and deviations at test rows.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import random_rows
from matheron.data import Split

OURS, PEER = "matheron", "scikit-learn"


@dataclass(frozen=True)
class Config:
    """Sizes."""

    sets: tuple[str, ...] = ("elevators", "bike", "protein")
    rows: tuple[int, ...] = (200, 500, 1_000)
    test_rows: int = 2_000
    seeds: tuple[int, ...] = (0, 1, 2)


def matheron(split: Split) -> tuple[Tensor, Tensor]:
    """Mean and variance of observations."""
    kernel = mt.kernels.Matern32(torch.ones(split.X_train.shape[1]))
    gp = mt.GaussianProcess(kernel, standardize=True).fit(split.X_train, split.y_train)
    found = gp.condition(split.X_train, split.y_train, num_samples=0).predict(split.X_test)
    return found.mean.double(), found.variance.double()


def sklearn(split: Split) -> tuple[Tensor, Tensor]:
    """The same by scikit-learn."""
    import numpy as np
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    X, y = split.X_train.double().numpy(), split.y_train.double().numpy()
    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=1.5) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)
    mean, std = model.predict(split.X_test.double().numpy(), return_std=True)
    return torch.from_numpy(mean), torch.from_numpy(std).square()


def measure(name: str, rows: int, seed: int, peer: str, test_rows: int) -> dict[str, Any]:
    """One fit and its scores."""
    split = random_rows(name, rows, seed)
    X_test, y_test = split.X_test[:test_rows], split.y_test[:test_rows].double()
    split = Split(split.X_train, split.y_train, X_test, split.y_test[:test_rows], split.y_mean, split.y_scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        mean, variance = (matheron if peer == OURS else sklearn)(split)
        seconds = time.perf_counter() - began
    error = y_test - mean
    nll = 0.5 * (error.square() / variance + (2.0 * torch.pi * variance).log()).mean()
    return {"seconds": seconds, "rmse": float(error.square().mean().sqrt()), "nll": float(nll)}


def run(config: Config, progress: Progress) -> Report:
    """Every set, number of rows and seed, ours beside theirs."""
    table = []
    for name in config.sets:
        for rows in config.rows:
            for seed in progress(config.seeds, f"{name}, {rows} rows"):
                for peer in (OURS, PEER):
                    found = progress.once(
                        f"{name} {rows} {seed} {peer}",
                        lambda n=name, r=rows, s=seed, p=peer: measure(n, r, s, p, config.test_rows),
                    )
                    table.append({"set": name, "rows": rows, "seed": seed, "library": peer, **found})
    return Report(table, list(claims(config, table)))


def mean_of(table: list[dict[str, Any]], key: str, **where: Any) -> float:
    """Over the rows that match."""
    values = [row[key] for row in table if all(row[k] == v for k, v in where.items())]
    return sum(values) / len(values)


def claims(config: Config, table: list[dict[str, Any]]) -> list[Claim]:
    """Ten times as fast at the most rows, and no worse in the mean over sets."""
    found, most = [], max(config.rows)
    for name in config.sets:
        ours, theirs = (mean_of(table, "seconds", set=name, rows=most, library=peer) for peer in (OURS, PEER))
        found.append(
            at_least(f"{name}, {most} rows: seconds of scikit-learn over ours", measured=theirs / ours, limit=10.0)
        )
    for key, label, limit in (("nll", "NLL", 0.02), ("rmse", "RMSE", 0.005)):
        ours, theirs = (mean_of(table, key, library=peer) for peer in (OURS, PEER))
        found.append(at_most(f"test {label} above scikit-learn's, mean", measured=ours - theirs, limit=limit))
    return found


def draw(record: Record) -> Figure:
    """Seconds against rows."""
    config, table = record["config"], record["table"]
    figure, axes = style.panels(len(config["sets"]), width=3.6, height=3.2)
    for ax, name in zip(axes, config["sets"], strict=True):
        for color, peer in ((style.BLUE, OURS), (style.ORANGE, PEER)):
            seconds = [mean_of(table, "seconds", set=name, rows=rows, library=peer) for rows in config["rows"]]
            ax.plot(config["rows"], seconds, "o-", color=color, label=peer)
        ax.set(title=name, xlabel="training rows", xscale="log", yscale="log", xticks=config["rows"])
        ax.set_xticklabels([f"{rows:,}" for rows in config["rows"]])
        ax.minorticks_off()
    axes[0].set_ylabel("seconds, fit and predict")
    axes[0].legend()
    return figure


EXPERIMENT = Experiment(
    id="gp-small",
    title="Gaussian processes on a few hundred rows, beside scikit-learn",
    reproduces=("no figure of the thesis: the exact evidence of section 2.4 against today's library",),
    budgets={"quick": Config(rows=(100, 200, 400), seeds=(0,)), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": list(config.rows), "fits": 2 * len(config.sets) * len(config.rows)},
)
