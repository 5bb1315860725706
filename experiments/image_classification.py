"""A residual network on CIFAR-10: predictions one by one and together, under corruption, and out of distribution.

One network alone (MAP), an ensemble, laplace-torch's KFAC with its prior tuned by its marginal likelihood, and samples
of the tangent model: 64 functions each for the last two. Ours is the thesis' own: the g-prior, the curvature at the
network's predictions, and no offset, as the network is normalized and ends in a dense layer; the variants of the table
of section 5.4.3 are beside it. Affine parameters of batch norm are held for KFAC, which refuses them, and for ours
alike. Marginal scores are by the probit approximation, joint ones by averages over functions (thesis, section 6.3.2).

As in the thesis networks are large for their data and trained until they know them by heart, here without augmentation,
since it is the images themselves that the tangent model is fitted to. Width, epochs, batch and the curvature were
chosen on other images (training images from the 20,000th on, judged on those from the 40,000th on) and other seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import matheron as mt
from experiments import laplace_torch, style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.lenet import TINY, freeze_norms, mnist, trained_lenet
from experiments.residual_networks import cifar_resnet, count
from experiments.training import Images, Recipe, trained
from matheron.data import load
from matheron.evaluation import dyadic_log_likelihood, entropy, log_likelihood, ranking, reliability
from matheron.networks.prediction import probabilities

MAP, ENSEMBLE, KFAC, OURS = METHODS = ("MAP", "ensemble", "KFAC", "samples")
KAPPAS = (1, 2, 3, 4, 5)
NOISE = (0.0, 0.04, 0.06, 0.08, 0.09, 0.10)
"""Deviations of the noise added to pixels between 0 and 1: the severities of CIFAR-10-C's Gaussian noise."""

VARIANTS = {
    "at the optimum, no offset": {"offset": "simple"},
    "at the optimum": {"offset": "affine"},
    "at the weights": {"offset": "affine", "evidence": "network"},
}
"""What the evidence is that learns the prior."""


@dataclass(frozen=True)
class Config:
    """Networks, sizes and seeds."""

    depth: int = 8
    width: int = 10
    stride: int = 2
    images: int = 3_000
    test_images: int = 2_000
    epochs: int = 60
    batch: int = 32
    augment: bool = False
    networks: int = 5
    em_steps: int = 8
    em_samples: int = 6
    samples: int = 64
    traces: tuple[int, ...] = (1, 2, 6)
    priors: tuple[str, ...] = ("isotropic", "layerwise")
    start: float = 10.0
    """The precision of these from which EM starts."""
    shuffles: int = 10
    ood_images: int = 5_000
    ood_test: int = 2_000
    ood_epochs: int = 90
    seed: int = 0


Functions = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Mean ``(b, c)`` and functions ``(s, b, c)`` at a batch."""


def cifar(config: Config) -> tuple[Images, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Standardized training images, test pixels between 0 and 1, and the mean and deviation of each channel."""
    data = load("cifar10")
    X = data.train_images[: config.images].float() / 255.0
    mean, deviation = X.mean((0, 2, 3), keepdim=True), X.std((0, 2, 3), keepdim=True)
    test = data.test_images[: config.test_images].float() / 255.0
    standardized = ((X - mean) / deviation, data.train_labels[: config.images].long())
    return standardized, (test, data.test_labels[: config.test_images].long()), (mean, deviation)


def corrupted(pixels: Tensor, deviation: float, seed: int) -> Tensor:
    """With noise, cut off at black and white."""
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
    return (pixels + deviation * noise).clamp(0.0, 1.0)


def build(config: Config) -> nn.Module:
    """One network with fresh weights."""
    return cifar_resnet(config.depth, width=config.width, stride=config.stride)


def run(config: Config, progress: Progress) -> Report:
    """Train, then score every method on the same images."""
    warnings.simplefilter("ignore")
    data, test, scale = cifar(config)
    networks, training = [], 0.0
    for seed in range(config.networks):
        progress.note(f"network {seed + 1} of {config.networks}")
        recipe = Recipe(
            f"resnet {config.depth} {config.width} {config.stride}", config.images, config.epochs, config.seed + seed,
            batch=config.batch, augment=config.augment,
        )  # fmt: skip
        found = trained(recipe, lambda: build(config), data, progress)
        networks.append(freeze_norms(found.model))
        training += found.seconds
    model = networks[0]

    def part(name: str, functions: Functions, seconds: float, gradients: float | None) -> Record:
        row, curve = scores(name, functions, test, scale, config)
        return {"row": row | {"seconds": seconds, "gradients_per_image": gradients}, **curve}

    def alone() -> Record:
        return part(MAP, lambda x: (model(x), model(x)[None]), training / config.networks, config.epochs)

    def ensemble() -> Record:
        def together(x: Tensor) -> tuple[Tensor, Tensor]:
            return model(x), torch.stack([network(x) for network in networks])

        return part(ENSEMBLE, together, training, config.networks * config.epochs)

    def kfac() -> Record:
        began = time.perf_counter()
        functions = laplace_torch.functions(model, *data, num=config.samples, seed=config.seed)
        return part(KFAC, functions, time.perf_counter() - began, None)

    def ours() -> Record:
        posterior = fitted(model, data, config)
        seconds, num = posterior.report.seconds, config.em_samples
        found = part(
            OURS, lambda x: (model(x), posterior.functional_samples(x)), seconds, passes(posterior, num, config.samples)
        )
        return found | {"em": path(posterior), "method": posterior.report.method}

    table: list[Record] = []
    curves: dict[str, Any] = {"reliability": {}, "corruption": {}, "em": {}}
    for name, compute in {MAP: alone, ENSEMBLE: ensemble, KFAC: kfac, OURS: ours}.items():
        progress.note(name)
        found = progress.once(name, compute)
        table.append(found["row"])
        curves["reliability"][name], curves["corruption"][name] = found["reliability"], found["corruption"]
    for num in config.traces:
        # From as many samples as the posterior above, EM is that posterior's.
        known = num == config.em_samples
        trace = partial(trace_of_em, model, data, num, config)
        curves["em"][str(num)] = found["em"] if known else progress.once(f"EM, {num} samples", trace)
    images = (test[0] - scale[0]) / scale[1], test[1]
    for prior, label in progress([(prior, label) for prior in config.priors for label in VARIANTS], "evidences"):
        row = partial(variant, model, data, images, prior, label, config)
        table.append(progress.once(f"{prior}, {label}", row))
    progress.note("out of distribution")
    table += progress.once("out of distribution", lambda: list(out_of_distribution(config, progress)))
    return Report(table, list(claims(table, curves)), curves)


def scores(
    name: str, functions: Functions, test: Images, scale: tuple[Tensor, Tensor], config: Config
) -> tuple[Record, Record]:
    """One method on the test images, marginally and jointly, and its curves."""
    (pixels, y), (mean, deviation) = test, scale
    p, logs = scored(name, functions, (pixels - mean) / deviation, y)
    bins = reliability(p, y)
    row = {
        "method": name, "log_likelihood": log_likelihood(p, y), "error": wrong(p, y), "calibration_error": bins.error,
        **{f"joint_{k}": dyadic(logs, k, config) for k in KAPPAS},
    }  # fmt: skip
    noisy = [row["log_likelihood"]]
    for level in NOISE[1:]:
        x = (corrupted(pixels, level, config.seed) - mean) / deviation
        noisy.append(log_likelihood(scored(name, functions, x, y)[0], y))
    return row, {
        "reliability": {"confidence": bins.confidence, "accuracy": bins.accuracy}, "corruption": noisy,
    }  # fmt: skip


def fitted(
    model: nn.Module, data: Images, config: Config, num: int | None = None, final: int | None = None, **options: Any
) -> Any:
    """Samples of the tangent model, by the method that its size suggests."""
    options = {"prior": "g", "offset": "simple"} | options
    return mt.LinearizedLaplace(model, "classification", **options).fit(
        data, em_steps=config.em_steps, num_samples=num or config.em_samples, final_samples=final or config.samples,
        generator=torch.Generator().manual_seed(config.seed),
    )  # fmt: skip


def passes(posterior: mt.LinearizedLaplace, num: int, final: int) -> float:
    """Gradients per image: a pass of every sample and the mode in EM, then of the final samples."""
    assert posterior.report is not None
    learning = posterior.history[-1]["epochs"]
    return learning * (num + 1) + (posterior.report.epochs - learning) * final


def path(posterior: mt.LinearizedLaplace) -> list[float]:
    """The precision after each EM step."""
    return [step["precision"][0] for step in posterior.history] + posterior.prior_precision.tolist()


@torch.no_grad()
def scored(name: str, functions: Functions, x: Tensor, y: Tensor, size: int = 100) -> tuple[Tensor, Tensor]:
    """Class probabilities, and the log-probability of the label under every function."""
    ps, logs = [], []
    for batch, labels in zip(x.split(size), y.split(size), strict=True):
        mean, values = functions(batch)
        logs.append(values.log_softmax(-1)[:, torch.arange(len(labels)), labels])
        if name in (KFAC, OURS):
            ps.append(probabilities(mt.networks.Categorical(), mean, values - mean, "probit"))
        else:
            ps.append(values.softmax(-1).mean(0))
    return torch.cat(ps), torch.cat(logs, dim=1)


def dyadic(logs: Tensor, kappa: int, config: Any) -> float:
    """The same sets of images for every method, decided by the ``seed`` and ``shuffles`` of a configuration."""
    generator = torch.Generator().manual_seed(config.seed)
    return dyadic_log_likelihood(logs, kappa, shuffles=config.shuffles, generator=generator)


def wrong(p: Tensor, y: Tensor) -> float:
    """The share of wrong classes."""
    return float((p.argmax(1) != y).double().mean())


def trace_of_em(model: nn.Module, data: Images, num: int, config: Config) -> list[float]:
    """The precision along EM from another number of samples."""
    return path(fitted(model, data, config, num=num, final=1))


def variant(model: nn.Module, data: Images, test: Images, prior: str, label: str, config: Config) -> Record:
    """The log-likelihood with a prior learnt by another evidence."""
    posterior = fitted(model, data, config, prior=prior, prior_precision=config.start, **VARIANTS[label])
    p = torch.cat([posterior(x) for x in test[0].split(100)])
    return {"prior": prior, "evidence": label, "log_likelihood": log_likelihood(p, test[1])}


def out_of_distribution(config: Config, progress: Progress) -> Iterator[Record]:
    """Entropies on MNIST and KMNIST of a network trained on the former."""
    data, (X, y) = mnist(config.ood_images, config.ood_test)
    model = trained_lenet(TINY, config.ood_images, config.ood_epochs, config.seed, data, progress).model
    other = load("kmnist_subset").test_images[: config.ood_test].float() / 255.0
    # As standardized as the images the network knows.
    scale, shift = (X.max() - X.min()), X.min()
    other = other * scale + shift
    posterior = fitted(model, data, config)
    kfac = laplace_torch.functions(model, *data, num=config.samples, seed=config.seed)
    methods: dict[str, Functions] = {
        MAP: lambda x: (model(x), model(x)[None]),
        KFAC: kfac,
        OURS: lambda x: (model(x), posterior.functional_samples(x)),
    }
    for name, functions in methods.items():
        inside, outside = (scored(name, functions, x, y)[0] for x in (X, other))
        yield {
            "method": name, "set": "MNIST, KMNIST", "log_likelihood": log_likelihood(inside, y),
            "area": ranking(entropy(inside), entropy(outside)), "entropy_inside": float(entropy(inside).mean()),
            "entropy_outside": float(entropy(outside).mean()),
        }  # fmt: skip


def claims(table: Sequence[Record], curves: Record) -> Iterator[Claim]:
    """What the thesis reports of a larger network on CIFAR-100, here as differences in nats."""

    def above(name: str, difference: float, published: float | str) -> Claim:
        return at_least(name, measured=difference, limit=0.0, published=published)

    of = {row["method"]: row for row in table if "joint_1" in row}
    ours = of[OURS]
    for rival, published in ((MAP, 0.33), (KFAC, 0.05)):
        difference = ours["log_likelihood"] - of[rival]["log_likelihood"]
        yield above(f"marginal log-likelihood less that of {rival}", difference, published)
    for kappa, published in ((3, 0.06), (4, 0.98), (5, 2.65)):
        best = max(of[name][f"joint_{kappa}"] for name in METHODS if name != OURS)
        yield above(f"joint log-likelihood, κ = {kappa}, less the best other", ours[f"joint_{kappa}"] - best, published)
    for rival in (MAP, ENSEMBLE):
        difference = curves["corruption"][OURS][-1] - curves["corruption"][rival][-1]
        yield above(f"log-likelihood under the strongest noise less that of {rival}", difference, "above")
    ends = {int(num): path[-1] for num, path in curves["em"].items()}
    ratio = ends[min(ends)] / ends[max(ends)]
    yield at_most(
        f"precision from {min(ends)} sample over that from {max(ends)}, or its inverse",
        measured=max(ratio, 1.0 / ratio), limit=1.25, published="the same",
    )  # fmt: skip
    calibrated = ours["calibration_error"] / of[MAP]["calibration_error"]
    yield at_most("calibration error over MAP's", measured=calibrated, limit=1.0, published="below")
    learnt = {(row["prior"], row["evidence"]): row["log_likelihood"] for row in table if "prior" in row}
    for prior in sorted({prior for prior, _ in learnt}):
        for label, rival, published in (
            ("at the optimum", "at the weights", 0.38 if prior == "isotropic" else 0.37),
            ("at the optimum, no offset", "at the optimum", 0.078 if prior == "isotropic" else 0.085),
        ):
            difference = learnt[prior, label] - learnt[prior, rival]
            yield above(f"{prior} prior: log-likelihood {label} less {rival}", difference, published)
    areas = {row["method"]: row["area"] for row in table if "area" in row}
    yield above("KMNIST told from MNIST by entropy, area less MAP's", areas[OURS] - areas[MAP], "above")


COLORS = {MAP: style.GRAY, ENSEMBLE: style.GREEN, KFAC: style.ORANGE, OURS: style.BLUE}


def draw(record: Record) -> Figure:
    figure, (joint, corruption, bins, em) = style.panels(4, width=3.9, height=3.5)
    rows = {row["method"]: row for row in record["table"] if "joint_1" in row}
    for name, row in rows.items():
        per_label = [row[f"joint_{k}"] / max(1, 10 * (k - 1)) for k in KAPPAS]
        joint.plot(KAPPAS, per_label, marker="o", color=COLORS[name], label=name)
        corruption.plot(NOISE, record["curves"]["corruption"][name], marker="o", color=COLORS[name])
        found = record["curves"]["reliability"][name]
        bins.plot(found["confidence"], found["accuracy"], marker="o", color=COLORS[name])
    bins.plot([0, 1], [0, 1], color=style.INK, linewidth=0.8, linestyle=":")
    for shade, (num, path) in zip((style.SKY, style.BLUE, style.INK), record["curves"]["em"].items(), strict=False):
        em.plot(
            range(len(path)), path, marker="o", ms=3, color=shade, label=f"{num} samples" if num != "1" else "1 sample"
        )
    joint.set(title="Joint log-likelihood per label", xlabel="distinct images κ", ylabel="nats", xticks=KAPPAS)
    corruption.set(title="Noise added to test images", xlabel="deviation", ylabel="log-likelihood")
    bins.set(title="Calibration", xlabel="predicted probability", ylabel="share of right classes")
    em.set(title="EM", xlabel="step", ylabel="prior precision", yscale="log")
    joint.legend()
    em.legend()
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="image-classification",
    title="A residual network on CIFAR-10: marginal and joint predictions, corruption, out of distribution",
    reproduces=(
        "Table 5.2 (evidences for a residual network on CIFAR-10)",
        "Tables 6.1 and 6.2 (marginal and joint log-likelihood)",
        "Figure 6.4 (EM for few samples), figure 6.8 (distribution shift), figure 6.9 (reliability diagram)",
    ),
    budgets={
        "quick": replace(
            FULL, width=8, images=1_000, test_images=500, priors=("isotropic",), ood_images=1_000, ood_test=500,
        ),
        "full": FULL,
        "thesis": replace(
            FULL, depth=20, width=64, stride=1, images=50_000, test_images=10_000, epochs=90, batch=128, augment=True,
            ood_images=60_000, ood_test=10_000,
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: ("cifar10", "mnist", "kmnist_subset"),
    sizes=lambda config: {"weights": count(build(config)), "images": config.images},
)  # fmt: skip
