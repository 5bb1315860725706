"""Which images to label next: those that together tell most, uncertain ones, or any.

A small convolutional network on MNIST, trained anew whenever labels arrive, from the same starting weights for every
strategy. From the same few random labels each strategy chooses the next ones out of the same random part of the pool:
by :func:`matheron.decisions.most_informative`, which goes by the joint predictions of the linearized network, either
for the information in the labels themselves or for what they tell of the rest of the pool; by the entropy of the
network's class probabilities; or at random. The posterior follows the tangent model's own curvature, since a network
that has learnt a few images by heart has next to none. Test images only score.

Network, prior and number of samples were chosen with seeds 100 to 102 on training images from the 50,000th on in place
of test images.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least
from experiments.harness import Experiment, Progress, Record, Report
from experiments.laplace_torch import batches
from experiments.lenet import mnist
from experiments.training import Images, Recipe, train
from matheron.evaluation import entropy, log_likelihood

CRITERIA = {"joint information": "eig", "variance of the pool": "evr"}
ENTROPY, RANDOM = "entropy", "random"
STRATEGIES = (*CRITERIA, ENTROPY, RANDOM)


@dataclass(frozen=True)
class Config:
    """Sizes and seeds; a seed decides the first labels, the parts of the pool and the starting weights."""

    filters: tuple[int, int] = (8, 16)
    pool: int = 10_000
    shown: int = 1_000
    test_images: int = 2_000
    start: int = 20
    step: int = 10
    most: int = 120
    epochs: int = 100
    batch: int = 32
    em_steps: int = 4
    em_samples: int = 16
    samples: int = 256
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)


def network(filters: tuple[int, int]) -> nn.Sequential:
    """Two convolutions with stride 2 and a dense layer; batch norm has little to go by in a few images."""
    first, second = filters
    return nn.Sequential(
        nn.Conv2d(1, first, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(first, second, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(49 * second, 10),
    )  # fmt: skip


def num_weights(filters: tuple[int, int]) -> int:
    """All of them."""
    with torch.device("meta"):
        return sum(p.numel() for p in network(filters).parameters())


def run(config: Config, progress: Progress) -> Report:
    """Every strategy with every seed."""
    warnings.simplefilter("ignore")
    data, test = mnist(config.pool, config.test_images)
    table: list[Record] = []
    for seed in config.seeds:
        for strategy in STRATEGIES:
            key = f"{strategy}, seed {seed}"
            progress.note(key)
            table += progress.once(key, lambda s=strategy, n=seed: acquire(config, s, n, data, test, progress))
    return Report(table, list(claims(table)))


def acquire(
    config: Config, strategy: str, seed: int, data: Images, test: Images, progress: Progress
) -> list[Record]:  # fmt: skip
    """Labels, a network, its scores, and more labels."""
    X, y = data
    source = torch.Generator().manual_seed(seed)
    labeled = torch.randperm(len(X), generator=source)[: config.start]
    rows = []
    while True:
        recipe = Recipe(
            f"active {config.filters}", len(labeled), config.epochs, seed, batch=config.batch, step=2e-3, adam=True
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = network(config.filters)
        train(model, recipe, (X[labeled], y[labeled]), progress)
        with torch.no_grad():
            p = model.eval()(test[0]).softmax(1)
        accuracy = float((p.argmax(1) == test[1]).double().mean())
        rows.append(
            {"strategy": strategy, "seed": seed, "labels": len(labeled), "accuracy": accuracy}
            | {"nll": -log_likelihood(p, test[1]), "classes": len(y[labeled].unique())}
        )
        if len(labeled) + config.step > config.most:
            return rows
        # One order of all images a round, so that strategies see the same part as far as their labels allow.
        order = torch.randperm(len(X), generator=source)
        shown = order[~torch.isin(order, labeled)][: config.shown]
        chosen = choose(config, strategy, model, (X[labeled], y[labeled]), X[shown], seed + 1)
        labeled = torch.cat([labeled, shown[chosen]])


def choose(config: Config, strategy: str, model: nn.Module, known: Images, pool: Tensor, seed: int) -> Tensor:
    """Places in the pool."""
    generator = torch.Generator().manual_seed(seed)
    if strategy == RANDOM:
        return torch.arange(config.step)
    if strategy == ENTROPY:
        with torch.no_grad():
            return entropy(model(pool).softmax(1)).topk(config.step).indices
    posterior = mt.LinearizedLaplace(model, "classification", curvature="tangent").fit(
        known, em_steps=config.em_steps, num_samples=config.em_samples, final_samples=config.samples,
        generator=generator,
    )  # fmt: skip
    loader = batches(pool, torch.zeros(len(pool)), size=100)
    criterion = CRITERIA[strategy]
    return mt.decisions.most_informative(posterior, loader, config.step, criterion, generator=generator).indices


def area(table: list[Record], strategy: str) -> float:
    """Mean accuracy over all numbers of labels after the first, which all share, and over seeds."""
    first = min(row["labels"] for row in table)
    return statistics.fmean(r["accuracy"] for r in table if r["strategy"] == strategy and r["labels"] > first)


def claims(table: list[Record]) -> Iterator[Claim]:
    """Joint predictions are at least as good a guide as either rival."""
    for ours in CRITERIA:
        for rival in (ENTROPY, RANDOM):
            yield at_least(
                f"mean area under the accuracy curve, {ours} minus {rival}",
                measured=area(table, ours) - area(table, rival), limit=0.0,
            )  # fmt: skip


COLORS = dict(zip(STRATEGIES, (style.BLUE, style.GREEN, style.ORANGE, style.GRAY), strict=True))


def draw(record: Record) -> Figure:
    """Accuracy and NLL against labels: means and, faint, every seed."""
    table = record["table"]
    figure, axes = style.panels(2)
    for ax, (key, label) in zip(axes, (("accuracy", "test accuracy"), ("nll", "test NLL")), strict=True):
        for strategy, color in COLORS.items():
            rows = [row for row in table if row["strategy"] == strategy]
            labels = sorted({row["labels"] for row in rows})
            for seed in record["config"]["seeds"]:
                path = [row[key] for row in rows if row["seed"] == seed]
                ax.plot(labels, path, color=color, alpha=0.3, linewidth=1.0)
            means = [statistics.fmean(row[key] for row in rows if row["labels"] == n) for n in labels]
            ax.plot(labels, means, "o-", color=color, label=strategy)
        ax.set(title=label.capitalize() if key == "accuracy" else "Test NLL", xlabel="labels", ylabel=label)
        ax.legend()
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="active-learning",
    title="Labels by joint information of the tangent model, by entropy and at random, on MNIST",
    reproduces=("Beyond the thesis: the design criteria of section 7.4 for classification",),
    budgets={
        "quick": replace(FULL, step=20, seeds=(0, 1, 2)),
        "full": FULL,
        "thesis": replace(FULL, filters=(16, 32), pool=60_000, test_images=10_000),
    },
    run=run,
    draw=draw,
    data=lambda config: ("mnist",),
    sizes=lambda config: {"weights": num_weights(config.filters), "labels": config.most},
)
