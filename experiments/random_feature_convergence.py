"""Random Fourier features on their way to the RBF kernel's evaluation functional ``k(0, ·)``.

``φ(0) φ(x)ᵀ`` with ``d`` features, of two kinds: cosines with random phases as in the thesis, and the pairs of sine and
cosine that the library draws. With ``u = exp(−x²/ψ²)`` their variances are ``(1 − u + u²/2)/d`` and ``(1 − u)²/d``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import grid

PAIRS, PHASES = KINDS = ("sine and cosine pairs", "random phases")
COLORS = {PAIRS: style.BLUE, PHASES: style.ORANGE}


@dataclass(frozen=True)
class Config:
    """Sizes; ``shown`` numbers of features are drawn as functions, once each."""

    draws: int = 200
    numbers: tuple[int, ...] = (10, 30, 100, 300, 1_000, 3_000)
    shown: tuple[int, ...] = (10, 100, 1_000)
    inputs: int = 121
    reach: float = 4.0
    seed: int = 0


def estimate(kind: str, num: int, x: Tensor, generator: torch.Generator) -> Tensor:
    """``φ(0) φ(x)ᵀ`` of one draw, for the RBF kernel with lengthscale 1."""
    both = torch.cat([torch.zeros_like(x[:1]), x])
    if kind == PAIRS:
        kernel = mt.kernels.RBF(torch.ones(1, dtype=torch.float64)).requires_grad_(False)
        features = kernel.features(num, generator=generator)(both)
    else:
        frequencies = torch.randn(1, num, dtype=torch.float64, generator=generator)
        phases = 2.0 * math.pi * torch.rand(num, dtype=torch.float64, generator=generator)
        features = math.sqrt(2.0 / num) * torch.cos(both @ frequencies + phases)
    return features[1:] @ features[0]


def run(config: Config, progress: Progress) -> Report:
    x = grid(-config.reach, config.reach, config.inputs)
    generator = torch.Generator().manual_seed(config.seed)
    exact = mt.kernels.RBF(1.0).requires_grad_(False)(x, torch.zeros_like(x[:1]))[:, 0]
    u = (-x[:, 0].square()).exp()
    variance = {PAIRS: (1.0 - u).square(), PHASES: 1.0 - u + 0.5 * u.square()}
    table, errors, bias = [], {kind: [] for kind in KINDS}, {}
    for num in progress(config.numbers, "numbers of features"):
        row = {"features": num}
        for kind in KINDS:
            estimates = torch.stack([estimate(kind, num, x, generator) for _ in range(config.draws)])
            row[f"RMSE, {kind}"] = float((estimates - exact).square().mean().sqrt())
            row[f"predicted, {kind}"] = float((variance[kind].mean() / num).sqrt())
            errors[kind].append(row[f"RMSE, {kind}"])
            if num == config.numbers[0]:
                standard_error = (variance[kind] / num / config.draws).sqrt().clamp(min=1e-9)
                bias[kind] = float(((estimates.mean(0) - exact) / standard_error).abs().max())
        table.append(row)

    def slope(values: list[float]) -> float:
        """Of a least-squares line through the logarithms."""
        across, along = (torch.tensor(v, dtype=torch.float64).log() for v in (values, config.numbers))
        return float(((along - along.mean()) * across).sum() / (along - along.mean()).square().sum())

    claims = [
        within(
            f"exponent of the error in d, {kind}",
            measured=slope(errors[kind]),
            target=-0.5,
            tolerance=0.1,
            published="goes to 0",
        )
        for kind in KINDS
    ]
    claims += [
        within(
            f"squared error over the predicted, mean over all d, {kind}",
            measured=sum((r[f"RMSE, {kind}"] / r[f"predicted, {kind}"]) ** 2 for r in table) / len(table),
            target=1.0,
            tolerance=0.1,
        )
        for kind in KINDS
    ]
    claims += [
        at_most(
            f"mean estimate against the kernel with fewest features, in standard errors, {kind}",
            measured=bias[kind],
            limit=4.5,
            published="unbiased",
        )
        for kind in KINDS
    ]
    claims.append(
        at_most(
            "error of pairs over that of random phases, largest over d",
            measured=max(a / b for a, b in zip(errors[PAIRS], errors[PHASES], strict=True)),
            limit=1.0,
        )
    )
    curves = {
        "x": x[:, 0],
        "exact": exact,
        "shown": {str(num): {kind: estimate(kind, num, x, generator) for kind in KINDS} for num in config.shown},
    }
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves, table = record["curves"], record["table"]
    shown = curves["shown"]
    figure, axes = style.panels(len(shown) + 1, width=3.6, height=3.7)
    for ax, (num, estimates) in zip(axes, shown.items(), strict=False):
        ax.plot(curves["x"], curves["exact"], color=style.INK, linewidth=2.6, label="kernel k(0, ·)")
        for kind, values in estimates.items():
            ax.plot(curves["x"], values, color=COLORS[kind], linewidth=1.5, label=kind)
        ax.set(title=f"d = {int(num):,}", xlabel="x", ylim=(-0.75, 1.15))
    axes[0].legend(loc="lower right", fontsize=8.5)
    last = axes[-1]
    numbers = [row["features"] for row in table]
    for kind in KINDS:
        last.plot(numbers, [row[f"predicted, {kind}"] for row in table], color=COLORS[kind], linestyle=":")
        last.plot(numbers, [row[f"RMSE, {kind}"] for row in table], "o", color=COLORS[kind], label=kind)
    last.plot([], [], color=style.GRAY, linestyle=":", label=r"predicted, $\propto 1/\sqrt{d}$")
    last.set(title="Root mean squared error", xlabel="features d", xscale="log", yscale="log")
    last.yaxis.set_minor_formatter(NullFormatter())
    last.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
    last.legend(fontsize=8.5)
    return figure


EXPERIMENT = Experiment(
    id="random-feature-convergence",
    title="Random Fourier features converge to an evaluation functional",
    reproduces=("Figure 2.5 (random features and k(0, ·)), section 2.2.4",),
    budgets={
        "quick": Config(),
        "full": Config(draws=2_000, numbers=(10, 30, 100, 300, 1_000, 3_000, 10_000)),
        "thesis": Config(draws=2_000, numbers=(10, 30, 100, 300, 1_000, 3_000, 10_000)),
    },
    run=run,
    draw=draw,
    sizes=lambda config: {"draws": config.draws, "most_features": max(config.numbers)},
)
