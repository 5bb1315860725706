"""Where the evidence is taken, across architectures: at the tangent model's optimum or at the network's weights.

A transformer on point clouds of MNIST, a CNN, a residual network, one with normalization first and one without (FixUp),
each trained as in the appendix. A single and a layerwise prior precision are learnt by maximizing 𝓖 at the tangent
model's optimum or at the weights; the posterior differs by the precision alone, and the network's own output stays the
mean. Beside the thesis' comparison stands the tangent model without its offset, and with the curvature at its own
predictions. Then, for the residual network: the point of the Hessian, biases left out, weights of the two optima, and
how far the two predictive distributions are from each other as training goes on.

Networks are trained until they know their images by heart, or nearly so. Sizes, epochs and the batch were chosen on
other images (training images from the 20,000th on, judged on those from the 40,000th on) and another seed.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.lenet import SMALL, lenet, mnist
from experiments.small_networks import Kind, PointTransformer, point_clouds, residual_network
from experiments.training import Images, Recipe, trained
from matheron.evaluation import log_likelihood

TRANSFORMER, CNN, RESNET, PRE, FIXUP = NETWORKS = ("Transformer", "CNN", "ResNet", "Pre-ResNet", "FixUp")
PUBLISHED = {
    (TRANSFORMER, "isotropic"): 0.148, (CNN, "isotropic"): 0.228, (RESNET, "isotropic"): 0.235,
    (PRE, "isotropic"): 0.203, (FIXUP, "isotropic"): 0.098, (TRANSFORMER, "layerwise"): 0.0,
    (CNN, "layerwise"): 0.18, (RESNET, "layerwise"): 0.22, (PRE, "layerwise"): 0.223, (FIXUP, "layerwise"): 0.139,
}  # fmt: skip
"""NLL at the weights less that at the optimum."""

OPTIMUM, WEIGHTS, SIMPLE, FOLLOWED = "at the optimum", "at the weights", "no offset", "no offset, own curvature"
EVIDENCES: dict[str, dict[str, str]] = {
    OPTIMUM: {},
    WEIGHTS: {"evidence": "network"},
    SIMPLE: {"offset": "simple"},
    FOLLOWED: {"offset": "simple", "curvature": "tangent"},
}


@dataclass(frozen=True)
class Config:
    """Sizes of the appendix' small networks."""

    cnn: tuple[int, int, int] = SMALL
    residual: tuple[int, int, int] = (12, 24, 32)
    transformer: tuple[int, int] = (30, 60)
    points: int = 100
    images: int = 3_000
    test_images: int = 2_000
    epochs: int = 45
    attention_epochs: int = 120
    """Of the transformer, which learns slowly."""
    batch: int = 32
    priors: tuple[str, ...] = ("isotropic", "layerwise")
    em_steps: int = 8
    em_samples: int = 6
    samples: int = 64
    stages: tuple[int, ...] = (3, 9, 27, 45)
    seeds: tuple[int, ...] = (0,)


def build(name: str, config: Config) -> nn.Module:
    """One network with fresh weights."""
    if name == TRANSFORMER:
        return PointTransformer(*config.transformer)
    if name == CNN:
        return lenet(config.cnn)
    kinds: dict[str, Kind] = {RESNET: "ResNet", PRE: "Pre-ResNet", FIXUP: "FixUp"}
    return residual_network(config.residual, kinds[name])


def recipe_of(name: str, config: Config, seed: int, epochs: int) -> Recipe:
    """The appendix' optimizers."""
    sizes = {TRANSFORMER: config.transformer, CNN: config.cnn}.get(name, config.residual)
    recipe = Recipe(f"{name} {sizes}", config.images, epochs, seed, batch=config.batch)
    if name == TRANSFORMER:
        return replace(recipe, step=3e-3, adam=True)
    return replace(recipe, step=1e-2, adam=True) if name == FIXUP else recipe


def inputs_of(name: str, images: Tensor, config: Config) -> Tensor:
    """Images, or their points."""
    if name != TRANSFORMER:
        return images
    return point_clouds(images, config.points, torch.Generator().manual_seed(0))


def run(config: Config, progress: Progress) -> Report:
    """Every network and seed, then the questions about the residual network."""
    warnings.simplefilter("ignore")
    data, test = mnist(config.images, config.test_images)
    table: list[Record] = []
    for seed in config.seeds:
        for name in NETWORKS:
            progress.note(f"{name}, seed {seed}")
            table += one_network(name, seed, data, test, config, progress)
    progress.note("the residual network")
    rest, curves = questions(data, test, config, progress)
    return Report(table + rest, list(claims(table, rest, config)), curves)


def one_network(name: str, seed: int, data: Images, test: Images, config: Config, progress: Progress) -> list[Record]:
    """The NLL of one trained network under every prior and evidence."""
    X, X_test = (inputs_of(name, images, config) for images in (data[0], test[0]))
    epochs = config.attention_epochs if name == TRANSFORMER else config.epochs
    model = trained(recipe_of(name, config, seed, epochs), lambda: build(name, config), (X, data[1]), progress).model
    row = {"network": name, "seed": seed, "map_nll": nll_of(model(X_test).softmax(1), test[1])}

    def one_posterior(prior: str, evidence: str) -> Record:
        posterior = fitted(model, (X, data[1]), prior, seed, config, **EVIDENCES[evidence])
        return row | {"prior": prior, "evidence": evidence, **scores(posterior, X_test, test[1])}

    return [
        progress.once(f"{name}, seed {seed}, {prior}, {evidence}", lambda p=prior, e=evidence: one_posterior(p, e))
        for prior in config.priors
        for evidence in progress(EVIDENCES, f"{name}, {prior}")
    ]


def fitted(
    model: nn.Module, data: Images, prior: str, seed: int, config: Config, **options: Any
) -> mt.LinearizedLaplace:
    """A prior by EM, and functions."""
    posterior = mt.LinearizedLaplace(model, "classification", prior, **options)
    return posterior.fit(
        data, em_steps=config.em_steps, num_samples=config.em_samples, final_samples=config.samples,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def scores(posterior: mt.LinearizedLaplace, X: Tensor, y: Tensor) -> Record:
    """NLL by the probit approximation, and what was learnt."""
    p = torch.cat([posterior(x) for x in X.split(100)])
    return {
        "nll": nll_of(p, y),
        "precision": posterior.prior_precision.log().mean().exp().item(),
        "effective_dimension": posterior.effective_dimension,
        "mode_norm": None if posterior.mode is None else float(posterior.mode.norm()),
        "weight_norm": float(posterior.tangent.weights.norm()),
    }


def nll_of(p: Tensor, y: Tensor) -> float:
    """Minus the mean log-likelihood."""
    return -log_likelihood(p.detach(), y)


def questions(data: Images, test: Images, config: Config, progress: Progress) -> tuple[list[Record], Record]:
    """The point of the Hessian, biases, the two optima's weights, and early stopping, of the residual network."""
    seed = config.seeds[0]

    def network(epochs: int) -> nn.Module:
        return trained(recipe_of(RESNET, config, seed, epochs), lambda: build(RESNET, config), data, progress).model

    def answer(label: str, options: dict[str, Any]) -> Record:
        posterior = fitted(network(config.epochs), data, "isotropic", seed, config, **options)
        return {"question": label, **scores(posterior, test[0], test[1])}

    def stop(epochs: int) -> tuple[Record, Record]:
        # The step falls as it would in the whole training: this is the same network, stopped.
        stopped = network(epochs)
        both = [fitted(stopped, data, "isotropic", seed, config, **EVIDENCES[e]) for e in (OPTIMUM, WEIGHTS)]
        deviations = [torch.cat([deviation(p, x) for x in test[0].split(100)]) for p in both]
        distance = float((deviations[0] - deviations[1]).square().sum(1).mean().sqrt())
        row = {"stopped": epochs, "distance": distance, "map_nll": nll_of(stopped(test[0]).softmax(1), test[1])}
        mode = both[0].mode
        assert mode is not None
        return row, {"network": quantiles(both[0].tangent.weights), "tangent model": quantiles(mode)}

    cases: dict[str, dict[str, Any]] = {
        "Hessian at the optimum": {"curvature": "tangent"},
        "biases left out": {"parameters": "no_biases"},
        "biases left out, at the weights": {"parameters": "no_biases", "evidence": "network"},
    }
    table = [
        progress.once(label, lambda label=label, options=options: answer(label, options))
        for label, options in progress(cases.items(), "questions")
    ]
    stops = [
        progress.once(f"stopped after {epochs}", lambda epochs=epochs: stop(epochs))
        for epochs in progress(config.stages, "early stopping")
    ]
    return table + [row for row, _ in stops], {"weights": stops[-1][1]}


def deviation(posterior: mt.LinearizedLaplace, x: Tensor) -> Tensor:
    """Of every logit: Gaussian marginals with one mean are apart by the difference of these."""
    functions = posterior.functional_samples(x)
    return (functions - posterior.tangent(x)).square().mean(0).sqrt()


def quantiles(values: Tensor) -> list[float]:
    """From the 1st to the 99th percentile."""
    return torch.quantile(values, torch.linspace(0.01, 0.99, 99)).tolist()


def claims(table: Sequence[Record], rest: Sequence[Record], config: Config) -> Iterator[Claim]:
    """The optimum's evidence is the better one on every architecture, whatever else is chosen."""

    def mean(name: str, prior: str, evidence: str) -> float:
        found = [r["nll"] for r in table if (r["network"], r["prior"], r["evidence"]) == (name, prior, evidence)]
        return statistics.fmean(found)

    for name in NETWORKS:
        for prior in config.priors:
            difference = mean(name, prior, WEIGHTS) - mean(name, prior, OPTIMUM)
            yield at_least(
                f"{name}, {prior}: NLL at the weights less at the optimum", measured=difference, limit=0.0,
                published=PUBLISHED[name, prior],
            )  # fmt: skip
    for name in NETWORKS:
        own = statistics.fmean(r["map_nll"] for r in table if r["network"] == name)
        yield at_most(
            f"{name}: NLL without offset and with its own curvature less the network's alone",
            measured=mean(name, "isotropic", FOLLOWED) - own, limit=0.0,
        )  # fmt: skip
    of = {row["question"]: row["nll"] for row in rest if "question" in row}
    gain = mean(RESNET, "isotropic", WEIGHTS) - mean(RESNET, "isotropic", OPTIMUM)
    hessian = abs(of["Hessian at the optimum"] - mean(RESNET, "isotropic", OPTIMUM))
    yield at_most(
        "effect of the Hessian's point over that of the evidence", measured=hessian / abs(gain), limit=1.0,
        published="dominated",
    )  # fmt: skip
    without = of["biases left out, at the weights"] - of["biases left out"]
    yield at_least("the same gain without biases", measured=without, limit=0.0, published="unchanged")
    distances = [row["distance"] for row in rest if "distance" in row]
    yield at_least(
        "distance of the two predictions, last over first stop", measured=distances[-1] / distances[0], limit=1.0,
        published="grows",
    )  # fmt: skip


COLORS = {OPTIMUM: style.BLUE, WEIGHTS: style.ORANGE, SIMPLE: style.SKY, FOLLOWED: style.GREEN}


def draw(record: Record) -> Figure:
    priors = record["config"]["priors"]
    figure, axes = style.panels(len(priors) + 2, width=4.2, height=3.6)
    rows = [row for row in record["table"] if "evidence" in row]
    for ax, prior in zip(axes, priors, strict=False):
        for shift, evidence in zip((-0.24, -0.08, 0.08, 0.24), EVIDENCES, strict=True):
            for place, name in enumerate(NETWORKS):
                found = [r["nll"] for r in rows if (r["network"], r["prior"], r["evidence"]) == (name, prior, evidence)]
                label = evidence if place == 0 else None
                ax.bar(place + shift, statistics.fmean(found), 0.15, color=COLORS[evidence], label=label)
                own = statistics.fmean(r["map_nll"] for r in rows if r["network"] == name)
                ax.plot([place - 0.4, place + 0.4], [own, own], color=style.INK, linewidth=0.9)
        ax.set_xticks(range(len(NETWORKS)), NETWORKS, fontsize=7)
        ax.set(title=f"{prior} prior; the network alone in black", ylabel="test NLL")
    axes[0].set_ylim(top=1.35 * axes[0].get_ylim()[1])
    axes[0].legend(fontsize=7)
    histogram, stops = axes[-2], axes[-1]
    levels = [0.01 * (i + 1) for i in range(99)]
    for (label, values), color in zip(record["curves"]["weights"].items(), (style.ORANGE, style.BLUE), strict=True):
        histogram.plot(values, levels, color=color, label=label)
    histogram.set(title="Weights of the residual network", xlabel="value", ylabel="share below")
    histogram.legend()
    found = [row for row in record["table"] if "stopped" in row]
    stops.plot([row["stopped"] for row in found], [row["distance"] for row in found], marker="o", color=style.BLUE)
    stops.set(title="Optimum and weights: how far apart", xlabel="epochs of training", ylabel="Wasserstein-2 of logits")
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="architectures",
    title="Evidence at the tangent model's optimum and at the weights, across architectures",
    reproduces=(
        "Table 5.1 (recommendations across architectures, but for the U-net)",
        "Figure 5.4 (weights of the two optima), figure 5.8 (Hessian and biases), figure 5.9 (early stopping)",
    ),
    budgets={
        "quick": replace(
            FULL, cnn=(8, 12, 12), residual=(6, 8, 12), transformer=(12, 24), points=32, images=1_000,
            test_images=1_000, priors=("isotropic",), stages=(9, 45),
        ),
        "full": FULL,
        "thesis": replace(
            FULL, images=60_000, test_images=10_000, epochs=90, attention_epochs=90, batch=128, points=351,
            stages=(10, 30, 60, 90), seeds=(0, 1, 2, 3, 4),
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: ("mnist",),
    sizes=lambda config: {
        "weights": {name: sum(p.numel() for p in build(name, config).parameters()) for name in NETWORKS}
    },
)  # fmt: skip
