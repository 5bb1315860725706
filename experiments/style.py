"""One look for all pictures: readable, safe for color-blind readers, nothing that carries no information."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import ArrayLike

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, SKY, YELLOW = COLORS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#8c6d31",
    "#56b4e9",
    "#f0e442",
)
"""Okabe and Ito's palette, its black replaced by a brown."""

INK, GRAY, LIGHT = "#222222", "#777777", "#d9d9d9"

_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": GRAY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": mpl.cycler(color=COLORS),
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "image.cmap": "viridis",
}


@contextmanager
def applied() -> Iterator[None]:
    """Draw in this style; settings of the caller come back afterwards."""
    with mpl.rc_context(_SETTINGS):
        yield


def panels(columns: int, rows: int = 1, *, width: float = 4.6, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure with its axes in reading order; it needs no display and no global state."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def band(ax: Axes, x: ArrayLike, mean: ArrayLike, deviation: ArrayLike, *, color: str, label: str = "") -> None:
    """A mean, and around it as much to either side as ``deviation`` says."""
    middle, half = np.asarray(mean), np.asarray(deviation)
    ax.plot(x, middle, color=color, label=label)
    ax.fill_between(x, middle - half, middle + half, color=color, alpha=0.18, linewidth=0.0)


def ellipses(ax: Axes, mean: ArrayLike, covariance: ArrayLike, *, color: str, label: str, dash: str = "-") -> None:
    """Contours at 1, 2 and 3 standard deviations of a Gaussian in the plane."""
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.linalg.cholesky(np.asarray(covariance)) @ np.stack([np.cos(angle), np.sin(angle)])
    for radius in (1, 2, 3):
        horizontal, vertical = np.asarray(mean)[:, None] + radius * circle
        ax.plot(horizontal, vertical, color=color, linestyle=dash, linewidth=1.4, label=label if radius == 1 else None)


def landscape(ax: Axes, x: ArrayLike, y: ArrayLike, height: ArrayLike, *, top: float, label: str) -> None:
    """A function of the plane in grays, light enough to draw upon; ``height`` has a row for every ``y``."""
    grays = LinearSegmentedColormap.from_list("landscape", ["#a6a6a6", "#fafafa"])
    levels = np.linspace(np.min(height), top, 15)
    filled = ax.contourf(x, y, height, levels=levels, cmap=grays, extend="max", antialiased=True)
    figure = ax.get_figure()
    assert figure is not None
    figure.colorbar(filled, ax=ax, label=label, format="%.0f", ticks=np.linspace(np.min(height), top, 5))
    ax.grid(False)


def save(figure: Figure, path: Path) -> None:
    """Write whole or not at all; the same figure gives the same bytes."""
    beside = path.with_name(path.name + ".part")
    figure.savefig(beside, dpi=150, format="png", metadata={"Software": None})
    os.replace(beside, path)


def log_seconds(ax: Axes) -> None:
    """A logarithmic x-axis with labels at powers of ten alone, which never run into each other."""
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
