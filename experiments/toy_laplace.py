"""The linearized Laplace posterior of a small network on a toy set, part by part.

Functions of perturbed weights against those of the tangent model; its features and prior functions; error bars with the
precision from the evidence at the network's weights and at the tangent model's optimum; its own posterior mean beside
the network; the sizes of Jacobian entries with and without the g-prior's scale. Everything is exact.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_network import ToyNetwork, toy_problem
from matheron.linear.exact import Dual, Gaussian
from matheron.networks import JacobianOperator, TangentModel


@dataclass(frozen=True)
class Config:
    """Sizes."""

    data: str = "matern_1d"
    width: int = 50
    training_steps: int = 3_000
    noise: float = 0.05
    samples: int = 100
    em_steps: int = 200
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Tangent:
    """Explicit features at the data and on a grid, with the targets of the affine model."""

    Phi: Tensor
    J: Tensor
    Y: Tensor
    weights: Tensor
    offset: Tensor
    b: float

    def posterior(self, a: float, scale: Tensor) -> Gaussian:
        """Of the function on the grid less the offset, with ``A = a diag(scale)``."""
        spread = self.J / (a * scale)
        return self._dual(a, scale).functions(spread @ self.Phi.mT, spread @ self.J.mT, self.Y)

    def optimum(self, a: float, scale: Tensor) -> Tensor:
        """``w⋆``."""
        return self.Phi.mT @ self._dual(a, scale).representer_weights(self.Y) / (a * scale)

    def precision(self, scale: Tensor, steps: int, mode: Tensor | None) -> float:
        """MacKay's fixed point, with the tangent model's optimum or a given mode."""
        a = 1.0
        for _ in range(steps):
            w = self.optimum(a, scale) if mode is None else mode
            a = float(self._dual(a, scale).effective_dimension() / (scale * w.square()).sum())
        return a

    def draws(self, a: float, num: int, generator: torch.Generator) -> Tensor:
        """Weights around the optimum under ``A = aI``, by Matheron's rule: prior draws less what the data explain."""
        prior = torch.randn(num, len(self.weights), generator=generator, dtype=torch.float64) / math.sqrt(a)
        noise = torch.randn(num, len(self.Y), generator=generator, dtype=torch.float64) / math.sqrt(self.b)
        solved = self._dual(a, torch.ones_like(self.weights)).solve((prior @ self.Phi.mT + noise).mT)
        return prior - (self.Phi.mT @ solved / a).mT

    def _dual(self, a: float, scale: Tensor) -> Dual:
        return Dual(self.Phi / (a * scale) @ self.Phi.mT, self.b)


def run(config: Config, progress: Progress) -> Report:
    """All parts."""
    problem = toy_problem(config.data, config.width, config.training_steps, config.seed)
    tangent = TangentModel(problem.model)
    low, high = float(problem.X.min()), float(problem.X.max())
    x = torch.linspace(low - 0.7, high + 0.7, 200, dtype=torch.float64)[:, None]
    Phi, J = JacobianOperator(tangent, problem.X).dense(), JacobianOperator(tangent, x).dense()
    v, mean = tangent.weights, tangent.predict(x).flatten()
    Y = problem.y.flatten() - tangent.predict(problem.X).flatten() + Phi @ v
    parts = Tangent(Phi, J, Y, v, mean - J @ v, 1.0 / config.noise)
    ones = torch.ones_like(v)
    g_scale = parts.b * Phi.square().sum(0).clamp(min=1e-6 * float(Phi.square().sum(0).mean()))
    progress.note("precisions")
    precisions = {
        "at the optimum": parts.precision(ones, config.em_steps, None),
        "at the weights": parts.precision(ones, config.em_steps, v),
        "g-prior": parts.precision(g_scale, config.em_steps, None),
    }
    generator = torch.Generator().manual_seed(config.seed)
    zeta = parts.draws(precisions["at the optimum"], config.samples, generator)
    scores = {
        "perturbed weights": log_density(
            perturbed(problem.model, v + zeta, problem.X), problem.y.flatten(), config.noise
        ),
        "tangent model": log_density(
            tangent.predict(problem.X).flatten() + zeta @ Phi.mT, problem.y.flatten(), config.noise
        ),
    }
    posteriors = {name: parts.posterior(a, g_scale if name == "g-prior" else ones) for name, a in precisions.items()}
    deviations = {name: posterior.variance.sqrt() for name, posterior in posteriors.items()}
    means = {
        "network": mean,
        "isotropic": parts.offset + posteriors["at the optimum"].mean,
        "g-prior": parts.offset + posteriors["g-prior"].mean,
    }
    spread = {"plain": log_sizes(Phi), "scaled": log_sizes(Phi * g_scale.rsqrt())}
    at_data = (x.flatten() >= low) & (x.flatten() <= high)
    table: list[dict[str, Any]] = [
        {"prior": name, "precision": a, "mean_deviation": float(deviations[name][at_data].mean())}
        for name, a in precisions.items()
    ]
    table += [{"functions": name, "log_density": value} for name, value in scores.items()]
    table += [{"features": name, "spread_of_log10_sizes": float(value.std())} for name, value in spread.items()]
    difference = {
        name: float((means[name] - mean)[at_data].square().mean().sqrt()) for name in ("isotropic", "g-prior")
    }
    table += [{"tangent_mean": name, "rms_from_network": value} for name, value in difference.items()]
    curves = {
        "x": x.flatten(),
        "X": problem.X.flatten(),
        "y": problem.y.flatten(),
        "means": means,
        "deviations": deviations,
        "perturbed": perturbed(problem.model, v + zeta[:20], x),
        "linearized": mean + zeta[:20] @ J.mT,
        "features": J[:, torch.randperm(len(v), generator=generator)[:6]].mT,
        "prior": torch.randn(6, len(v), generator=generator, dtype=torch.float64)
        @ J.mT
        / math.sqrt(precisions["at the optimum"]),
        "sizes": {name: torch.histc(value, 40, -8, 4) for name, value in spread.items()},
    }
    return Report(table, claims(table), curves)


def perturbed(model: ToyNetwork, weights: Tensor, x: Tensor) -> Tensor:
    """Outputs of the network itself, one row per vector of weights."""
    twin, rows = copy.deepcopy(model), []
    with torch.no_grad():
        for flat in weights:
            torch.nn.utils.vector_to_parameters(flat, twin.parameters())
            rows.append(twin(x).flatten())
    return torch.stack(rows)


def log_density(functions: Tensor, y: Tensor, noise: float) -> float:
    """Mean over the data of ``log E_f p(y | f)``."""
    logs = torch.distributions.Normal(functions, math.sqrt(noise)).log_prob(y)
    return float((torch.logsumexp(logs, 0) - math.log(len(functions))).mean())


def log_sizes(Phi: Tensor) -> Tensor:
    """``log₁₀ |Φ_ij|`` of entries that are not zero."""
    return Phi.abs()[Phi != 0].log10()


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """Linearizing mends predictions; the tangent model's optimum narrows error bars; the g-prior evens out features."""
    density = {r["functions"]: r["log_density"] for r in table if "functions" in r}
    deviation = {r["prior"]: r["mean_deviation"] for r in table if "prior" in r}
    spread = {r["features"]: r["spread_of_log10_sizes"] for r in table if "features" in r}
    return [
        at_least(
            "log density of the training targets, tangent model over perturbed weights, nats",
            measured=density["tangent model"] - density["perturbed weights"],
            limit=0.1,
        ),
        at_least(
            "mean deviation with the evidence at the weights over that at the optimum",
            measured=deviation["at the weights"] / deviation["at the optimum"],
            limit=1.5,
        ),
        at_most("mean deviation with the evidence at the optimum", measured=deviation["at the optimum"], limit=1.0),
        at_most(
            "spread of feature sizes with the g-prior over without",
            measured=spread["scaled"] / spread["plain"],
            limit=0.9,
        ),
        *(
            at_most(f"RMS of the tangent model's mean from the network's, {r['tangent_mean']}",
                    measured=r["rms_from_network"], limit=0.5)
            for r in table if "tangent_mean" in r
        ),
    ]  # fmt: skip


def draw(record: Record) -> Figure:
    """Six panels."""
    curves = record["curves"]
    figure = Figure(figsize=(13.0, 7.0), layout="constrained")
    axes = figure.subplots(2, 3).flatten()
    x = curves["x"]
    for ax, key, title in ((axes[0], "perturbed", "Perturbed weights"), (axes[1], "linearized", "Tangent model")):
        for row in curves[key]:
            ax.plot(x, row, color=style.BLUE, linewidth=0.7, alpha=0.5)
        ax.set(title=title, ylim=(-4, 4))
    for row in curves["prior"]:
        axes[2].plot(x, row, color=style.GREEN, linewidth=1.0)
    axes[2].set(title="Prior functions, without the network's")
    mean = torch.tensor(curves["means"]["network"])
    for name, color in (("at the weights", style.ORANGE), ("at the optimum", style.BLUE)):
        deviation = torch.tensor(curves["deviations"][name])
        axes[3].fill_between(x, mean - 2 * deviation, mean + 2 * deviation, color=color, alpha=0.35, label=name)
    axes[3].plot(x, mean, color=style.INK)
    axes[3].set(title="Precision from the evidence", ylim=(-6, 6))
    for (name, values), color in zip(curves["means"].items(), (style.INK, style.GREEN, style.RED), strict=True):
        axes[4].plot(x, values, color=color, label=name)
    axes[4].set(title="Means", ylim=(-4, 4))
    edges = torch.linspace(-8, 4, 41)[:-1]
    for (name, counts), color in zip(curves["sizes"].items(), (style.ORANGE, style.BLUE), strict=True):
        axes[5].bar(edges, counts, 0.3, align="edge", color=color, alpha=0.6, label=name)
    axes[5].set(title="Sizes of Jacobian entries", xlabel="log₁₀ |entry|")
    for ax in axes[[0, 1, 3, 4]]:
        ax.scatter(curves["X"], curves["y"], s=4, color=style.GRAY, zorder=3)
    for ax in axes[3:]:
        ax.legend(frameon=False)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="toy-laplace",
    title="Linearized Laplace on a toy set: perturbed weights, tangent model, evidence, g-prior",
    reproduces=(
        "Figure 3.5 (Laplace with and without linearization)",
        "Figure 3.6 (prior of the tangent model)",
        "Figure 5.1 (evidence at the weights and at the optimum)",
        "Figure 5.2 (mean functions)",
        "Figure 5.6 (sizes of Jacobian entries)",
    ),
    budgets={
        "quick": replace(FULL, training_steps=1_500, em_steps=60),
        "full": FULL,
        "thesis": FULL,
    },
    run=run,
    draw=draw,
    data=lambda config: (config.data,),
    sizes=lambda config: {"width": config.width, "samples": config.samples},
)
