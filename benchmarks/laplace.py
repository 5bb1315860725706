"""Posterior predictions of a trained network beside laplace-torch: seconds, memory and scores.

One network on MNIST with the affine parameters of its batch norms held. Ours are 64 samples of all weights with the
g-prior, which EM learns on the way, by conjugate gradients or descent as the sizes suggest, without the tangent model's
offset and with the curvature at its own predictions, as the page on trained networks advises for such a network.
laplace-torch has KFAC over all layers and the whole covariance of the last layer, both with one prior precision tuned
by its marginal likelihood, all at its defaults. Each in a child process. Test images go through in batches of 128,
those of KFAC in batches of 4: its Jacobians take time and memory that grow with the square of the batch, and of 1 to
128 images that was the fastest. A first batch warms up and is not counted.

Functions are coherent: one draw of the weights gives the values at all images. laplace-torch's ``functional_samples``
draws every image by itself, so that its functions are made here from its weight samples and its Jacobians. The joint
score is of ten labels, five of one image and five of another, per label (thesis, section 6.3.2).

The few images of the quick budget are learnt by heart in the 90 epochs of the thesis' appendix: fewer were judged on
other training images and another seed to leave the network half trained.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file
from torch import Tensor, nn

import matheron as mt
from experiments import laplace_torch, style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.lenet import NAMES, SMALL, TINY, mnist, num_weights, restored, trained_lenet
from experiments.peer import GIB, Peer
from matheron.evaluation import log_likelihood

OURS, KFAC, LAST = "matheron, 64 samples", "laplace-torch, KFAC", "laplace-torch, last layer"
MAP = "network alone"
METHODS = (OURS, KFAC, LAST)
TIMES = {"fit": "fit", "tune": "tune the prior", "predict": "predict", "functions": "joint functions"}


@dataclass(frozen=True)
class Config:
    """The network, its data, and limits for each child."""

    filters: tuple[int, ...] = SMALL
    images: int = 10_000
    test_images: int = 2_000
    epochs: int = 30
    seed: int = 0
    samples: int = 64
    batch: int = 128
    kfac_batch: int = 4
    pairs: int = 1_000
    repeats: int = 3
    seconds: float = 14_400.0
    memory: int = 20 * GIB


class Posterior(Protocol):
    """What is timed: a fit in two parts, class probabilities, and functions of a batch."""

    def fit(self, X: Tensor, y: Tensor) -> tuple[float, float]:
        """Seconds of the fit and of the prior."""

    def probabilities(self, x: Tensor) -> Tensor:
        """``(b, c)``."""

    def functions(self, x: Tensor) -> Tensor:
        """``(s, b, c)``, the same functions at every call."""


class Ours:
    """Samples of the tangent model, by the method that its size suggests."""

    def __init__(self, model: nn.Module, config: Config) -> None:
        self.config = config
        self.posterior = mt.LinearizedLaplace(model, "classification", offset="simple", curvature="tangent")

    def fit(self, X: Tensor, y: Tensor) -> tuple[float, float]:
        """EM and the final samples."""
        began, generator = time.perf_counter(), torch.Generator().manual_seed(self.config.seed)
        self.posterior.fit((X, y), final_samples=self.config.samples, generator=generator)
        learning = self.posterior.history[-1]["seconds"]
        return time.perf_counter() - began - learning, learning

    def probabilities(self, x: Tensor) -> Tensor:
        """Probit."""
        return self.posterior(x)

    def functions(self, x: Tensor) -> Tensor:
        """Of the samples."""
        return self.posterior.functional_samples(x)


class Theirs:
    """laplace-torch."""

    def __init__(self, model: nn.Module, config: Config, *, last_layer: bool) -> None:
        structure = ("last_layer", "full") if last_layer else ("all", "kron")
        self.posterior = laplace_torch.library().Laplace(
            model, "classification", subset_of_weights=structure[0], hessian_structure=structure[1]
        )
        self.last_layer, self.config, self.weights = last_layer, config, torch.empty(0)

    def fit(self, X: Tensor, y: Tensor) -> tuple[float, float]:
        """The curvature, then the marginal likelihood."""
        began = time.perf_counter()
        self.posterior.fit(laplace_torch.batches(X, y, self.config.batch))
        fitted = time.perf_counter()
        self.posterior.optimize_prior_precision()
        return fitted - began, time.perf_counter() - fitted

    def probabilities(self, x: Tensor) -> Tensor:
        """Probit."""
        return self.posterior(x, link_approx="probit")

    def functions(self, x: Tensor) -> Tensor:
        """``f + J(w − ŵ)``."""
        backend = self.posterior.backend
        if not len(self.weights):
            generator = torch.Generator().manual_seed(self.config.seed)
            self.weights = self.posterior.sample(self.config.samples, generator=generator) - self.posterior.mean
        J, mean = backend.last_layer_jacobians(x) if self.last_layer else backend.jacobians(x)
        return mean.detach() + torch.einsum("bcd,sd->sbc", J.detach(), self.weights)


def work(method: str, filters: list[int], state: str, **sizes: Any) -> Callable[[], Mapping[str, Any]]:
    """In a child: everything of one method."""
    config = Config(filters=tuple(filters), **sizes)
    (X, y), (X_test, y_test) = mnist(config.images, config.test_images)
    model = restored(filters, state)

    def run() -> Mapping[str, Any]:
        warnings.simplefilter("ignore")
        posterior: Posterior = (
            Ours(model, config) if method == OURS else Theirs(model, config, last_layer=method == LAST)
        )
        fit, tune = posterior.fit(X, y)
        parts = X_test.split(config.kfac_batch if method == KFAC else config.batch)
        found: dict[str, Any] = {"fit": fit, "tune": tune}
        posterior.probabilities(parts[0])
        began = time.perf_counter()
        p = torch.cat([posterior.probabilities(x) for x in parts])
        found["predict"] = time.perf_counter() - began
        posterior.functions(parts[0])
        began = time.perf_counter()
        functions = torch.cat([posterior.functions(x) for x in parts], dim=1)
        found["functions"] = time.perf_counter() - began
        return found | {"nll": -log_likelihood(p, y_test), "joint_nll": joint_nll(functions, y_test, config)}

    return run


def joint_nll(functions: Tensor, y: Tensor, config: Config) -> float:
    """``−log E_f Π p(y | f)`` of five labels of one image and five of another, per label, over random pairs."""
    generator = torch.Generator().manual_seed(config.seed)
    first, second = torch.randint(len(y), (2, config.pairs), generator=generator)
    logs = functions.double().log_softmax(-1)[:, torch.arange(len(y)), y]
    joint = 5.0 * (logs[:, first] + logs[:, second])
    return float(-(joint.logsumexp(0) - math.log(len(joint))).mean() / 10.0)


def run(config: Config, progress: Progress) -> Report:
    """Every method in a child of its own, in turn."""
    data, (X_test, y_test) = mnist(config.images, config.test_images)
    network = trained_lenet(config.filters, config.images, config.epochs, config.seed, data, progress)
    with torch.no_grad():
        outputs = network.model(X_test)
    table: list[Record] = [
        {
            "method": MAP,
            "nll": -log_likelihood(outputs.softmax(1), y_test),
            "joint_nll": joint_nll(outputs[None], y_test, config),
            "error": float((outputs.argmax(1) != y_test).double().mean()),
            "training": network.seconds,
        }
    ]
    with TemporaryDirectory() as folder:
        state = str(Path(folder) / "network.safetensors")
        save_file(network.model.state_dict(), state)
        table += [
            progress.once(method, lambda m=method: measure(config, m, state)) for method in progress(METHODS, "methods")
        ]
    return Report(table, list(claims(table)))


def measure(config: Config, method: str, state: str) -> Record:
    """Medians over runs, in one child; scores are the same in all."""
    names = ("images", "test_images", "seed", "samples", "batch", "kfac_batch", "pairs")
    sizes = {name: getattr(config, name) for name in names}
    arguments = {"method": method, "filters": config.filters, "state": state, **sizes}
    peer = Peer("benchmarks.laplace:work", arguments, memory=config.memory, timeout=config.seconds)
    for _ in range(config.repeats):
        peer.run()
    peer.close()
    row: Record = {"method": method, "peak_bytes": peer.peak, "ended": peer.ended}
    for key in (*TIMES, "nll", "joint_nll"):
        row[key] = statistics.median(answer[key] for answer in peer.runs) if peer.runs else math.nan
    return row


def claims(table: list[Record]) -> Iterator[Claim]:
    """No more memory, faster predictions and functions, better scores."""
    rows = {row["method"]: {key: math.nan if v is None else v for key, v in row.items()} for row in table}

    def ratio(key: str, other: str) -> float:
        return rows[OURS][key] / rows[other][key]

    for other in (KFAC, LAST):
        yield at_most(f"peak memory over that of {other}", measured=ratio("peak_bytes", other), limit=1.0)
    yield at_most(f"seconds to predict over those of {KFAC}", measured=ratio("predict", KFAC), limit=1.0)
    yield at_most(f"seconds of joint functions over those of {KFAC}", measured=ratio("functions", KFAC), limit=1.0)
    for key, label in (("nll", "test NLL"), ("joint_nll", "joint NLL")):
        for other in (KFAC, LAST, MAP):
            difference = rows[OURS][key] - rows[other][key]
            yield at_most(f"{label} less that of {other}", measured=difference, limit=0.0)


def draw(record: Record) -> Figure:
    """Seconds, memory, scores."""
    rows = {row["method"]: row for row in record["table"]}
    figure = Figure(figsize=(13.0, 3.6), layout="constrained")
    seconds, memory, scores = figure.subplots(1, 3, width_ratios=(2.2, 1.0, 1.6))
    colors = {OURS: style.BLUE, KFAC: style.ORANGE, LAST: style.GREEN, MAP: style.GRAY}
    for place, method in enumerate(METHODS):
        row = rows[method]
        values = [math.nan if row[key] is None else row[key] for key in TIMES]
        seconds.bar([i + 0.27 * (place - 1) for i in range(len(TIMES))], values, 0.25, color=colors[method])
        memory.bar(place, math.nan if row["peak_bytes"] is None else row["peak_bytes"] / GIB, color=colors[method])
    for place, method in enumerate((*METHODS, MAP)):
        values = [math.nan if rows[method][key] is None else rows[method][key] for key in ("nll", "joint_nll")]
        scores.bar([i + 0.21 * (place - 1.5) for i in range(2)], values, 0.19, color=colors[method], label=method)
    config = record["config"]
    name, images = NAMES[tuple(config["filters"])], config["images"]
    seconds.set_xticks(range(len(TIMES)), TIMES.values())
    seconds.set(yscale="log", ylabel="seconds", title=f"{name}, {images:,} images, {config['test_images']:,} predicted")
    memory.set_xticks(range(len(METHODS)), ["ours", "KFAC", "last layer"])
    memory.set(ylabel="GiB", title="Peak memory")
    scores.set_xticks(range(2), ["test", "joint, ten labels"])
    scores.set(ylabel="nats per label", title="Negative log-likelihood")
    scores.legend(fontsize=8)
    return figure


FULL = Config()
EXPERIMENT = Experiment(
    id="laplace",
    title="Predictions of a trained network beside laplace-torch: seconds, memory, scores",
    reproduces=("no figure of the thesis: its section 6.3.1 compares with the same library by fidelity",),
    budgets={
        "quick": replace(FULL, filters=TINY, images=1_000, epochs=90, repeats=1, seconds=1_800.0, memory=10 * GIB),
        "full": FULL,
        "thesis": replace(FULL, images=60_000, epochs=90),
    },
    run=run,
    draw=draw,
    data=lambda config: ("mnist",),
    sizes=lambda config: {"weights": num_weights(config.filters), "images": config.images},
)
