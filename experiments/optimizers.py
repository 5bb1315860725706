"""AdaGrad, RMSprop, Adam and Nesterov's momentum on the dual objective, with the same random coordinates.

Every step size of the range is one column of the same loop, and all optimizers end in a geometric average. The step
that ends nearest to ``α⋆`` in the K-norm counts: test targets have no say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import MEASURES, Recorder, checkpoints, prepare, regression_problem


@dataclass(frozen=True)
class Config:
    """Sizes; for Nesterov a step is ``βn``, for the others the step of a coordinate."""

    rows: int | None
    iterations: int = 100_000
    batch: int = 512
    averaging: float = 0.001
    steps: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    seed: int = 0


class Optimizer(ABC):
    """A rule for all columns of ``α``, each with its own step."""

    published: float

    def __init__(self, alpha: Tensor, step: Tensor) -> None:
        self.step = step
        self.first, self.second = torch.zeros_like(alpha), torch.zeros_like(alpha)
        self.count = 0

    def ahead(self, alpha: Tensor) -> Tensor:
        """Where the gradient is wanted."""
        return alpha

    @abstractmethod
    def move(self, gradient: Tensor) -> Tensor:
        """What to add to ``α``."""


class AdaGrad(Optimizer):
    """The sum of all squared gradients."""

    published = 10.0

    def move(self, gradient: Tensor) -> Tensor:
        """``−step g / √Σg²``."""
        self.second += gradient.square()
        return -self.step * gradient / (self.second.sqrt() + 1e-7)


class RMSprop(Optimizer):
    """Their running mean."""

    published = 0.05

    def move(self, gradient: Tensor) -> Tensor:
        """``−step g / √v``."""
        self.second.lerp_(gradient.square(), 0.1)
        return -self.step * gradient / (self.second.sqrt() + 1e-7)


class Adam(Optimizer):
    """Running means of gradients and of their squares, corrected for their start at zero."""

    published = 0.05

    def move(self, gradient: Tensor) -> Tensor:
        """``−step m / √v``."""
        self.count += 1
        self.first.lerp_(gradient, 0.1)
        self.second.lerp_(gradient.square(), 0.001)
        scale = (self.second / (1.0 - 0.999**self.count)).sqrt() + 1e-7
        return -self.step / (1.0 - 0.9**self.count) * self.first / scale


class Nesterov(Optimizer):
    """Momentum, with the gradient at where it leads."""

    published = 50.0

    def ahead(self, alpha: Tensor) -> Tensor:
        """``α + ρ v``."""
        return alpha + 0.9 * self.first

    def move(self, gradient: Tensor) -> Tensor:
        """``v ← ρ v − β g(α + ρ v)``."""
        self.first = 0.9 * self.first - self.step / len(gradient) * gradient
        return self.first


RULES = (AdaGrad, RMSprop, Adam, Nesterov)


def run(config: Config, progress: Progress) -> Report:
    problem = regression_problem("pol", rows=config.rows, seed=config.seed)
    K, y, n = problem.K.float(), problem.split.y_train[:, None], problem.rows
    record = Recorder(problem, checkpoints(config.iterations))
    for rule in RULES:
        generator = torch.Generator().manual_seed(config.seed)
        alpha = torch.zeros(n, len(config.steps))
        average = torch.zeros_like(alpha)
        optimizer = rule(alpha, torch.tensor(config.steps))
        for iteration in progress(range(1, config.iterations + 1), rule.__name__):
            chosen = torch.randperm(n, generator=generator)[: config.batch]
            ahead = optimizer.ahead(alpha)
            gradient = torch.zeros_like(alpha)
            gradient[chosen] = n / config.batch * (K[chosen] @ ahead + problem.noise * ahead[chosen] - y[chosen])
            alpha = alpha + optimizer.move(gradient)
            average = average.lerp(alpha, config.averaging)
            record(rule.__name__, iteration, average)

    names = [rule.__name__ for rule in RULES]
    best = {name: record.best(name) for name in names}
    ends = {name: record.final(name, best[name]) for name in names}
    table = [
        {"optimizer": rule.__name__, "step": config.steps[best[rule.__name__]], "published step": rule.published}
        | ends[rule.__name__]
        for rule in RULES
    ]
    nesterov, adam = ends["Nesterov"], ends["Adam"]
    claims = [
        at_most(
            f"{measure} in the end, Nesterov over Adam",
            measured=nesterov[measure] / adam[measure],
            limit=0.5,
            published="much closer",
        )
        for measure in ("K-norm²", "K²-norm²")
    ]
    claims += [
        within(
            "test RMSE in the end, Adam over Nesterov",
            measured=adam["test RMSE"] / nesterov["test RMSE"],
            target=1.0,
            tolerance=0.1,
            published="similar",
        ),
        at_most(
            "K-norm² in the end, Nesterov over the best of the others",
            measured=nesterov["K-norm²"] / min(ends[name]["K-norm²"] for name in names if name != "Nesterov"),
            limit=1.0,
            published="Nesterov does best",
        ),
    ]
    facts = {
        "rows": n,
        "exact test RMSE": float(problem.rmse(problem.alpha)),
        "iterations": record.iterations,
        "end of every step": {name: record.curves[name]["K-norm²"][-1] for name in names},
    }
    return Report(table, claims, facts | record.chosen(best))


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, axes = style.panels(3, width=4.4, height=4.0)
    prepare(axes, curves)
    for row, color in zip(record["table"], (style.GREEN, style.PURPLE, style.ORANGE, style.BLUE), strict=True):
        name = row["optimizer"]
        for ax, measure in zip(axes, MEASURES, strict=True):
            ax.plot(curves["iterations"], curves[name][measure], color=color, label=f"{name}, step {row['step']:g}")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


EXPERIMENT = Experiment(
    id="optimizers",
    title="Optimizers for the dual objective on pol",
    reproduces=("Figure 4.6 (AdaGrad, RMSprop, Adam and Nesterov), section 4.2.4",),
    budgets={
        "quick": Config(rows=3_000, iterations=10_000, batch=128, averaging=0.01),
        "full": Config(rows=None, iterations=20_000, averaging=0.005),
        "thesis": Config(rows=None),
    },
    run=run,
    draw=draw,
    data=lambda config: ("pol",),
    sizes=lambda config: {"rows": config.rows or "all", "gradient_estimates": len(RULES) * config.iterations},
)
