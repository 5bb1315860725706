"""Inducing points in two regimes: twenty where data crowd, and a tenth of the rows where they spread.

The posterior is the KL-optimal one in closed form, to which the variational parameters of SVGP converge for the same
locations. These are rows left when nearest neighbors are eliminated, which cover all of the data, and k-means centers,
which leave thin tails without a point; the claims, written with k-means in mind, are on the former. Errors are
2-Wasserstein distances of the marginals to the exact posterior's, also for other numbers of points; spacing is the
width of the data over that number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.two_regimes import INFILL, INTERPOLATION, LARGE, LENGTHSCALE, REGIMES, draw_posterior, problem

COLORS = {INFILL: style.BLUE, LARGE: style.ORANGE}
SPREAD, K_MEANS = SELECTIONS = ("rows far apart", "k-means")


@dataclass(frozen=True)
class Config:
    """Sizes; the first number of points of each regime is the one drawn, and the last the largest."""

    rows: int = 10_000
    infill: tuple[int, ...] = (20, 5, 10, 40)
    large: tuple[int, ...] = (1_024, 512, 2_048, 4_096)
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    table: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    for regime, numbers in ((INFILL, config.infill), (LARGE, config.large)):
        setting = problem(regime, config.rows, 1, config.seed)
        curves[regime] = setting.curves()
        width = float(setting.X.max() - setting.X.min())
        for points, selection in progress([(p, s) for p in numbers for s in SELECTIONS], regime):
            chosen = mt.gp.eliminate_neighbors(setting.X, points) if selection == SPREAD else points
            found, post = setting.inducing(chosen, torch.Generator().manual_seed(config.seed))
            Z = post.conditioning.support[:, 0]
            table.append(
                {
                    "regime": regime,
                    "points": points,
                    "locations": selection,
                    "rows": config.rows,
                    "spacing over lengthscale": width / len(Z) / LENGTHSCALE,
                    **setting.errors(found.distance(setting.exact)),
                    "least std over exact": float((found.std / setting.exact.std).min()),
                    "mean std over exact": float((found.std / setting.exact.std).mean()),
                    "bound per row": post.report.evidence_bound / config.rows,
                    "seconds": post.report.seconds,
                }
            )
            if points == numbers[0] and selection == SPREAD:
                curves[regime] |= {"inducing": found.curve(), "Z": Z[Z.abs() < setting.x.max()], "points": len(Z)}
    return Report(table, claims(table, config), curves)


def claims(table: list[dict[str, Any]], config: Config) -> list[Claim]:
    """Few points are enough in one regime and many are not in the other; the prior's standard deviation is 1."""
    rows = {(row["regime"], row["points"]): row for row in table if row["locations"] == SPREAD}
    crowded, spread = rows[INFILL, config.infill[0]], rows[LARGE, config.large[0]]
    return [
        at_most(
            f"infill: RMS W2 of {config.infill[0]} points among the data",
            measured=crowded[INTERPOLATION],
            limit=0.05,
            published="summarize the data",
        ),
        at_most(
            f"infill: RMS W2 of {config.infill[0]} points in the whole window",
            measured=crowded["RMS W2"],
            limit=0.1,
            published="summarize the data",
        ),
        at_least(
            f"large domain: RMS W2 of {config.large[0]:,} points",
            measured=spread["RMS W2"],
            limit=0.3,
            published="poor performance",
        ),
        at_least(
            "RMS W2, large domain over infill",
            measured=spread["RMS W2"] / crowded["RMS W2"],
            limit=5.0,
            published="not enough to summarize the data",
        ),
        at_least(
            "large domain: mean std over exact",
            measured=spread["mean std over exact"],
            limit=1.5,
            published="uncertainty overestimated",
        ),
        at_most(
            f"large domain: RMS W2 of {max(config.large):,} points, half a lengthscale apart",
            measured=rows[LARGE, max(config.large)]["RMS W2"],
            limit=0.02,
            published="half a lengthscale is close enough",
        ),
    ]


def draw(record: Record) -> Figure:
    figure, (left, middle, right) = style.panels(3, width=4.9, height=3.7)
    for ax, regime in zip((left, middle), REGIMES, strict=True):
        curves = record["curves"][regime]
        title = f"{regime.capitalize()}: {curves['points']:,} points for {curves['rows']:,} rows"
        draw_posterior(ax, curves, curves["inducing"], color=COLORS[regime], label="inducing points", title=title)
        ax.plot(curves["Z"], [-3.9] * len(curves["Z"]), "o", color=style.PURPLE, markersize=4)
        ax.annotate("inducing points", (curves["x"][0] + 0.2, -3.6), fontsize=8, color=style.PURPLE)
        for selection, line in zip(SELECTIONS, ("o-", "s:"), strict=True):
            rows = [row for row in record["table"] if row["regime"] == regime and row["locations"] == selection]
            rows.sort(key=lambda row: row["points"])
            spacing, error = ([row[key] for row in rows] for key in ("spacing over lengthscale", "RMS W2"))
            right.plot(spacing, error, line, color=COLORS[regime], label=f"{regime}, {selection}")
    right.set(title="Error against spacing", xscale="log", yscale="log", ylabel="RMS 2-Wasserstein distance")
    right.set(xlabel="distance of inducing points / lengthscale")
    right.set_xticks([0.25, 0.5, 1.0, 2.0, 4.0], ["¼", "½", "1", "2", "4"])
    right.minorticks_off()
    right.legend(loc="lower right", fontsize=8)
    return figure


WHOLE = Config()

EXPERIMENT = Experiment(
    id="svgp-regimes",
    title="Inducing points where data crowd and where they spread",
    reproduces=("Figure 3.3 (variational inducing points in two regimes), section 3.1.2", "Figure 4.1, its SVGP"),
    budgets={"quick": replace(WHOLE, rows=5_000, large=(512, 256, 1_024, 2_048)), "full": WHOLE, "thesis": WHOLE},
    run=run,
    draw=draw,
    sizes=lambda config: {"rows": config.rows, "posteriors": len(config.infill) + len(config.large)},
)
