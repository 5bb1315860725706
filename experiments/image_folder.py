"""A residual network on any folder of images, read one by one: error bars where neither images nor Jacobians fit.

``folder`` lies under the data directory and has ``train`` and ``val``, each with a folder of images for every class, as
ImageNet has. The network is trained here, or read from ``weights``, a ``.safetensors`` file in the folder with the
names of :func:`experiments.residual_networks.imagenet_resnet`. ``--set depth=18`` and ``--set fixup=True`` choose other
networks. Posterior functions are those of the thesis: the g-prior, no offset, and samples by stochastic descent; priors
learnt by the evidences of section 5.4.3 are beside it. Small budgets write a folder of CIFAR-10 images for themselves;
what they show is that the way works, and their claims are those of the large ones.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least
from experiments.harness import Experiment, Progress, Record, Report
from experiments.image_classification import COLORS, KAPPAS, MAP, OURS, VARIANTS, dyadic, path, wrong
from experiments.residual_networks import count, imagenet_resnet
from experiments.training import Recipe, trained
from matheron.data import ImageFolder, load
from matheron.data.files import data_root
from matheron.evaluation import log_likelihood
from matheron.networks.prediction import probabilities


@dataclass(frozen=True)
class Config:
    """Network, folder and sizes; ``most`` images of every class, all where it is zero."""

    folder: str = "imagenet"
    weights: str = ""
    depth: int = 50
    width: int = 64
    fixup: bool = False
    size: int = 224
    classes: int = 1000
    most: int = 0
    epochs: int = 90
    batch: int = 256
    step: float = 0.1
    em_steps: int = 6
    em_samples: int = 6
    em_epochs: float = 10.0
    samples: int = 90
    product_batch: int = 32
    evidences: bool = False
    shuffles: int = 10
    device: str = "cpu"
    seed: int = 0


@contextmanager
def folders(config: Config) -> Iterator[tuple[ImageFolder, ImageFolder, Path]]:
    """Images to learn from and to score, and the folder that holds both."""
    most = config.most or None
    with tempfile.TemporaryDirectory() as beside:
        root = Path(beside) if not config.folder else (data_root(None) or Path()) / config.folder
        if not config.folder:
            write(root, config)
        yield (
            ImageFolder(root / "train", size=config.size, most=most),
            ImageFolder(root / "val", size=config.size),
            root,
        )


def write(root: Path, config: Config) -> None:
    """Some of CIFAR-10 as files; the same number of images to score as to learn from."""
    from PIL import Image

    data = load("cifar10")
    for part, images, labels in (
        ("train", data.train_images, data.train_labels), ("val", data.test_images, data.test_labels)
    ):  # fmt: skip
        for label in range(config.classes):
            place = root / part / f"class {label}"
            place.mkdir(parents=True)
            for number, image in enumerate(images[labels == label][: config.most]):
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:05}.png")


def build(config: Config) -> nn.Module:
    """One network with fresh weights."""
    return imagenet_resnet(config.depth, classes=config.classes, width=config.width, fixup=config.fixup)


def run(config: Config, progress: Progress) -> Report:
    warnings.simplefilter("ignore")
    with folders(config) as (train, test, root):
        if len(train.classes) != config.classes:
            raise ValueError(f"{root} has {len(train.classes)} classes; --set classes={len(train.classes)}")
        model = network(config, train, root, progress).to(config.device)
        table, logs = [], {}
        alone, logs[MAP] = scored(model, None, test, config)
        table.append({"method": MAP, **alone})
        cases: dict[str, dict[str, Any]] = {OURS: {"prior": "g", "offset": "simple"}}
        if config.evidences:
            cases |= {f"isotropic, {label}": {"prior": "isotropic", **options} for label, options in VARIANTS.items()}
        curves: Record = {"em": {}}
        for name, options in cases.items():
            progress.note(name)
            posterior = fitted(model, train, config, options)
            assert posterior.report is not None
            scores, logs[name] = scored(model, posterior, test, config)
            facts = {"seconds": posterior.report.seconds, "solver": posterior.report.method}
            table.append({"method": name, **scores, **facts})
            curves["em"][name] = path(posterior)
        for row in table:
            row |= {f"joint_{kappa}": dyadic(logs[row["method"]], kappa, config) for kappa in KAPPAS}
    return Report(table, list(claims(table)), curves)


def network(config: Config, train: ImageFolder, root: Path, progress: Progress) -> nn.Module:
    """The network whose weights are given, or one trained here."""
    if config.weights:
        model = build(config)
        model.load_state_dict(load_file(root / config.weights))
        return model.eval()
    recipe = Recipe(
        f"imagenet resnet {config.depth} {config.width} {config.fixup} {config.size} {config.folder or 'cifar10'}",
        len(train), config.epochs, config.seed, batch=config.batch, step=config.step, adam=config.fixup,
    )  # fmt: skip
    return trained(recipe, lambda: build(config).to(config.device), train, progress).model


def fitted(model: nn.Module, train: ImageFolder, config: Config, options: Record) -> mt.LinearizedLaplace:
    """Samples by stochastic descent, whatever the size."""
    la = mt.LinearizedLaplace(model, "classification", **options)
    return la.fit(
        DataLoader(train, config.product_batch), em_steps=config.em_steps, num_samples=config.em_samples,
        final_samples=config.samples, method="sgd", descent=mt.linear.Descent(epochs=config.em_epochs),
        generator=config.seed,
    )  # fmt: skip


@torch.no_grad()
def scored(
    model: nn.Module, posterior: mt.LinearizedLaplace | None, test: ImageFolder, config: Config
) -> tuple[Record, Tensor]:
    """The marginal log-likelihood and error, and the log-probability of every label under every function."""
    ps, logs, labels = [], [], []
    for x, y in DataLoader(test, config.product_batch):
        x, y = x.to(config.device), y.to(config.device)
        mean = model(x)
        values = mean[None] if posterior is None else posterior.functional_samples(x)
        logs.append(values.log_softmax(-1)[:, torch.arange(len(y)), y].cpu())
        deviations = values - mean
        p = mean.softmax(-1) if posterior is None else probabilities(posterior.likelihood, mean, deviations, "probit")
        ps.append(p.cpu())
        labels.append(y.cpu())
    p, y = torch.cat(ps), torch.cat(labels)
    return {"log_likelihood": log_likelihood(p, y), "error": wrong(p, y)}, torch.cat(logs, dim=1)


def claims(table: Sequence[Record]) -> Iterator[Claim]:
    """Ours against the network alone, as the thesis has it for ResNet-50 on ImageNet."""
    of = {row["method"]: row for row in table}
    ours, alone = of[OURS], of[MAP]
    for key, name, published in (
        ("log_likelihood", "marginal log-likelihood", 0.012), ("joint_3", "joint log-likelihood, κ = 3,", 3.67),
        ("joint_5", "joint log-likelihood, κ = 5,", 7.63),
    ):  # fmt: skip
        difference = ours[key] - alone[key]
        yield at_least(f"{name} less that of the network alone", measured=difference, limit=0.0, published=published)
    if "isotropic, at the weights" in of:
        difference = (
            of["isotropic, at the optimum"]["log_likelihood"] - of["isotropic, at the weights"]["log_likelihood"]
        )
        yield at_least(
            "isotropic prior: log-likelihood at the optimum less at the weights", measured=difference, limit=0.0,
            published=0.38,
        )  # fmt: skip


def draw(record: Record) -> Figure:
    figure, (together, em) = style.panels(2, width=4.6, height=3.6)
    paths = record["curves"]["em"]
    others = iter((style.GREEN, style.ORANGE, style.RED))
    for row in record["table"]:
        name = row["method"]
        color = COLORS[name] if name in COLORS else next(others)
        per_label = [row[f"joint_{kappa}"] / max(1, 10 * (kappa - 1)) for kappa in KAPPAS]
        together.plot(KAPPAS, per_label, marker="o", color=color, label=name)
        if name in paths:
            em.plot(range(len(paths[name])), paths[name], marker="o", color=color)
    together.set(title="Joint log-likelihood per label", xlabel="distinct images κ", ylabel="nats", xticks=KAPPAS)
    steps = range(max(len(path) for path in paths.values()))
    em.set(title="EM", xlabel="step", ylabel="prior precision", yscale="log", xticks=steps)
    together.legend()
    return figure


THESIS = Config()
SMALL = replace(
    THESIS, folder="", depth=18, width=4, size=32, classes=10, most=50, epochs=30, batch=32, em_steps=4, em_samples=4,
    samples=16, product_batch=50,
)  # fmt: skip

EXPERIMENT = Experiment(
    id="image-folder",
    title="A residual network on a folder of images, streamed",
    reproduces=(
        "Table 6.2 (ImageNet) and its figure of EM; table 5.2 with `--set evidences=True`, at the `thesis` budget",
    ),
    budgets={
        "quick": SMALL,
        "full": replace(SMALL, width=8, most=200, em_steps=6, em_samples=6, samples=64, evidences=True),
        "thesis": THESIS,
    },
    run=run,
    draw=draw,
    data=lambda config: () if config.folder else ("cifar10",),
    sizes=lambda config: {"weights": count(build(config))},
)  # fmt: skip
