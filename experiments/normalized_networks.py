"""Scaling the weights before a normalization changes nothing in a network; what does it do to its error bars?

A small network with layer norm on a toy set. The normalized weights are multiplied by ``c``, which leaves the network's
outputs as they are; then the prior is learnt anew and the predictive deviations are compared with those at ``c = 1``.
All posteriors are exact, by dense algebra in the closed form of ``matheron.linear.exact``, and so is the evidence:
precisions are learnt by MacKay's exact fixed point until they no longer move.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_network import ToyNetwork, ToyProblem, toy_problem
from matheron.linear.exact import Primal
from matheron.networks import JacobianOperator, TangentModel

SETTLED = 1e-10
"""How little a log precision moves at the end of the fixed point."""

FLOOR = 1e-6
"""Of the mean of its layer, the least a scale of the g-prior may be."""

INFINITE = 1e10
"""Precisions end here, in units of the curvature."""

PRIORS = ("g", "layerwise", "isotropic")


@dataclass(frozen=True)
class Config:
    """Sizes."""

    data: str = "matern_1d"
    width: int = 50
    training_steps: int = 3_000
    noise: float = 0.05
    scales: tuple[float, ...] = (0.1, 1.0, 10.0)
    em_steps: int = 3_000
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    """Every prior and scale."""
    problem = toy_problem(config.data, config.width, config.training_steps, config.seed)
    low, high = float(problem.X.min()), float(problem.X.max())
    x = torch.linspace(low - 1.0, high + 1.0, 200, dtype=torch.float64)[:, None]
    found: dict[str, dict[str, Any]] = {prior: {} for prior in PRIORS}
    table = []
    for prior in progress(PRIORS, "priors"):
        for scale in config.scales:
            deviation, facts = deviations(problem, scaled(problem.model, scale), x, prior, config)
            found[prior][f"{scale:g}"] = deviation
            table.append({"prior": prior, "scale": scale, **facts})
    changes = {}
    for prior, curves in found.items():
        changes[prior] = max(float((curve / curves["1"] - 1.0).abs().max()) for curve in curves.values())
        table.append({"prior": prior, "largest_change": changes[prior]})
    mean = TangentModel(problem.model).predict(x).flatten()
    shown = {"x": x.flatten(), "mean": mean, "X": problem.X.flatten(), "y": problem.y.flatten()}
    return Report(table, claims(changes), {"deviations": found, "shown": shown})


def scaled(model: ToyNetwork, factor: float) -> ToyNetwork:
    """The same function with every normalized weight multiplied."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in twin.body.parameters():
            weight.mul_(factor)
    return twin


def deviations(
    problem: ToyProblem, model: ToyNetwork, x: Tensor, prior: str, config: Config
) -> tuple[Tensor, dict[str, Any]]:
    """Predictive deviations at ``x`` with the precision learnt, and what was learnt."""
    tangent, b = TangentModel(model), 1.0 / config.noise
    Phi, J = JacobianOperator(tangent, problem.X).dense(), JacobianOperator(tangent, x).dense()
    Y = problem.y.flatten() - tangent.predict(problem.X).flatten() + Phi @ tangent.weights
    groups = torch.zeros_like(tangent.groups) if prior != "layerwise" else tangent.groups
    scale = floored(b * Phi.square().sum(0), tangent.groups) if prior == "g" else torch.ones_like(Phi[0])
    precision, steps = fixed_point(Phi, b, Y, groups, scale, config.em_steps)
    model_ = Primal(Phi, precision[groups] * scale, b)
    variance = ((J @ model_.covariance) * J).sum(1)
    facts = {"precision": precision, "steps": steps, "effective_dimension": float(model_.effective_dimension())}
    return variance.clamp(min=0.0).sqrt(), facts


def floored(scale: Tensor, groups: Tensor) -> Tensor:
    """Units that no datum reaches have no curvature; they are given a little of that of their layer."""
    sums = torch.zeros(int(groups.max()) + 1, dtype=scale.dtype).index_add_(0, groups, scale)
    return torch.maximum(scale, FLOOR * (sums / groups.bincount())[groups])


def fixed_point(Phi: Tensor, b: float, Y: Tensor, groups: Tensor, scale: Tensor, most: int) -> tuple[Tensor, int]:
    """``a_g ← γ_g / ‖w⋆_g‖²`` with exact ``γ_g`` and ``w⋆``, and the steps it took."""
    count = int(groups.max()) + 1
    add: Callable[[Tensor], Tensor] = lambda v: torch.zeros(count, dtype=v.dtype).index_add_(0, groups, v)  # noqa: E731
    # In units of the curvature, so that start and limit follow the features' scale.
    start = add(b * Phi.square().sum(0)) / add(scale)
    a, identity = start, torch.eye(len(Phi), dtype=Phi.dtype) / b
    steps, moved = 0, float("inf")
    while moved > SETTLED and steps < most:
        # By the side of the rows, of which there are fewer than weights as a rule.
        spread = Phi / (a[groups] * scale)
        solved = torch.linalg.solve(spread @ Phi.mT + identity, torch.cat([spread, Y[:, None]], dim=1))
        w = spread.mT @ solved[:, -1]
        gamma = add((Phi * solved[:, :-1]).sum(0))
        # Weights that the data do not need end at an infinite precision; a large one is as good.
        new = (gamma / add(scale * w.square())).nan_to_num(nan=torch.inf).minimum(INFINITE * start)
        moved, a, steps = float((new / a).log().abs().max()), new, steps + 1
    return a, steps


def claims(changes: dict[str, float]) -> list[Claim]:
    """Less than one percent with the g-prior and the layerwise prior, much with the isotropic one."""
    return [
        at_most("g-prior: largest relative change of a deviation", measured=changes["g"], limit=0.01),
        at_most("layerwise prior: largest relative change of a deviation", measured=changes["layerwise"], limit=0.01),
        at_least("isotropic prior: largest relative change of a deviation", measured=changes["isotropic"], limit=0.1),
    ]


def draw(record: Record) -> Figure:
    """Deviations against the input for every scale, a panel per prior."""
    figure, axes = style.panels(len(PRIORS), width=4.0, height=3.4)
    shown = record["curves"]["shown"]
    styles = ("-", "--", ":")
    for ax, prior in zip(axes, PRIORS, strict=True):
        curves = record["curves"]["deviations"][prior]
        for (scale, deviation), color, line in zip(curves.items(), style.COLORS, styles, strict=False):
            ax.plot(shown["x"], deviation, color=color, linestyle=line, label=f"weights × {scale}")
        ax.plot(shown["X"], [0.0] * len(shown["X"]), "|", color=style.INK, ms=8, alpha=0.4)
        ax.set(title=f"{prior} prior", xlabel="x", ylim=(0, None))
    axes[0].set_ylabel("predictive deviation")
    axes[0].legend(frameon=False)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="normalized-networks",
    title="Error bars of a normalized network as its weights are scaled",
    reproduces=("Figure 5.5 (scale of normalized weights)", "Propositions 5.3 and 5.4"),
    budgets={"quick": replace(FULL, width=16, training_steps=1_500), "full": FULL, "thesis": FULL},
    run=run,
    draw=draw,
    data=lambda config: (config.data,),
    sizes=lambda config: {"width": config.width, "scales": len(config.scales)},
)
