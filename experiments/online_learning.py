"""A prior learnt while a network with batch norm trains on MNIST, beside fixed weight decays.

All runs start from the same weights and see the same images in the same order. Two of them take turns between an epoch
or more of training and one EM step of the tangent model at the weights as they are, with the g-prior and with one
precision per parameter tensor; the others train at a fixed weight decay. The decay that a user would pick is the one
of the least loss on images held out of training; the learnt priors need none held out, but get the same training
images; their first update waits until ``first`` epochs have passed, as features that have not formed say little of
weights. That and the offset of the tangent model, which is kept, were chosen by held-out images at the quick size. That
the learnt priors leave biases and normalization layers alone was chosen with seeds 100 and 101, on training images from
the 40,000th on in place of test images. Test images only score (thesis, section 3.3.4 and its chapter on future work).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.lenet import SMALL, TINY, lenet, mnist, num_weights
from experiments.training import Images
from matheron.evaluation import log_likelihood

NO_DECAY = "no decay"
MOMENTUM = 0.9
PRIORS = {"g": "learnt, g-prior", "layerwise": "learnt, layerwise"}


@dataclass(frozen=True)
class Config:
    """The network, its data, its training, and the updates of the prior."""

    filters: tuple[int, ...] = SMALL
    images: int = 4_000
    held_out: int = 1_000
    test_images: int = 5_000
    epochs: int = 45
    first: int = 15
    every: int = 3
    batch: int = 64
    step: float = 0.05
    decays: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    em_samples: int = 4
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True, eq=False)
class Parts:
    """Images to train on, to choose a decay by, and to score with."""

    train: Images
    held_out: Images
    test: Images


def run(config: Config, progress: Progress) -> Report:
    """Every way of regularizing, with every seed."""
    warnings.simplefilter("ignore")
    (X, y), test = mnist(config.images + config.held_out, config.test_images)
    parts = Parts((X[: config.images], y[: config.images]), (X[config.images :], y[config.images :]), test)
    methods: dict[str, float | str] = {NO_DECAY: 0.0}
    methods |= {f"decay {decay:g}": decay for decay in config.decays}
    methods |= {label: prior for prior, label in PRIORS.items()}
    table: list[Record] = []
    curves: dict[str, Record] = {}
    for seed in config.seeds:
        for label, how in progress(methods.items(), f"seed {seed}"):
            row, curve = progress.once(
                f"{label}, seed {seed}", lambda how=how, seed=seed: trained(config, how, seed, parts)
            )
            table.append({"method": label, "seed": seed, **row})
            curves[f"{label}, seed {seed}"] = curve
    return Report(table, list(claims(config, table, curves)), curves)


def trained(config: Config, how: float | str, seed: int, parts: Parts) -> tuple[Record, Record]:
    """One run: a fixed decay, or a prior by name; scores after every turn."""
    X, y = parts.train
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = lenet(config.filters)
    decay = how if isinstance(how, float) else 0.0
    optimizer = torch.optim.SGD(model.parameters(), config.step, momentum=MOMENTUM, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
    online = None
    if isinstance(how, str):
        online = mt.networks.OnlineLaplace(
            model, "classification", how, num_samples=config.em_samples, generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
    order = torch.Generator().manual_seed(seed)
    began, updating = time.perf_counter(), 0.0
    curve: dict[str, list[float]] = {"epoch": [], "nll": [], "precision": [], "updates": []}
    for epoch in range(1, config.epochs + 1):
        model.train()
        for rows in torch.randperm(len(X), generator=order).split(config.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            optimizer.step()
            if online is not None:
                online.shrink(schedule.get_last_lr()[0] / (1.0 - MOMENTUM))
        schedule.step()
        if epoch % config.every == 0 or epoch == config.epochs:
            if online is not None and config.first <= epoch < config.epochs:
                paused = time.perf_counter()
                online.update(parts.train)
                updating += time.perf_counter() - paused
                curve["updates"].append(epoch)
                curve["precision"].append(float(online.prior_precision.log().mean().exp()))
            curve["epoch"].append(epoch)
            curve["nll"].append(-log_likelihood(probabilities(model, parts.test[0]), parts.test[1]))
    row = {"seconds": time.perf_counter() - began, "update_seconds": updating}
    for name, (images, labels) in (("train", parts.train), ("held_out", parts.held_out), ("test", parts.test)):
        p = probabilities(model, images)
        row[f"{name}_nll"] = -log_likelihood(p, labels)
        row[f"{name}_error"] = float((p.argmax(1) != labels).double().mean())
    return row, curve


@torch.no_grad()
def probabilities(model: nn.Module, images: Tensor) -> Tensor:
    """By the running statistics of batch norm."""
    model.eval()
    return torch.cat([model(part).softmax(1) for part in images.split(500)])


def mean(table: list[Record], method: str, key: str) -> float:
    """Over seeds."""
    values = [row[key] for row in table if row["method"] == method]
    return sum(values) / len(values)


def picked(table: list[Record]) -> str:
    """The fixed decay of the least mean loss on held-out images."""
    fixed = {row["method"] for row in table if row["method"] not in PRIORS.values()}
    return min(sorted(fixed), key=lambda method: mean(table, method, "held_out_nll"))


def claims(config: Config, table: list[Record], curves: dict[str, Record]) -> Iterator[Claim]:
    """Better than none, about as good as the decay that held-out images pick, and settled."""
    rival = picked(table)
    for label in PRIORS.values():
        here = mean(table, label, "test_nll")
        yield at_most(
            f"{label}: test NLL over that without decay", measured=here / mean(table, NO_DECAY, "test_nll"), limit=1.0
        )
        yield at_most(
            f"{label}: test NLL over that of the decay picked by held-out images, {rival}",
            measured=here / mean(table, rival, "test_nll"),
            limit=1.1,
        )
        moves = []
        for seed in config.seeds:
            path = curves[f"{label}, seed {seed}"]["precision"]
            moves.append(max(path[-1] / path[-2], path[-2] / path[-1]))
        yield at_most(f"{label}: ratio of the last two precisions", measured=max(moves), limit=1.25)


def draw(record: Record) -> Figure:
    """Scores while training, and the precision."""
    figure, (scores, precision) = style.panels(2, width=5.2, height=3.8)
    seeds = record["config"]["seeds"]
    methods = list(dict.fromkeys(row["method"] for row in record["table"]))
    for color, method in zip((style.GRAY, style.LIGHT, *style.COLORS), methods, strict=False):
        for seed in seeds:
            curve = record["curves"][f"{method}, seed {seed}"]
            learnt = method in PRIORS.values()
            label = method if seed == seeds[0] else None
            scores.plot(
                curve["epoch"], curve["nll"], color=color, linewidth=2.2 if learnt else 1.2, label=label,
                linestyle="-" if learnt else "--",
            )  # fmt: skip
            if learnt:
                precision.plot(curve["updates"], curve["precision"], "o-", ms=3, color=color)
    scores.set(title="MNIST, a network with batch norm", xlabel="epoch", ylabel="test NLL", yscale="log")
    precision.set(title="Precision of the prior (geometric mean)", xlabel="epoch", yscale="log")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="online-learning",
    title="A prior learnt while a network with batch norm trains",
    reproduces=("no figure of the thesis: section 3.3.4 (online Laplace) and section 8.2 (future work), measured",),
    budgets={
        "quick": replace(FULL, filters=TINY, images=500, test_images=2_000, epochs=30, first=10, seeds=(0,)),
        "full": FULL,
        "thesis": replace(FULL, images=50_000, held_out=10_000, test_images=10_000),
    },
    run=run,
    draw=draw,
    data=lambda config: ("mnist",),
    sizes=lambda config: {"weights": num_weights(config.filters), "images": config.images, "seeds": len(config.seeds)},
)
