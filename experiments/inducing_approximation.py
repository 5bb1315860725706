"""Functions through inducing points with ``f`` in place of its projection ``f_Z``, against the KL-optimal posterior.

Descent for many inducing points fits ``f(X) + ε`` where the KL-optimal posterior has ``f_Z(X) + ε``,
``f_Z = K_(·)Z K_ZZ⁻¹ f(Z)``. Both posteriors are Gaussian with the same mean; with ``W = σ⁻² (K_ZZ + σ⁻² K_ZX K_XZ)⁻¹
K_ZX`` the approximate functions ``f − K_(·)Z W (f(X) + ε)`` have the variance
``k − 2 K_(·)Z W K_X(·) + K_(·)Z W (K + σ²I) Wᵀ K_Z(·)``. Standard deviations in closed form, and three functions.
Locations are rows left when nearest neighbors are eliminated, as in the thesis; a first run with k-means centers left
the thin tails of the data without a point, whatever their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.two_regimes import INFILL, LARGE, NOISE, REGIMES, Moments, Problem, draw_posterior, problem

FEW, SOME, MANY = AMOUNTS = ("few", "some", "many")


@dataclass(frozen=True)
class Config:
    """Sizes; few, some and many inducing points of each regime."""

    rows: int = 10_000
    infill: tuple[int, int, int] = (10, 20, 40)
    large: tuple[int, int, int] = (1_024, 2_048, 4_096)
    samples: int = 256
    seed: int = 0


def approximate(setting: Problem, post: mt.gp.Posterior) -> tuple[Tensor, Tensor]:
    """Standard deviations with ``f`` in place of ``f_Z`` in closed form, and zero-mean functions drawn that way."""
    k, Z = setting.kernel, post.conditioning.support
    _, factor = post.conditioning.factorize()  # of K_ZZ + σ⁻² K_ZX K_XZ
    assert factor is not None
    update = k(setting.X, Z) @ torch.cholesky_solve(k(Z, setting.x), factor) / NOISE  # (K_xZ W)ᵀ
    variance = k.diagonal(setting.x) - 2.0 * (update * setting.across.mT).sum(0)
    variance += (update * (setting.system() @ update)).sum(0)
    functions = setting.features(setting.x) @ setting.weights - update.mT @ setting.targets[:, 1:]
    return variance.clamp_min(0.0).sqrt(), functions


def run(config: Config, progress: Progress) -> Report:
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    ratios: dict[tuple[str, str], dict[str, Tensor]] = {}
    for regime, numbers in ((INFILL, config.infill), (LARGE, config.large)):
        setting = problem(regime, config.rows, config.samples, config.seed)
        curves[regime] = setting.curves()
        for amount, points in progress(list(zip(AMOUNTS, numbers, strict=True)), regime):
            Z = mt.gp.eliminate_neighbors(setting.X, points)
            optimal, post = setting.inducing(Z, torch.Generator().manual_seed(config.seed))
            std, functions = approximate(setting, post)
            found = Moments(optimal.mean, std)
            ratio = ratios[regime, amount] = {
                "optimal": optimal.std / setting.exact.std,
                "approximate": std / setting.exact.std,
                "difference": std / optimal.std - 1.0,
            }
            close = optimal.distance(setting.exact) < 0.05
            drawn = functions.square().mean(1).sqrt() / std
            table.append(
                {
                    "regime": regime,
                    "points": points,
                    "rows": config.rows,
                    "mean std, KL-optimal over exact": float(ratio["optimal"].mean()),
                    "mean std, approximate over exact": float(ratio["approximate"].mean()),
                    "least std, approximate over exact": float(ratio["approximate"].min()),
                    "largest difference of the two": float(ratio["difference"].abs().max()),
                    "largest where KL-optimal has W2 < 0.05": float((ratio["difference"].abs() * close).max()),
                    "largest W2, KL-optimal to exact": float(optimal.distance(setting.exact).max()),
                    "largest W2, approximate to exact": float(found.distance(setting.exact).max()),
                    "std of functions over closed form": float(drawn.mean()),
                }
            )
            curves[regime][amount] = {
                "optimal": optimal.curve(),
                "approximate": found.curve(),
                "functions": (optimal.mean[:, None] + functions)[:, :3].mT,
                "points": points,
            }
    return Report(table, claims(table, ratios), curves)


def claims(table: list[dict[str, Any]], ratios: dict[tuple[str, str], dict[str, Tensor]]) -> list[Claim]:
    """The two differ only where the KL-optimal posterior is off, by wider error bars, and with many points nowhere."""
    good = [ratio["difference"][(ratio["optimal"] - 1.0).abs() < 0.05].abs() for ratio in ratios.values()]
    many = [ratios[regime, MANY] for regime in REGIMES]
    few = [ratios[regime, FEW] for regime in REGIMES]
    return [
        at_most(
            "largest relative difference of the two where the KL-optimal std is within 5 % of the exact",
            measured=float(torch.cat(good).max()),
            limit=0.1,
            published="only inaccurate where the inducing posterior is",
        ),
        at_least(
            "least mean std of few points over exact, approximate",
            measured=min(float(ratio["approximate"].mean()) for ratio in few),
            limit=1.05,
            published="larger than those of the exact posterior",
        ),
        at_least(
            "least std over exact, approximate, any number of points",
            measured=min(row["least std, approximate over exact"] for row in table),
            limit=0.999,
            published="larger than those of the exact posterior",
        ),
        at_least(
            "least mean difference with few points, approximate over KL-optimal",
            measured=min(float(ratio["difference"].mean()) for ratio in few),
            limit=0.0,
            published="the approximate method provides larger error bars",
        ),
        at_most(
            "largest relative difference of the two with many points",
            measured=max(float(ratio["difference"].abs().max()) for ratio in many),
            limit=0.02,
            published="indistinguishable",
        ),
        at_most(
            "largest relative difference of the approximate and the exact posterior with many points",
            measured=max(float((ratio["approximate"] - 1.0).abs().max()) for ratio in many),
            limit=0.05,
            published="indistinguishable",
        ),
    ]


def draw(record: Record) -> Figure:
    figure, axes = style.panels(3, 2, width=4.9, height=3.3)
    for place, ax in enumerate(axes):
        curves = record["curves"][REGIMES[place // 3]]
        part = curves[AMOUNTS[place % 3]]
        title = f"{REGIMES[place // 3].capitalize()}: {part['points']:,} points for {curves['rows']:,} rows"
        draw_posterior(ax, curves, part["approximate"], color=style.ORANGE, label="with f", title=title)
        for sign in (-2.0, 2.0):
            pairs = zip(part["optimal"]["mean"], part["optimal"]["std"], strict=True)
            ax.plot(
                curves["x"],
                [m + sign * s for m, s in pairs],
                color=style.BLUE,
                linewidth=1.2,
                label="KL-optimal ± 2 std" if sign > 0 else None,
            )
        for function in part["functions"]:
            ax.plot(curves["x"], function, color=style.ORANGE, linewidth=0.7, alpha=0.7)
        ax.set_ylim(-4.2, 6.2)
        ax.legend(loc="upper center", ncols=2, fontsize=8, columnspacing=1.0, handlelength=1.4)
    return figure


WHOLE = Config()

EXPERIMENT = Experiment(
    id="inducing-approximation",
    title="Inducing-point functions with f in place of its projection",
    reproduces=("Figure 4.7 (exact and approximate inducing-point posteriors), section 4.3",),
    budgets={"quick": replace(WHOLE, rows=5_000, large=(512, 1_024, 2_048)), "full": WHOLE, "thesis": WHOLE},
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "posteriors": len(config.infill) + len(config.large)},
)
