"""Pictures of a walnut with error bars: maps of errors and deviations, calibration and traces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import style
from experiments.harness import Record
from experiments.pictures import pixels

G, TV, PLAIN, DROPOUT = METHODS = ("g-prior", "TV-PredCP", "no PredCP", "MC dropout")
"""The third, for comparison, has smooth filters whose lengthscales are left to the evidence."""

COLORS = {G: style.BLUE, TV: style.GREEN, PLAIN: style.SKY, DROPOUT: style.ORANGE}
LEVELS = tuple(0.05 * i for i in range(1, 20))


def draw(record: Record) -> Figure:
    """Maps of the first number of views, then curves, then maps of the others."""
    views = [str(number) for number in record["config"]["views"] if str(number) in record["curves"]]
    figure, axes = style.panels(6, rows=2 + len(views), width=3.0, height=3.1)
    found = record["curves"][views[0]]
    methods = found["methods"]
    picture(axes[0], "Reference", found["reference"])
    picture(axes[1], f"Back-projection, {views[0]} views", found["filtered back-projection"])
    picture(axes[2], "Deep image prior", methods[G]["mean"])
    spread(axes[3], "Its error", methods[G], "error")
    picture(axes[4], "MC dropout: mean", methods[DROPOUT]["mean"])
    spread(axes[5], "MC dropout: error", methods[DROPOUT], "error")
    for ax, name in zip(axes[6:], METHODS, strict=False):
        spread(ax, f"{name}: deviation", methods[name], "std")
    rows = {r["method"]: r for r in record["table"] if "ll" in r and str(r["views"]) == views[0]}
    bars(axes[10], rows)
    lines(axes[11:18], record, methods)
    for place, number in enumerate(views[1:], start=3):
        more, here = record["curves"][number], axes[6 * place : 6 * place + 6]
        picture(here[0], f"Back-projection, {number} views", more["filtered back-projection"])
        picture(here[1], "Deep image prior", more["methods"][G]["mean"])
        for ax, (name, key) in zip(here[2:], itertools.product((G, DROPOUT), ("error", "std")), strict=True):
            spread(ax, f"{name}: {'error' if key == 'error' else 'deviation'}", more["methods"][name], key)
    return figure


def picture(ax: Axes, title: str, rows: list[str], colors: str = "gray") -> None:
    """One image."""
    ax.imshow(pixels(rows), cmap=colors, vmin=0, vmax=255)
    ax.set(title=title, xticks=(), yticks=())
    ax.grid(False)


def spread(ax: Axes, title: str, part: Record, key: str) -> None:
    """A map with the value of its brightest pixels."""
    picture(ax, title, part[key], "magma")
    ax.set(xlabel=f"white is {part['tops'][key]:.2g}")


def bars(ax: Axes, rows: Record) -> None:
    """Log-likelihoods."""
    for place, name in enumerate(METHODS):
        for shift, key in ((-0.18, "ll"), (0.18, "ll_patches")):
            ax.bar(place + shift, rows[name][key], 0.34, color=COLORS[name], alpha=1.0 if key == "ll" else 0.5)
    ax.axhline(0.0, color=style.GRAY, linewidth=0.8)
    ax.set_xticks(range(len(METHODS)), [name.replace(" ", "\n") for name in METHODS], fontsize=7)
    ax.set(title="Log-likelihood", ylabel="nats per pixel; pale: 10 × 10")


def lines(axes: Sequence[Axes], record: Record, methods: Record) -> None:
    """Calibration, histograms, EM, times."""
    calibration, errors, *traces, times, ranks = axes
    calibration.plot([0, 1], [0, 1], color=style.GRAY, linewidth=0.8)
    centers = [0.6 * (i + 0.5) / 40 for i in range(40)]
    for name, part in methods.items():
        calibration.plot(LEVELS, part["coverage"], color=COLORS[name], label=name)
        errors.plot(centers, [v or math.nan for v in part["stds"]], color=COLORS[name], label=f"std, {name}")
    calibration.set(title="Calibration", xlabel="level", ylabel="share of pixels within")
    calibration.legend(fontsize=7)
    errors.plot(centers, [v or math.nan for v in methods[G]["errors"]], color=style.INK, label="error")
    errors.set(title="Errors and deviations", xlabel="value", ylabel="pixels", yscale="log")
    errors.legend(fontsize=7)
    titles = ("Prior precision", "Effective dimension", "Marginal log-likelihood")
    for ax, place, title in zip(traces, range(3), titles, strict=True):
        for (count, rows), color in zip(record["curves"]["em"].items(), (style.RED, style.BLUE), strict=True):
            ax.plot(range(len(rows)), [r[place] for r in rows], ".-", color=color, label=f"{count} samples")
        ax.set(title=title, xlabel="EM step", yscale="log" if place == 0 else "linear")
        ax.legend(fontsize=7)
    scores = [row for row in record["table"] if "ll" in row and row["method"] in methods][: len(methods)]
    for row in [r for r in record["table"] if "cg_seconds" in r]:
        times.bar(row["method"], row["cg_seconds"] / 60.0, 0.6, color=COLORS[row["method"]])
    times.set(title="Learning by CG", ylabel="minutes", yscale="log")
    for row in scores:
        ranks.bar(row["method"].replace(" ", "\n"), row["rank_correlation"], 0.6, color=COLORS[row["method"]])
    ranks.set(title="Deviation and error", ylabel="rank correlation")
    ranks.tick_params(axis="x", labelsize=7)
