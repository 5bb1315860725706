"""One step of parallel Thompson sampling in one dimension: functions of the posterior, and where each is largest.

The target is a draw from the Matérn-3/2 prior, seen at seven random inputs with noise of precision ``√1000``. Each of
three posterior functions is evaluated at seven random inputs and climbed from the best three (thesis, section 2.3).
Repeated for other targets, the inputs so chosen are compared with random ones by the target there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import grid

NOISE = 1.0 / math.sqrt(1000.0)
LENGTHSCALE = 0.15


@dataclass(frozen=True)
class Config:
    """Sizes; ``repeats`` targets, of which the first is drawn."""

    observations: int = 7
    functions: int = 3
    candidates: int = 7
    starts: int = 3
    steps: int = 100
    repeats: int = 100
    inputs: int = 1001


def run(config: Config, progress: Progress) -> Report:
    x = grid(0.0, 1.0, config.inputs)
    short, chosen_values, random_values = [], [], []
    curves: dict[str, Any] = {}
    for seed in progress(range(config.repeats), "targets"):
        step = Step.take(config, seed)
        heights = step.posterior.sample(x)
        short.append(float((heights.max(1).values - step.found.values).max()))
        generator = torch.Generator().manual_seed(seed + config.repeats)
        elsewhere = torch.rand(config.functions, 1, generator=generator, dtype=torch.float64)
        chosen_values.append(float(step.target(step.found.inputs).mean()))
        random_values.append(float(step.target(elsewhere).mean()))
        if seed == 0:
            curves = {
                "x": x[:, 0],
                "target": step.target(x),
                "mean": step.posterior.mean(x),
                "std": step.posterior.variance(x).sqrt(),
                "functions": heights,
                "observations": {"x": step.X[:, 0], "y": step.y},
                "maximizers": {"x": step.found.inputs[:, 0], "y": step.found.values},
            }
    gain = torch.tensor(chosen_values) - torch.tensor(random_values)
    error = float(gain.std() / math.sqrt(len(gain)))
    table = [
        {"inputs": "maximizers", "target": sum(chosen_values) / len(chosen_values)},
        {"inputs": "random", "target": sum(random_values) / len(random_values)},
    ]
    claims = [
        at_most(
            "largest value on a grid above that at the maximizer, median over targets",
            measured=float(torch.tensor(short).median()), limit=1e-3, published="local optima",
        ),
        at_least(
            "target at the maximizers above that at random inputs, in standard errors",
            measured=float(gain.mean()) / error, limit=3.0,
        ),
    ]  # fmt: skip
    return Report(table, claims, curves)


@dataclass(frozen=True, eq=False)
class Step:
    """The target, its observations, their posterior, and the maximizers of its functions."""

    weights: Tensor
    features: mt.kernels.FeatureMap
    X: Tensor
    y: Tensor
    posterior: mt.gp.Posterior
    found: mt.decisions.Maximizers

    @classmethod
    def take(cls, config: Config, seed: int) -> Step:
        """One step."""
        g = torch.Generator().manual_seed(seed)
        kernel = mt.kernels.Matern32(torch.tensor([LENGTHSCALE], dtype=torch.float64)).requires_grad_(False)
        features = kernel.features(2000, generator=g)
        weights = torch.randn(2000, generator=g, dtype=torch.float64)
        X = torch.rand(config.observations, 1, generator=g, dtype=torch.float64)
        y = features(X) @ weights + NOISE**0.5 * torch.randn(len(X), generator=g, dtype=torch.float64)
        posterior = mt.GaussianProcess(kernel, NOISE).condition(X, y, num_samples=config.functions, generator=g)
        found = mt.decisions.thompson(
            posterior, (0.0, 1.0), candidates=config.candidates, starts=config.starts, steps=config.steps, generator=g
        )
        return cls(weights, features, X, y, posterior, found)

    def target(self, x: Tensor) -> Tensor:
        """The unknown function."""
        return self.features(x) @ self.weights


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (ax,) = style.panels(1, width=6.4, height=4.0)
    style.band(ax, curves["x"], curves["mean"], curves["std"], color=style.SKY, label="posterior mean ± 1 std")
    ax.plot(curves["x"], curves["target"], color=style.INK, label="target")
    for place, values in enumerate(curves["functions"]):
        label = "posterior functions" if place == 0 else None
        ax.plot(curves["x"], values, "--", color=style.BLUE, linewidth=1.0, label=label)
    ax.plot(curves["observations"]["x"], curves["observations"]["y"], "o", color=style.INK, label="observations")
    ax.plot(
        curves["maximizers"]["x"], curves["maximizers"]["y"], "*", color=style.RED, ms=12, label="maximizers", zorder=5
    )
    ax.set(xlabel="x", xlim=(0, 1))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


EXPERIMENT = Experiment(
    id="thompson-step",
    title="One step of parallel Thompson sampling",
    reproduces=("Figure 2.8 (parallel Thompson sampling), section 2.3",),
    budgets={"quick": Config(), "full": Config(repeats=1000), "thesis": Config(repeats=1000)},
    run=run,
    draw=draw,
    sizes=lambda config: {"targets": config.repeats, "functions": config.functions},
)
