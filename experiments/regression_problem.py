"""One Gaussian-process regression on real data with its exact solution: what the experiments on solvers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from torch import Tensor

import matheron as mt
from experiments import style
from matheron.data import Split, load, published_hyperparameters

SPLIT = 0
MEASURES = ("K-norm²", "K²-norm²", "test RMSE")
TITLES = {
    "K-norm²": r"K-norm,  $\|\alpha-\alpha_\star\|_K^2$",
    "K²-norm²": r"K²-norm,  $\|\alpha-\alpha_\star\|_{K^2}^2$",
    "test RMSE": "Test RMSE",
}


@dataclass(frozen=True, eq=False)
class RegressionProblem:
    """``(K + σ²I) α = y`` on the rows of one split, with ``K`` and ``α⋆`` in float64.

    The rows are in random order, so that the first so many are a random subset.
    """

    split: Split
    kernel: mt.kernels.Kernel
    noise: float
    K: Tensor
    K_test: Tensor
    alpha: Tensor

    @property
    def rows(self) -> int:
        """``n``."""
        return len(self.K)

    @property
    def targets(self) -> Tensor:
        """``y`` in float64."""
        return self.split.y_train.double()

    def system(self, dtype: torch.dtype) -> mt.operators.Operator:
        """``K + σ²I`` as the solvers take it."""
        noise = torch.tensor(self.noise, dtype=dtype)
        return mt.operators.KernelOperator(self.kernel, self.split.X_train.to(dtype)) + mt.operators.Diagonal(noise)

    def rmse(self, weights: Tensor) -> Tensor:
        """``√mean (y_test − K_test α)²`` of every column of ``α``."""
        error = self.split.y_test.double()[:, None] - self.K_test @ columns(weights)
        return error.square().mean(0).sqrt()

    def errors(self, weights: Tensor) -> dict[str, Tensor]:
        """``‖α − α⋆‖²_K``, ``‖α − α⋆‖²_K²`` and the test RMSE of every column of ``α``."""
        difference = columns(weights) - self.alpha[:, None]
        product = self.K @ difference
        return {
            "K-norm²": (difference * product).sum(0),
            "K²-norm²": product.square().sum(0),
            "test RMSE": self.rmse(weights),
        }


def columns(weights: Tensor) -> Tensor:
    """As float64 ``(n, s)``."""
    return weights.double().reshape(len(weights), -1)


def random_rows(name: str, rows: int | None, seed: int, split: int = SPLIT) -> Split:
    """A split of a data set with its training rows in random order, ``rows`` of them at most."""
    return shuffled(load(name).split(split), rows, seed)


def shuffled(split: Split, rows: int | None, seed: int) -> Split:
    """The same with its training rows in random order, ``rows`` of them at most."""
    chosen = torch.randperm(len(split.y_train), generator=torch.Generator().manual_seed(seed))[:rows]
    return replace(split, X_train=split.X_train[chosen], y_train=split.y_train[chosen])


def published_kernel(name: str, split: int = SPLIT) -> tuple[mt.kernels.Kernel, float]:
    """The Matérn-3/2 kernel and the noise variance published for a split; a subset has those of the whole set."""
    published = published_hyperparameters(name.removesuffix("_subset"), split)
    kernel = mt.kernels.Matern32(lengthscale=published.lengthscale, variance=published.signal_variance)
    return kernel.requires_grad_(False), published.noise_variance


def regression_problem(name: str, *, rows: int | None, seed: int, noise: float | None = None) -> RegressionProblem:
    """A random subset of ``rows`` training rows, solved exactly by Cholesky in float64; all test rows."""
    split = random_rows(name, rows, seed)
    kernel, published_noise = published_kernel(name)
    noise = published_noise if noise is None else noise
    X = split.X_train.double()
    problem = RegressionProblem(split, kernel, noise, kernel(X), kernel(split.X_test.double(), X), torch.empty(0))
    exact = mt.solvers.Cholesky().solve(mt.operators.Dense(problem.K) + mt.operators.Diagonal(noise), problem.targets)
    return replace(problem, alpha=exact.solution)


def checkpoints(steps: int, count: int = 60) -> list[int]:
    """At most ``count`` iterations from 1 to ``steps``, evenly spread on a logarithmic scale."""
    return sorted({round(math.exp(math.log(steps) * i / (count - 1))) for i in range(count)})


class Recorder:
    """Error curves of several methods at common iterations.

    A method may hold one column per step size; every column has a curve of its own.
    """

    def __init__(self, problem: RegressionProblem, iterations: Sequence[int]) -> None:
        self.problem, self.iterations = problem, list(iterations)
        self._wanted = set(iterations)
        self.curves: dict[str, dict[str, list[list[float]]]] = {}

    def __call__(self, method: str, iteration: int, weights: Tensor) -> None:
        """Measure, where this iteration is one of those to record."""
        if iteration not in self._wanted:
            return
        curves = self.curves.setdefault(method, {measure: [] for measure in MEASURES})
        for measure, values in self.problem.errors(weights).items():
            curves[measure].append(values.tolist())

    def curve(self, method: str, measure: str, column: int = 0) -> list[float]:
        """One curve."""
        return [values[column] for values in self.curves[method][measure]]

    def final(self, method: str, column: int = 0) -> dict[str, float]:
        """All measures after the last iteration."""
        return {measure: self.curve(method, measure, column)[-1] for measure in MEASURES}

    def best(self, method: str) -> int:
        """The column that ends with the smallest K-norm: no test target has a say."""
        last = [value if math.isfinite(value) else math.inf for value in self.curves[method]["K-norm²"][-1]]
        return last.index(min(last))

    def chosen(self, columns: dict[str, int]) -> dict[str, dict[str, list[float]]]:
        """One column of each method, as curves for the record."""
        return {name: {m: self.curve(name, m, column) for m in MEASURES} for name, column in columns.items()}


def share(left: Sequence[float], right: Sequence[float]) -> float:
    """How often ``left ≤ right``, from 0 to 1."""
    return sum(a <= b for a, b in zip(left, right, strict=True)) / len(left)


def prepare(axes: Sequence[Axes], problem: Mapping[str, Any], *, xlabel: str = "iteration") -> None:
    """Titles and scales of one panel per measure; a line where the exact solution stands."""
    for ax, measure in zip(axes, MEASURES, strict=True):
        ax.set(title=TITLES[measure], xscale="log", yscale="log", xlabel=xlabel)
    rmse = axes[-1]
    rmse.axhline(problem["exact test RMSE"], color=style.GRAY, linewidth=1.0, linestyle="--", label="exact")
    rmse.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
    rmse.yaxis.set_minor_formatter(NullFormatter())
