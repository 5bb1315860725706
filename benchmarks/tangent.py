"""``JᵀBJV`` of a network in units of one training step, and the memory it takes.

A training step is one forward and one backward pass over the same batch, in training mode. With ``k`` tangents the
product needs two forward passes of the network, and for each tangent twice the work of a forward pass to push it and
twice to pull it back: ``(2 + 4k) / 3k`` training steps per sample where convolutions are all that counts, 2 for one
tangent and 1.4 for eight.

What helped, on one core: pushing several tangents in one forward-mode pass, 0.55 to 0.7 of a training step each instead
of 0.7 to 0.85; pulling cotangents one by one through a kept graph, where a batched backward pass took up to a third
more on convolutions (tiny networks are the other way round, and are batched); splitting batches so that no tensor
exceeds 32 MiB, beyond which the allocator asks the system for cleared pages every time: a third less time to push
through the large network. What did not: one pass that carries forward and reverse derivatives at once took three
training steps, since the tangents are recorded as well; channels last made no difference beyond the noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from experiments import style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.peer import GIB, Peer, interleave
from experiments.residual_networks import cifar_resnet, count, imagenet_resnet
from matheron.networks import TangentModel

LIMIT = 20 * GIB
CIFAR, IMAGENET = "ResNet-20", "ResNet-50"


@dataclass(frozen=True)
class Config:
    """Batches, numbers of tangents and of classes; the large network always has 1,000 classes."""

    batch: int = 64
    samples: tuple[int, ...] = (1, 8, 32)
    classes: tuple[int, ...] = (10, 1000)
    repeats: int = 7
    large_batch: int = 8
    large_samples: tuple[int, ...] = (1, 8, 32)
    large_repeats: int = 2


@dataclass(frozen=True)
class Problem:
    """One network on one batch."""

    network: str
    classes: int
    batch: int

    @property
    def label(self) -> str:
        """For claims and pictures."""
        return f"{self.network}, {self.classes:,} classes"

    def arguments(self) -> dict[str, Any]:
        """As a child takes them."""
        return {"network": self.network, "classes": self.classes, "batch": self.batch}


def build(network: str, classes: int) -> nn.Module:
    return cifar_resnet(20, classes=classes) if network == CIFAR else imagenet_resnet(50, classes=classes)


def inputs(network: str, classes: int, batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model, size = build(network, classes), 32 if network == CIFAR else 224
    return model, torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


def training(network: str, classes: int, batch: int) -> Callable[[], Tensor]:
    model, x, y = inputs(network, classes, batch)
    model.train()

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    return step


def product(network: str, classes: int, batch: int, samples: int) -> Callable[[], Tensor]:
    model, x, _ = inputs(network, classes, batch)
    tangent = TangentModel(model.eval())
    V = torch.randn(samples, tangent.num_weights)
    return lambda: tangent.sandwich(x, V, softmax_curvature)


def softmax_curvature(outputs: Tensor, tangents: Tensor) -> Tensor:
    """``B t`` with ``B = diag(p) − p pᵀ``."""
    p = outputs.softmax(-1)
    return p * (tangents - (p * tangents).sum(-1, keepdim=True))


def run(config: Config, progress: Progress) -> Report:
    table: list[Record] = []
    for problem, samples, repeats in problems(config):
        table += progress.once(problem.label, lambda p=problem, s=samples, r=repeats: measure(p, s, r, progress))
    return Report(table, list(claims(table, config)))


def problems(config: Config) -> Iterator[tuple[Problem, tuple[int, ...], int]]:
    for classes in config.classes:
        yield Problem(CIFAR, classes, config.batch), config.samples, config.repeats
    if config.large_samples:
        yield Problem(IMAGENET, 1000, config.large_batch), config.large_samples, config.large_repeats


def measure(problem: Problem, samples: tuple[int, ...], repeats: int, progress: Progress) -> list[Record]:
    """Each product in a child of its own beside a child that trains, one run of each in every round."""
    rows: list[Record] = []
    with torch.device("meta"):
        weights = count(build(problem.network, problem.classes))
    for k in progress(samples, problem.label):
        peers = [
            Peer("benchmarks.tangent:training", problem.arguments(), memory=LIMIT, timeout=3600.0),
            Peer("benchmarks.tangent:product", problem.arguments() | {"samples": k}, memory=LIMIT, timeout=3600.0),
        ]
        rounds = interleave(peers, repeats)
        for peer in peers:
            peer.close()
        step, ours = peers
        resident = ours.ready.get("resident", math.nan)
        rows.append(
            {
                "network": problem.network,
                "classes": problem.classes,
                "weights": weights,
                "batch": problem.batch,
                "samples": k,
                "training_seconds": statistics.median(seconds for seconds, _ in rounds),
                "seconds_per_sample": statistics.median(seconds / k for _, seconds in rounds),
                "steps_per_sample": statistics.median(ours / k / step for step, ours in rounds),
                "training_peak_bytes": step.peak,
                "peak_bytes": ours.peak,
                "extra_bytes": math.nan if ours.peak is None else ours.peak - resident,
                "ended": ours.ended,
            }
        )
    return rows


def claims(table: list[Record], config: Config) -> Iterator[Claim]:
    for row in table:
        name = f"training steps per sample, {row['network']}, {row['classes']:,} classes, {row['samples']} tangents"
        yield at_most(name, measured=number(row["steps_per_sample"]), limit=2.5)
    small = {(row["classes"], row["samples"]): number(row["extra_bytes"]) for row in table if row["network"] == CIFAR}
    few, many = min(config.classes), max(config.classes)
    for k in config.samples if few < many else ():
        ratio = small[many, k] / small[few, k]
        yield at_most(f"memory of {many:,} classes over {few}, {k} tangents", measured=ratio, limit=1.5)
    for row in table:
        if row["network"] == IMAGENET:
            peak = number(row["peak_bytes"]) / GIB
            yield at_most(f"peak memory of {IMAGENET}, {row['samples']} tangents, GiB", measured=peak, limit=20.0)


def number(value: float | None) -> float:
    """A measurement; what a child that ended did not measure is not a number."""
    return math.nan if value is None else float(value)


def draw(record: Record) -> Figure:
    figure, (cost, memory) = style.panels(2, width=5.0, height=3.6)
    lines: dict[str, list[Record]] = {}
    for row in record["table"]:
        lines.setdefault(Problem(row["network"], row["classes"], row["batch"]).label, []).append(row)
    markers = "os^"
    for (label, rows), color, marker in zip(
        lines.items(), (style.BLUE, style.SKY, style.ORANGE), markers, strict=False
    ):
        k = [row["samples"] for row in rows]
        cost.plot(k, [number(row["steps_per_sample"]) for row in rows], marker=marker, color=color, label=label)
        gib = [number(row["extra_bytes"]) / GIB for row in rows]
        memory.plot(k, gib, marker=marker, color=color)
        jacobian = 4 * rows[0]["batch"] * rows[0]["classes"] * rows[0]["weights"] / GIB
        memory.axhline(jacobian, color=color, linestyle=":")
    k = sorted({row["samples"] for row in record["table"]})
    cost.plot(k, [(2 + 4 * n) / (3 * n) for n in k], color=style.GRAY, linestyle=":", label="convolutions alone")
    cost.axhline(2.5, color=style.RED, linewidth=1.0, linestyle="--")
    cost.set(title="Cost of $J^T B J V$", xlabel="tangents", ylabel="training steps per sample", ylim=(0.0, None))
    memory.set(
        title="Memory; the Jacobian's dotted", xlabel="tangents", ylabel="GiB beyond model and data", yscale="log"
    )
    for axes in (cost, memory):
        axes.set_xscale("log", base=2)
        axes.set_xticks(k, [str(n) for n in k])
        axes.minorticks_off()
    cost.legend()
    return figure


FULL = Config()
EXPERIMENT = Experiment(
    id="tangent",
    title="Products with the curvature of a network, in training steps",
    reproduces=("no figure of the thesis: the product under every sample of chapters 5 to 7",),
    budgets={"quick": Config(samples=(1, 8), repeats=3, large_samples=()), "full": FULL, "thesis": replace(FULL)},
    run=run,
    draw=draw,
    sizes=lambda config: {"tangents": max((*config.samples, *config.large_samples))},
)
