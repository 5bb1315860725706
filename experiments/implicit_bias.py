"""Where stochastic gradient descent errs, and why: regions of input space, spectral basis functions, and a bound.

The regions are told by the exact posterior: interpolation where its standard deviation is below 0.3 of the prior's,
far away where it is above 0.99, extrapolation between. ``v_i(·) = Σ_j V_ji λ_i^(−½) k(x_j, ·)`` are the spectral basis
functions of ``K = V Λ Vᵀ``; where they lie is told by ``∫ v_i²`` over the window. For the posterior mean by plain SGD
on ``½ b‖Y − Kα‖² + ½‖α‖²_K`` (minibatches drawn with replacement, the regularizer in full, arithmetic average of ``t``
iterates from zero, no momentum), with probability ``1 − δ`` in every direction at once

    ``|⟨v_i, μ_SGD − μ⟩| ≤ λ_i^(−½) ( b‖Y‖ / (βt) + G √((2/t) log(n/δ)) )``.

``G`` is what Hoeffding's lemma gives for the gradients met, ``b n r^(−½) max_i λ_i ‖V_i‖_∞ max_t ‖Kα_t − Y‖_∞``; beside
it stands the largest standard deviation of the noise along any direction, as if it were Gaussian.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import checkpoints
from experiments.two_regimes import (
    EXTRAPOLATION,
    FAR,
    INFILL,
    INTERPOLATION,
    NOISE,
    REGIONS,
    Problem,
    draw_posterior,
    problem,
)

TOP, LATE = range(5), range(9, 20)
"""Directions the claims call the first ones, and those of index 10 to 20."""

SHOWN = (0, 1, 4, 9, 14, 19)
SHADES = {INTERPOLATION: style.GREEN, EXTRAPOLATION: style.RED, FAR: style.GRAY}


@dataclass(frozen=True)
class Config:
    """Sizes; ``step`` is a share of the largest step that the bound allows."""

    rows: int = 10_000
    samples: int = 64
    epochs: float = 10_000.0
    batch: int = 512
    averaging: float = 10.0
    plain_steps: int = 20_000
    plain_batch: int = 512
    step: float = 0.5
    delta: float = 0.05
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Spectrum:
    """``K = V Λ Vᵀ``, its eigenvalues above rounding in descending order."""

    K: Tensor
    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, setting: Problem) -> Spectrum:
        """Of the kernel matrix in full."""
        K = setting.kernel(setting.X)
        values, vectors = torch.linalg.eigh(K)
        kept = values > len(K) * torch.finfo(K.dtype).eps * values.max()
        return cls(K, values[kept].flip(0), vectors[:, kept].flip(1))

    def coordinates(self, alpha: Tensor) -> Tensor:
        """``⟨v_i, K_(·)X α⟩ = λ_i^½ V_iᵀ α``."""
        return self.values.sqrt() * (self.vectors.mT @ alpha)

    def functions(self, across: Tensor, indices: list[int]) -> Tensor:
        """``v_i`` at the inputs whose ``K_xX`` is ``across``, one per row."""
        return (across @ self.vectors[:, indices] / self.values[indices].sqrt()).mT


def descend(setting: Problem, spectrum: Spectrum, config: Config, progress: Progress) -> list[dict[str, Any]]:
    """Errors of plain SGD by direction, and the bounds on them, after some numbers of steps."""
    n, r, b, y = len(setting.y), config.plain_batch, 1.0 / NOISE, setting.y
    largest = float(spectrum.values[0])
    step = config.step * NOISE / (largest * (largest + NOISE))
    reach = spectrum.values * spectrum.vectors.abs().max(0).values
    source = torch.Generator().manual_seed(config.seed)
    alpha, total = torch.zeros_like(y), torch.zeros_like(y)
    wanted, found = set(checkpoints(config.plain_steps, 12)), []
    hoeffding = gaussian = 0.0
    for t in progress(range(1, config.plain_steps + 1), "plain SGD"):
        total += alpha
        product = spectrum.K @ alpha
        error = product - y
        hoeffding = max(hoeffding, b * n / math.sqrt(r) * float(reach.max() * error.abs().max()))
        if t in wanted:
            spread = (spectrum.vectors * error[:, None]).std(0)
            gaussian = max(gaussian, b * n / math.sqrt(r) * float((spectrum.values * spread).max()))
            drift = b * float(y.norm()) / (step * t)
            chance = math.sqrt(2.0 / t * math.log(n / config.delta))
            found.append(
                {
                    "steps": t,
                    "error": spectrum.coordinates(total / t - setting.alpha[:, 0]).abs(),
                    "bound": (drift + hoeffding * chance) / spectrum.values.sqrt(),
                    "Gaussian bound": (drift + gaussian * chance) / spectrum.values.sqrt(),
                }
            )
        rows = torch.randint(n, (r,), generator=source)
        alpha = alpha - step * (b * n / r * (error[rows] @ spectrum.K[rows]) + product)
    return found


def run(config: Config, progress: Progress) -> Report:
    setting = problem(INFILL, config.rows, config.samples, config.seed)
    solver = mt.solvers.SGD(epochs=config.epochs, tolerance=1e-12, batch=config.batch, averaging=config.averaging)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        result = solver.solve(
            setting.system(),
            setting.targets,
            noise=setting.noise,
            generator=torch.Generator().manual_seed(config.seed),
        )
    found, regions = setting.moments(result.solution), setting.regions()
    distance = found.distance(setting.exact_functions)
    exact_std = setting.exact_functions.std
    table: list[dict[str, Any]] = [
        {
            "region": region,
            "from": float(setting.x[mask, 0].abs().min()),
            "to": float(setting.x[mask, 0].abs().max()),
            "RMS W2": float(distance[mask].square().mean().sqrt()),
            "largest W2": float(distance[mask].max()),
            "mean std of SGD over exact": float((found.std / exact_std)[mask].mean()),
        }
        for region, mask in regions.items()
    ]

    spectrum = Spectrum.of(setting)
    masses = spectrum.functions(setting.across, list(range(len(spectrum.values)))).square()
    inside = masses[:, regions[INTERPOLATION]].sum(1) / masses.sum(1)
    along = descend(setting, spectrum, config, progress)
    truth = spectrum.coordinates(setting.alpha[:, 0])
    relative = {
        "plain SGD": along[-1]["error"] / truth.abs(),
        "SGD": spectrum.coordinates(result.solution[:, 0] - setting.alpha[:, 0]).abs() / truth.abs(),
    }
    table += [
        {
            "direction": i + 1,
            "eigenvalue": float(spectrum.values[i]),
            "share among the data": float(inside[i]),
            **{f"relative error, {name}": float(value[i]) for name, value in relative.items()},
            "error over bound": float(along[-1]["error"][i] / along[-1]["bound"][i]),
        }
        for i in range(min(30, len(spectrum.values)))
    ]
    curves = setting.curves() | {
        "SGD": found.curve(),
        "W2": distance,
        "regions": {region: mask.tolist() for region, mask in regions.items()},
        "basis": {str(i + 1): v for i, v in zip(SHOWN, spectrum.functions(setting.across, list(SHOWN)), strict=True)},
        "eigenvalues": spectrum.values,
        "relative": relative,
        "bound": [along[0], along[len(along) // 2], along[-1]],
    }
    small = spectrum.values < spectrum.values[0] / 1_000
    return Report(table, claims(table, inside, along, relative, small), curves)


def claims(
    table: list[dict[str, Any]],
    inside: Tensor,
    along: list[dict[str, Any]],
    relative: dict[str, Tensor],
    small: Tensor,
) -> list[Claim]:
    """What the caption, the proposition and the text around them say."""
    near, edge, far = table[: len(REGIONS)]
    return [
        at_most("RMS W2, interpolation", measured=near["RMS W2"], limit=0.1, published="low"),
        at_most("RMS W2, far away", measured=far["RMS W2"], limit=0.02, published="low"),
        at_least(
            "RMS W2, extrapolation over interpolation",
            measured=edge["RMS W2"] / near["RMS W2"],
            limit=3.0,
            published="the error concentrates at the edges",
        ),
        at_least(
            "mean standard deviation of SGD over exact, extrapolation",
            measured=edge["mean std of SGD over exact"],
            limit=1.0,
            published="reverts to the prior",
        ),
        at_least(
            "least share of ∫ v² among the data, functions 1 to 5",
            measured=float(inside[list(TOP)].min()),
            limit=0.8,
            published="lie on the interpolation region",
        ),
        at_most(
            "largest share of ∫ v² among the data, functions 10 to 20",
            measured=float(inside[list(LATE)].max()),
            limit=0.5,
            published="lie on the extrapolation region",
        ),
        at_most(
            "largest error over the bound, all directions and steps",
            measured=max(float((step["error"] / step["bound"]).max()) for step in along),
            limit=1.0,
            published="bound holds with probability 0.95",
        ),
        at_most(
            "largest error over the bound with Gaussian noise",
            measured=max(float((step["error"] / step["Gaussian bound"]).max()) for step in along),
            limit=1.0,
        ),
        at_most(
            "largest relative error of plain SGD in directions 1 to 5",
            measured=float(relative["plain SGD"][list(TOP)].max()),
            limit=0.05,
            published="converges quickly where eigenvalues are large",
        ),
        at_least(
            "median relative error of plain SGD where λ < λ₁/1000",
            measured=float(relative["plain SGD"][small].median()),
            limit=0.5,
            published="converges slowly where eigenvalues are small",
        ),
    ]


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (fit, errors, speed, first, later, bound) = style.panels(3, 2, width=4.9, height=3.4)
    x = curves["x"]
    draw_posterior(fit, curves, curves["SGD"], color=style.BLUE, label="SGD", title="Posterior by SGD")
    errors.plot(x, curves["W2"], color=style.INK)
    errors.set(title="2-Wasserstein distance to exact", yscale="log", ylim=(1e-6, 3.0))
    for ax in (errors, first, later):
        for region, mask in curves["regions"].items():
            low, high = ax.get_ylim() if ax is errors else (-1.6, 1.6)
            ax.fill_between(x, low, high, where=mask, color=SHADES[region], alpha=0.12, linewidth=0, label=region)
        ax.set(xlabel="x", xlim=(x[0], x[-1]))
    errors.legend(loc="lower center", fontsize=8)
    names = list(curves["basis"])
    for ax, part in ((first, names[:3]), (later, names[3:])):
        for name, color in zip(part, (style.BLUE, style.ORANGE, style.PURPLE), strict=True):
            ax.plot(x, curves["basis"][name], color=color, label=f"v{name}")
        ax.set(title=f"Spectral basis functions {', '.join(part)}", ylim=(-1.6, 1.6))
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(handles[-3:], labels[-3:], loc="upper right", fontsize=8, ncols=3)
    index = range(1, len(curves["eigenvalues"]) + 1)
    for (name, values), color in zip(curves["relative"].items(), (style.ORANGE, style.BLUE), strict=True):
        speed.plot(index, values, ".-", color=color, label=f"relative error, {name}")
    share = [value / curves["eigenvalues"][0] for value in curves["eigenvalues"]]
    speed.plot(index, share, color=style.GRAY, linestyle="--", label="eigenvalue over the first")
    speed.set(title="Error by direction", yscale="log", xlabel="direction", ylim=(1e-7, 3.0))
    speed.legend(loc="lower left", fontsize=8)
    for part, color in zip(curves["bound"], (style.SKY, style.GREEN, style.BLUE), strict=True):
        bound.plot(
            index, part["error"], ".-", color=color, label=f"error, {part['steps']:,} step" + "s" * (part["steps"] > 1)
        )
        bound.plot(index, part["bound"], color=color, linestyle="--", linewidth=1.2)
    bound.set(title="Plain SGD and the bound on it", yscale="log", xlabel="direction", ylabel="RKHS error")
    bound.plot([], [], color=style.GRAY, linestyle="--", label="bound")
    bound.set_ylim(bottom=1e-9)
    bound.legend(loc="lower left", fontsize=8, ncols=2)
    return figure


WHOLE = Config()

EXPERIMENT = Experiment(
    id="implicit-bias",
    title="Where stochastic gradient descent errs: regions and spectral basis functions",
    reproduces=("Figure 4.10 (SGD error and spectral basis functions), section 4.4", "Proposition in section 4.4"),
    budgets={
        "quick": replace(WHOLE, rows=2_000, samples=32, epochs=2_500.0, batch=128, plain_steps=5_000, plain_batch=128),
        "full": WHOLE,
        "thesis": WHOLE,
    },
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "samples": config.samples, "plain steps": config.plain_steps},
)
