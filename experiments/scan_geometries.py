"""Scan geometries as the library draws them, and a walnut through two of them.

Above, the rays of small scans, taken from the scans themselves. The middle row of a real cone-beam scan is nearly a fan
beam: below, the slice it passes through by conjugate gradients, filtered back-projection and total variation, and the
same slice of a volume reconstructed from some views of the whole detector. There is no ground truth: what is measured
is how well each explains the scan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import avg_pool2d

from experiments import style
from experiments.claims import Claim, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.pictures import grays, pixels
from matheron.data import load
from matheron.data.scans import ConeScan
from matheron.operators import Operator
from matheron.tomography import ConeBeam, FanBeam, ParallelBeam, cgls, filtered_back_projection, total_variation


@dataclass(frozen=True)
class Config:
    """Sizes; the cone's detector is binned by ``binning`` both ways and every ``every``-th view taken."""

    size: int = 256
    iterations: int = 15
    strength: float = 0.02
    volume: int = 128
    volume_iterations: int = 10
    binning: int = 1
    every: int = 4
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    walnut = load("walnut")
    table: list[Record] = [
        {"scan": type(scan).__name__, "gap": gap(scan.operator(), config.seed)} for scan in small_scans()
    ]
    slices = progress.once("slice", lambda: reconstruct_slice(walnut, config))
    volume = progress.once("volume", lambda: reconstruct_volume(walnut, config))
    table += [{"reconstruction": name, "residual": part["residual"]} for name, part in (slices | volume).items()]
    curves = {key: {name: part[key] for name, part in (slices | volume).items()} for key in ("image", "steps")}
    return Report(table, claims(table, config), curves)


def small_scans() -> tuple[ParallelBeam, FanBeam, ConeBeam]:
    """One angle each, for the picture and the dot test."""
    far = {"source_to_axis": 16.0, "source_to_detector": 24.0}
    return (
        ParallelBeam((6, 8), [math.pi / 6], 11),
        FanBeam((6, 8), [math.pi / 6], 11, detector_spacing=1.6, **far),
        ConeBeam((6, 6, 8), [0.0], 11, detector_spacing=1.6, **far),
    )


def gap(A: Operator, seed: int) -> float:
    """``|⟨A x, y⟩ − ⟨x, Aᵀ y⟩| / (‖A x‖ ‖y‖)``."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(A.shape[1], generator=generator), torch.randn(A.shape[0], generator=generator)
    image = A @ x
    difference = (image.double() * y.double()).sum() - (x.double() * (A.T @ y).double()).sum()
    return abs(float(difference)) / float(image.norm() * y.norm())


def reconstruct_slice(walnut: ConeScan, config: Config) -> Record:
    """Detectors count against the columns of the file."""
    scan = FanBeam(
        config.size,
        walnut.angles,
        walnut.sinogram.shape[2],
        pixel_spacing=walnut.sinogram.shape[2] * walnut.column_pitch / walnut.magnification / config.size,
        detector_spacing=walnut.column_pitch,
        source_to_axis=walnut.source_to_axis,
        source_to_detector=walnut.source_to_detector,
    )
    A, y = scan.operator(), scan.flatten(walnut.sinogram[:, walnut.sinogram.shape[1] // 2].flip(-1))
    least = cgls(A, y, iterations=config.iterations)
    varied = total_variation(A, y, shape=scan.image_shape, strength=config.strength, tolerance=1e-3)
    images = {
        "CGLS": least.image,
        "filtered back-projection": filtered_back_projection(scan, y),
        "total variation": varied.image,
    }
    steps = {"CGLS": least.residuals.tolist()}
    return {name: facts(A, y, x, scan.image(x), steps.get(name, ())) for name, x in images.items()}


def reconstruct_volume(walnut: ConeScan, config: Config) -> Record:
    views = avg_pool2d(walnut.sinogram[:: config.every].flip(-1), config.binning)
    extent = walnut.sinogram.shape[2] * walnut.column_pitch / walnut.magnification
    scan = ConeBeam(
        config.volume,
        walnut.angles[:: config.every],
        (views.shape[1], views.shape[2]),
        pixel_spacing=extent / config.volume,
        detector_spacing=(config.binning * walnut.row_pitch, config.binning * walnut.column_pitch),
        source_to_axis=walnut.source_to_axis,
        source_to_detector=walnut.source_to_detector,
    )
    A, y = scan.operator(), scan.flatten(views)
    least = cgls(A, y, iterations=config.volume_iterations)
    middle = scan.image(least.image)[config.volume // 2]
    return {"CGLS, cone": facts(A, y, least.image, middle, least.residuals.tolist())}


def facts(A: Operator, y: Tensor, x: Tensor, image: Tensor, steps: Sequence[float]) -> Record:
    return {"residual": float((A @ x - y).norm() / y.norm()), "image": grays(image), "steps": steps}


def claims(table: list[Record], config: Config) -> list[Claim]:
    residuals = {row["reconstruction"]: row["residual"] for row in table if "reconstruction" in row}
    dots = [at_most(f"dot test of {row['scan']}", measured=row["gap"], limit=1e-5) for row in table if "gap" in row]
    return [
        *dots,
        at_most("relative residual, slice by CGLS", measured=residuals["CGLS"], limit=0.02),
        at_most("relative residual, volume by CGLS", measured=residuals["CGLS, cone"], limit=0.05),
    ]


def draw(record: Record) -> Figure:
    figure, axes = style.panels(4, rows=2, width=3.4, height=3.6)
    parallel, fan, cone = small_scans()
    plan_view(axes[0], parallel, "ParallelBeam")
    plan_view(axes[1], fan, "FanBeam")
    side_view(axes[2], cone)
    curves = record["curves"]
    for (name, steps), color in zip(curves["steps"].items(), style.COLORS, strict=False):
        if steps:
            axes[3].plot(range(len(steps)), [100 * value for value in steps], ".-", color=color, label=name)
    axes[3].set(title="Residuals", xlabel="iteration", ylabel="percent", yscale="log")
    axes[3].legend()
    residuals = {row["reconstruction"]: row["residual"] for row in record["table"] if "reconstruction" in row}
    for ax, (name, rows) in zip(axes[4:], curves["image"].items(), strict=True):
        ax.imshow(pixels(rows), cmap="gray", vmin=0, vmax=255)
        ax.set(title=name[0].upper() + name[1:], xlabel=f"residual {100 * residuals[name]:.1f} %", xticks=(), yticks=())
        ax.grid(False)
    return figure


def plan_view(ax: Axes, scan: ParallelBeam | FanBeam, title: str) -> None:
    """From above: ``x`` to the right, ``y`` up."""
    height, width = scan.image_shape
    outline(ax, width, height)
    angle = torch.as_tensor(scan.angles)[0]
    toward = torch.stack([angle.cos(), angle.sin()]).double()
    along = torch.stack([-toward[1], toward[0]])
    origins, directions = next(scan.rays())
    if isinstance(scan, FanBeam):
        starts = origins
        ends = (scan.source_to_axis - scan.source_to_detector) * toward + scan.coordinates[:, None] * along
        ax.plot(*starts[0], "o", color=style.ORANGE)
        note(ax, starts[0], "source", (-4, 10))
        shown, name = along, "s"
    else:
        starts, ends = origins - 6.5 * directions, origins + 6.5 * directions
        shown, name = toward, "s = x cos θ + y sin θ"
    for start, end in zip(starts, ends, strict=True):
        ax.plot(*torch.stack([start, end]).mT, color=style.SKY, linewidth=0.8)
    detector(ax, ends, shown, name, (4, -9) if isinstance(scan, FanBeam) else (-8, -13))
    turn = torch.linspace(0.0, float(angle), 30)
    ax.plot(2.2 * turn.cos(), 2.2 * turn.sin(), color=style.INK, linewidth=1.0)
    ax.annotate("θ" if name != "s" else "t", (2.5, 0.45), fontsize=9)
    ax.plot([0.0, 6.0], [0.0, 0.0], color=style.GRAY, linewidth=0.8, linestyle=":")
    ax.plot(*torch.stack([torch.zeros(2, dtype=torch.float64), 6.0 * toward]).mT, color=style.GRAY, lw=0.8, ls=":")
    finish(ax, title, "x", "y")


def side_view(ax: Axes, scan: ConeBeam) -> None:
    """From the side at angle 0: ``x`` to the right, ``z`` up."""
    depth, _, width = scan.image_shape
    outline(ax, width, depth, corner="first slice", below=True)
    v = scan.coordinates[0]
    ends = torch.stack([torch.full_like(v, scan.source_to_axis - scan.source_to_detector), v], 1)
    source = torch.tensor([scan.source_to_axis, 0.0], dtype=torch.float64)
    for end in ends:
        ax.plot(*torch.stack([source, end]).mT, color=style.SKY, linewidth=0.8)
    ax.plot(*source, "o", color=style.ORANGE)
    note(ax, source, "source", (-14, 8))
    detector(ax, ends, torch.tensor([0.0, 1.0], dtype=torch.float64), "v")
    finish(ax, "ConeBeam, t = 0", "x", "z")


def outline(ax: Axes, width: int, height: int, corner: str = "[0, 0]", below: bool = False) -> None:
    """The pixels and where they are counted from."""
    for k in range(width + 1):
        ax.plot([k - width / 2] * 2, [-height / 2, height / 2], color=style.LIGHT, linewidth=0.8)
    for k in range(height + 1):
        ax.plot([-width / 2, width / 2], [k - height / 2] * 2, color=style.LIGHT, linewidth=0.8)
    bottom = -height / 2 if below else height / 2 - 1.0
    wide = width if below else 1.0
    ax.fill_between([-width / 2, -width / 2 + wide], bottom, bottom + 1.0, color=style.GREEN, alpha=0.5, linewidth=0.0)
    place = torch.tensor([-width / 2, bottom + (0.0 if below else 1.0)])
    note(ax, place, corner, (0, -11) if below else (-6, 4), style.GREEN)


def detector(ax: Axes, ends: Tensor, direction: Tensor, name: str, first: tuple[int, int] = (4, -9)) -> None:
    ax.plot(*ends.mT, "s", color=style.INK, markersize=3)
    tip = ends[-1] + 2.5 * direction
    ax.annotate("", tuple(tip.tolist()), tuple(ends[-1].tolist()), arrowprops={"arrowstyle": "->", "color": style.INK})
    ax.plot(*tip, alpha=0.0)  # within the limits
    note(ax, tip, name, (3, 2))
    note(ax, ends[0], "detector 0", first)


def note(ax: Axes, place: Tensor, text: str, offset: tuple[int, int], color: str = style.INK) -> None:
    ax.annotate(
        text, tuple(place.tolist()), xytext=offset, textcoords="offset points", fontsize=8, color=color,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
    )  # fmt: skip


def finish(ax: Axes, title: str, horizontal: str, vertical: str) -> None:
    ax.set(title=title, xlabel=horizontal, ylabel=vertical)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.16)
    ax.grid(False)


FULL = Config()

EXPERIMENT: Experiment[Any] = Experiment(
    id="scan-geometries",
    title="Scan geometries, and a walnut through a fan and a cone",
    reproduces=("no figure of the thesis: the scans under those of chapter 7",),
    budgets={"quick": replace(FULL, volume=64, binning=2), "full": FULL, "thesis": replace(FULL, size=501)},
    run=run,
    draw=draw,
    data=lambda config: ("walnut",),
    sizes=lambda config: {"pixels": config.size**2, "voxels": config.volume**3},
)
