"""One look for all pictures: readable, safe for color-blind readers, nothing that carries no information."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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


def save(figure: Figure, path: Path) -> None:
    """Write whole or not at all; the same figure gives the same bytes."""
    beside = path.with_name(path.name + ".part")
    figure.savefig(beside, dpi=150, format="png", metadata={"Software": None})
    os.replace(beside, path)
