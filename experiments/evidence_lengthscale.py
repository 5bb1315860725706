"""The evidence of a Fourier model against its lengthscale, beside that of a straight line.

Six observations near a line. 500 random sines and cosines with ``A = 0.4I`` for every lengthscale, the same frequencies
stretched; the affine basis with ``A = 6I``; ``B = 2I``. The RBF kernel is the limit of ever more features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import (
    AFFINE,
    COLORS,
    FOURIER_PRECISION,
    LENGTHSCALES,
    LONG,
    MODELS,
    NOISE_PRECISION,
    SHORT,
    bases,
    curve,
    draw_fit,
    fit,
    fourier,
    grid,
    observations,
)
from matheron.linear.exact import Dual


@dataclass(frozen=True)
class Config:
    """Sizes; lengthscales are spread evenly on a logarithmic scale."""

    features: int = 500
    lengthscales: int = 121
    shortest: float = 0.05
    longest: float = 50.0
    inputs: int = 301
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    x, (inputs, y) = grid(-4.0, 4.0, config.inputs), observations(config.seed)
    fits = {name: fit(name, basis, config.seed) for name, basis in bases(config.features, config.seed).items()}
    evidence = {name: float(fitted.model.log_evidence(y)) for name, fitted in fits.items()}
    exponents = torch.linspace(math.log(config.shortest), math.log(config.longest), config.lengthscales)
    lengthscales = exponents.double().exp().tolist()
    path, kernel_path, disagreement = [], [], 0.0
    for lengthscale in progress(lengthscales, "lengthscales"):
        model = fit(LONG, fourier(lengthscale, config.features, config.seed), config.seed).model
        path.append(float(model.log_evidence(y)))
        disagreement = max(disagreement, abs(path[-1] - float(Dual.of(model).log_evidence(y))))
        kernel = mt.kernels.RBF(lengthscale, variance=1.0 / FOURIER_PRECISION).requires_grad_(False)
        kernel_path.append(float(Dual(kernel(inputs), NOISE_PRECISION).log_evidence(y)))
    best = max(range(len(path)), key=path.__getitem__)
    table = [{"basis": name, "ψ": LENGTHSCALES.get(name), "log evidence": evidence[name]} for name in MODELS]
    table.append({"basis": "Fourier, best ψ", "ψ": lengthscales[best], "log evidence": path[best]})
    claims = [
        at_least(
            "log evidence, affine less the best Fourier model",
            measured=evidence[AFFINE] - path[best],
            limit=0.0,
            published="no lengthscale surpasses the affine model",
        ),
        at_least(
            "log evidence, ψ = 1 less ψ = 0.3",
            measured=evidence[LONG] - evidence[SHORT],
            limit=0.0,
            published="ψ = 0.3 too flexible",
        ),
        at_least(
            "log evidence at the best ψ less that at the shortest",
            measured=path[best] - path[0],
            limit=1.0,
            published="the optimum is in the middle",
        ),
        at_least(
            "log evidence at the best ψ less that at the longest",
            measured=path[best] - path[-1],
            limit=1.0,
            published="the optimum is in the middle",
        ),
        at_most("primal against dual evidence, largest difference", measured=disagreement, limit=1e-8),
        at_most(
            "features against the RBF kernel, difference of the best log evidences",
            measured=abs(path[best] - max(kernel_path)),
            limit=0.5,
        ),
    ]
    curves = {
        "data": {"x": inputs[:, 0], "y": y},
        "lengthscales": lengthscales,
        "log evidence": path,
        "log evidence of the kernel": kernel_path,
        "models": evidence,
        "functions": {name: curve(x, fitted.at(x)) for name, fitted in fits.items()},
    }
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (left, *rest) = style.panels(2, 2, width=5.0, height=3.6)
    left.plot(curves["lengthscales"], curves["log evidence"], color=style.INK, label="Fourier, 500 features")
    left.plot(
        *(curves["lengthscales"], curves["log evidence of the kernel"]),
        color=style.PURPLE,
        linestyle=":",
        label="RBF kernel",
    )
    best = max(range(len(curves["lengthscales"])), key=curves["log evidence"].__getitem__)
    left.plot(curves["lengthscales"][best], curves["log evidence"][best], "o", color=style.RED, label="best ψ")
    for name in MODELS:
        left.axhline(curves["models"][name], color=COLORS[name], linestyle="--", linewidth=1.4, label=name)
    left.set(title="Log evidence", xlabel="lengthscale ψ", xscale="log")
    left.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    low, high = min(curves["log evidence"]), max(curves["models"].values())
    left.set_ylim(low - 1.6, high + 0.2)
    left.legend(fontsize=8.5, ncols=2, loc="lower right")
    for ax, name in zip(rest, MODELS, strict=True):
        draw_fit(ax, curves["functions"][name], curves["data"], color=COLORS[name], label="mean ± 2 std")
        value = f"{curves['models'][name]:.2f}".replace("-", "−")
        ax.set(title=f"{name[0].upper() + name[1:]} ({value})", ylim=(-4.2, 4.2))
        ax.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    id="evidence-lengthscale",
    title="Evidence of a Fourier model against its lengthscale, beside a straight line",
    reproduces=("Figure 2.9 (evidence against lengthscale), section 2.4.3",),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": 6, "features": config.features, "lengthscales": config.lengthscales},
)
