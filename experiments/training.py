"""Networks trained by stochastic descent, and kept beside the results: what experiments on trained networks share."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from experiments.harness import Progress

Images = tuple[Tensor, Tensor]
"""``(n, channels, height, width)`` with mean 0 and variance 1, and their classes."""


@dataclass(frozen=True)
class Recipe:
    """SGD as in the appendix: the step falls to a tenth after 4/9 and after 7/9 of the epochs, there 90.

    ``network`` names what is trained, so that files of different networks are told apart.
    """

    network: str
    images: int
    epochs: int
    seed: int
    batch: int = 128
    step: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: bool = False
    """Shifts by up to an eighth of the image, and reflections."""
    adam: bool = False
    """Adam at this step, smaller by a hundredth after every epoch, in place of SGD."""

    @property
    def key(self) -> str:
        """The name of the file that holds the trained network."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Trained:
    """A network in evaluation mode, and the seconds its training took, whenever that was."""

    model: nn.Module
    seconds: float


def trained(recipe: Recipe, build: Callable[[], nn.Module], data: Images | Dataset, progress: Progress) -> Trained:
    """Train, or read what was trained before: from ``networks`` beside the results."""
    folder = None if progress.ledger is None else progress.ledger.path.parent / "networks"
    path = None if folder is None else folder / f"{recipe.key}.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = build()
    if path is not None and path.exists():
        with safe_open(path, framework="pt") as file:
            seconds = float(file.metadata()["seconds"])
        model.load_state_dict(load_file(path))
        return Trained(model.eval(), seconds)
    began = time.perf_counter()
    train(model, recipe, data, progress)
    seconds = time.perf_counter() - began
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        save_file(model.state_dict(), beside, {"seconds": str(seconds), "recipe": json.dumps(asdict(recipe))})
        os.replace(beside, path)
    return Trained(model.eval(), seconds)


def train(model: nn.Module, recipe: Recipe, data: Images | Dataset, progress: Progress) -> None:
    """In place, in an order of images that the seed decides."""
    source = torch.Generator().manual_seed(recipe.seed)
    optimizer, schedule = descent(model, recipe)
    device = next(model.parameters()).device
    model.train()
    for _ in progress(range(recipe.epochs), "training"):
        for images, labels in shuffled(data, recipe.batch, source):
            optimizer.zero_grad()
            images = augmented(images, source) if recipe.augment else images
            nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        schedule.step()


def shuffled(data: Images | Dataset, size: int, source: torch.Generator) -> Iterator[Images]:
    """Batches of a pass in random order, those of a data set read as they are needed."""
    if isinstance(data, Dataset):
        yield from DataLoader(data, size, shuffle=True, generator=source)
        return
    X, y = data
    for index in torch.randperm(len(X), generator=source).split(size):
        yield X[index], y[index]


def descent(model: nn.Module, recipe: Recipe) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The optimizer and how its step falls."""
    if recipe.adam:
        adam = torch.optim.Adam(model.parameters(), recipe.step)
        return adam, torch.optim.lr_scheduler.ExponentialLR(adam, 0.99)
    sgd = torch.optim.SGD(model.parameters(), recipe.step, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    falls = [recipe.epochs * 4 // 9, recipe.epochs * 7 // 9]
    return sgd, torch.optim.lr_scheduler.MultiStepLR(sgd, falls, gamma=0.1)


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image shifted, with zeros moving in, and every other one reflected."""
    n, _, height, width = images.shape
    reach = height // 8
    padded = nn.functional.pad(images, [reach] * 4)
    top, left = torch.randint(2 * reach + 1, (2, n, 1), generator=generator)
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    each = torch.arange(n)[:, None, None]
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
