"""Regression networks tested on random rows, and on the middle third of an input that they never saw in training.

An MLP with two hidden layers, trained by Adam until the loss on its training rows no longer falls; then, around that
one network, error bars by samples of the tangent model (g-prior and isotropic, with the offset and without), by
laplace-torch (whole covariance of the last layer, KFAC of all layers), and none but noise. Prior precisions and noise
variances are learnt by each method's own evidence from the rows the network was trained on. The network alone (MAP)
has the noise of a tenth of the training rows that was held out from training, for every method alike, and
used for nothing else; beside it with the noise of the training residuals. Log-likelihoods are of single test
targets in raw units under a Gaussian with the variance of the function plus the noise. No test target decides anything.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import matheron as mt
from experiments import laplace_torch, style
from experiments.claims import Claim, at_least
from experiments.harness import Experiment, Progress, Record, Report
from matheron.data import load

KINDS = ("standard", "gap")
OURS, MAP = "samples, g-prior", "MAP"
VARIANTS = {
    OURS: {"prior": "g"},
    "samples, g-prior, no offset": {"prior": "g", "offset": "simple"},
    "samples, isotropic": {"prior": "isotropic"},
    "samples, isotropic, no offset": {"prior": "isotropic", "offset": "simple"},
}
RIVALS = {
    "laplace-torch, last layer": ("last_layer", "full"),
    "laplace-torch, KFAC": ("all", "kron"),
}
TRAINING_NOISE = "MAP, noise of training rows"
METHODS = (*VARIANTS, *RIVALS, MAP, TRAINING_NOISE)

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Config:
    """Sets, splits, the network and its training; ``splits`` bounds those of each kind."""

    sets: tuple[str, ...] = SETS
    splits: tuple[int, int] = (20, 20)
    width: int = 50
    penalty: float = 0.1
    """Of the squared weights, in units of the squared errors: a prior precision of 1 at a noise variance of 0.1."""
    batch: int = 1_024
    steps: tuple[float, ...] = (1e-2, 1e-3)
    window: int = 500
    most_windows: int = 20
    held_out: float = 0.1
    em_steps: int = 12
    em_samples: int = 16
    samples: int = 256
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    """Every split of every set."""
    warnings.simplefilter("ignore")
    table: list[Record] = []
    for name in config.sets:
        for kind, index in splits(config, name):
            key = f"{name}, {kind} split {index}"
            progress.note(key)
            table += progress.once(key, lambda n=name, k=kind, i=index: measure(config, n, k, i))
    return Report(table, list(claims(table)))


def splits(config: Config, name: str) -> Iterator[tuple[str, int]]:
    """Kinds and numbers."""
    data = load(f"{name}_gap")
    for kind, most in zip(KINDS, config.splits, strict=True):
        for index in range(min(most, len(getattr(data, kind)))):
            yield kind, index


def measure(config: Config, name: str, kind: Any, index: int) -> list[Record]:
    """All methods around one network."""
    split = load(f"{name}_gap").split(index, kind)
    source = torch.Generator().manual_seed(config.seed + index)
    order = torch.randperm(len(split.X_train), generator=source)
    cut = round(config.held_out * len(order))
    X, y = split.X_train, split.y_train[:, None]
    rest, kept = order[cut:], order[:cut]
    model, windows = trained(config, (X[rest], y[rest]), source)
    with torch.no_grad():
        outputs = model(split.X_test)
        training, validation = ((model(X[rows]) - y[rows]).square().mean() for rows in (rest, kept))
    errors = (outputs - split.y_test[:, None]).flatten().double()
    row = {"set": name, "kind": kind, "split": index, "rows": len(rest), "windows": windows}
    row |= {"rmse": float(errors.square().mean().sqrt()) * split.y_scale}

    def scored(method: str, variance: Tensor, noise: float) -> Record:
        total = variance.flatten().double() + noise
        logs = -0.5 * (errors.square() / total + total.log() + math.log(2.0 * math.pi)) - math.log(split.y_scale)
        return row | {
            "method": method,
            "log_likelihood": float(logs.mean()),
            "deviation": float(total.sqrt().mean()),
            "noise": noise,
        }

    table = [scored(MAP, torch.zeros(()), float(validation)), scored(TRAINING_NOISE, torch.zeros(()), float(training))]
    tests = laplace_torch.batches(split.X_test, split.y_test, size=512)
    for method, options in VARIANTS.items():
        posterior = mt.LinearizedLaplace(model, "regression", **options).fit(
            (X[rest], y[rest]), em_steps=config.em_steps, num_samples=config.em_samples, final_samples=config.samples,
            method="exact", generator=torch.Generator().manual_seed(config.seed),
        )  # fmt: skip
        _, variance = posterior(tests)
        table.append(scored(method, variance, posterior.noise) | {"dimension": posterior.effective_dimension})
    for method, (subset, structure) in RIVALS.items():
        rival = laplace_torch.regression(model, X[rest], y[rest], subset, structure)
        variance = torch.cat([rival(x)[1].detach().flatten() for x, _ in tests])
        table.append(scored(method, variance, float(rival.sigma_noise.square())))
    return table


def trained(config: Config, data: Rows, source: torch.Generator) -> tuple[nn.Module, int]:
    """Adam with one step size after the other, each until the mean loss of a window is no longer 1 % below the best."""
    X, y = data
    sizes = (X.shape[1], config.width, config.width, 1)
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=source)))
        layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    windows = 0
    for size in config.steps:
        optimizer, best = torch.optim.Adam(model.parameters(), size), math.inf
        for _ in range(config.most_windows):
            found, windows = window(config, model, optimizer, X, y, source), windows + 1
            if found > 0.99 * best:
                break
            best = found
    return model.eval(), windows


def window(
    config: Config, model: nn.Module, optimizer: torch.optim.Optimizer, X: Tensor, y: Tensor, source: torch.Generator
) -> float:
    """Some steps, and their mean loss."""
    total = 0.0
    for _ in range(config.window):
        rows: Any = slice(None)
        if len(X) > config.batch:
            rows = torch.randint(len(X), (config.batch,), generator=source)
        optimizer.zero_grad()
        squares = sum(parameter.square().sum() for parameter in model.parameters())
        loss = (model(X[rows]) - y[rows]).square().mean() + config.penalty * squares / len(X)
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) / config.window
    return total


def mean(table: list[Record], kind: str, method: str, key: str = "log_likelihood") -> float:
    """Over splits, then over sets."""
    return statistics.fmean(by_set(table, kind, method, key).values())


def by_set(table: list[Record], kind: str, method: str, key: str = "log_likelihood") -> dict[str, float]:
    """Over splits."""
    rows = [row for row in table if row["kind"] == kind and row["method"] == method]
    names = list(dict.fromkeys(row["set"] for row in rows))
    return {name: statistics.fmean(row[key] for row in rows if row["set"] == name) for name in names}


def claims(table: list[Record]) -> Iterator[Claim]:
    """Better than no error bars and than the peer's in gaps, and no worse than none elsewhere."""
    for rival in (MAP, *RIVALS):
        yield at_least(
            f"log-likelihood in gaps, samples minus {rival}",
            measured=mean(table, "gap", OURS) - mean(table, "gap", rival), limit=0.0,
        )  # fmt: skip
    yield at_least(
        "log-likelihood on random rows, samples minus MAP",
        measured=mean(table, "standard", OURS) - mean(table, "standard", MAP), limit=-0.02,
    )  # fmt: skip


LOOKS: dict[str, tuple[str, str]] = dict(
    zip(
        METHODS,
        (
            (style.BLUE, "o"), (style.BLUE, "s"), (style.SKY, "o"), (style.SKY, "s"),
            (style.ORANGE, "^"), (style.RED, "v"), (style.INK, "_"), (style.GRAY, "x"),
        ),
        strict=True,
    )
)  # fmt: skip


def draw(record: Record) -> Figure:
    """Log-likelihoods beside the network's own."""
    table = record["table"]
    figure, axes = style.panels(2, width=6.0, height=4.4)
    for ax, kind in zip(axes, KINDS, strict=True):
        ax.set_yscale("symlog", linthresh=0.1)
        ax.margins(y=0.08)
        base = by_set(table, kind, MAP)
        spots = [method for method in METHODS if method != MAP]
        for place, method in enumerate(spots):
            color, marker = LOOKS[method]
            found = by_set(table, kind, method)
            x = [position + 0.09 * (place - (len(spots) - 1) / 2) for position in range(len(base))]
            ax.plot(x, [found[name] - base[name] for name in base], marker, color=color, ms=6, label=method)
        ax.axhline(0.0, color=style.INK, linewidth=1.0)
        ax.set_xticks(range(len(base)), list(base))
        title = {"standard": "Random test rows", "gap": "Test rows in a gap"}[kind]
        ax.set(title=title, ylabel="test log-likelihood, minus MAP's")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="uci-gap",
    title="Error bars of regression networks on random test rows and in gaps",
    reproduces=("Beyond the thesis: linearized Laplace of section 6.2 on UCI standard and gap splits",),
    budgets={
        "quick": replace(FULL, sets=("yacht", "boston", "energy", "concrete"), splits=(1, 2)),
        "full": FULL,
        "thesis": FULL,
    },
    run=run,
    draw=draw,
    data=lambda config: tuple(f"{name}_gap" for name in config.sets),
    sizes=lambda config: {"sets": len(config.sets), "splits": config.splits},
)
