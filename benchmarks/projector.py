"""Projections and back-projections beside ASTRA, scikit-image and diffct, on one thread of a processor.

In the plane ours is Joseph's method kept as a pair of sparse matrices, ASTRA's ``linear`` the same weights computed
anew in every product (its fans, ``line_fanflat``, the way through each pixel), scikit-image a rotation of the image and
sums of columns. scikit-image has as many detectors as an image has pixels across: its projections are compared by the
ray, which favors it where others have few detectors. Its back-projection, without a filter, is not the transpose of its
projection. In space ours is matrix-free, and so is diffct's reference code for processors; diffct is installed apart,
`pip install --no-deps diffct`, as it would bring PyTorch for CUDA.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import Claim, at_least
from experiments.harness import Experiment, Progress, Record, Report
from experiments.peer import GIB, Peer, interleave
from matheron.tomography import ConeBeam, FanBeam, ParallelBeam

Work = Callable[[], Tensor]
LIMIT = 12 * GIB
DIRECTIONS = ("forward", "adjoint")
PEERS = {"parallel": ("astra", "scikit_image"), "fan": ("astra",), "cone": ("diffct",)}
LABELS = {"matheron": "matheron", "astra": "ASTRA", "scikit_image": "scikit-image", "diffct": "diffct"}


@dataclass(frozen=True)
class Problem:
    """A square image or a cube, angles over a turn and detectors that see all of it."""

    beam: str
    size: int
    angles: int
    detectors: int

    @property
    def label(self) -> str:
        """For claims and pictures."""
        power = "³" if self.beam == "cone" else "²"
        across = f"{self.detectors}²" if self.beam == "cone" else str(self.detectors)
        return f"{self.beam} {self.size}{power}, {self.angles} × {across}"


@dataclass(frozen=True)
class Config:
    """Problems as (beam, size, angles, detectors) and how often each is measured."""

    problems: tuple[tuple[str, int, int, int], ...] = (
        ("parallel", 128, 200, 183),
        ("parallel", 501, 60, 128),
        ("fan", 501, 60, 128),
        ("cone", 64, 60, 96),
        ("cone", 128, 60, 192),
    )
    repeats: int = 15
    cone_repeats: int = 3


def scan_of(beam: str, size: int, angles: int, detectors: int) -> ParallelBeam | FanBeam | ConeBeam:
    """The source at three image widths, the detector at four and a half."""
    at = torch.arange(angles, dtype=torch.float64) * (math.pi if beam == "parallel" else 2 * math.pi) / angles
    if beam == "parallel":
        return ParallelBeam(size, at, detectors, detector_spacing=max(1.0, math.sqrt(2.0) * size / detectors))
    far = {"source_to_axis": 3.0 * size, "source_to_detector": 4.5 * size}
    spacing = 1.5 * 1.5 * size / detectors
    kind = FanBeam if beam == "fan" else ConeBeam
    return kind(size, at, detectors, detector_spacing=spacing, **far)


def random_columns(scan: ParallelBeam | FanBeam | ConeBeam) -> tuple[Tensor, Tensor]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(scan.shape[1], generator=generator), torch.rand(scan.shape[0], generator=generator)


def matheron(beam: str, size: int, angles: int, detectors: int, direction: str) -> Work:
    scan = scan_of(beam, size, angles, detectors)
    x, y = random_columns(scan)
    if direction == "build":
        return lambda: scan.operator() @ x
    A = scan.operator()
    back = A.T
    return (lambda: A @ x) if direction == "forward" else (lambda: back @ y)


def astra(beam: str, size: int, angles: int, detectors: int, direction: str) -> Work:
    import astra

    scan = scan_of(beam, size, angles, detectors)
    assert not isinstance(scan, ConeBeam)
    x, y = (column.numpy() for column in random_columns(scan))
    volume, at = astra.create_vol_geom(size, size), torch.as_tensor(scan.angles, dtype=torch.float64)
    if isinstance(scan, FanBeam):
        near, beyond, step = scan.source_to_axis, scan.source_to_axis - scan.source_to_detector, scan.detector_spacing
        cos, sin = at.cos(), at.sin()
        vectors = torch.stack([near * cos, near * sin, beyond * cos, beyond * sin, -step * sin, step * cos], 1)
        geometry = astra.create_proj_geom("fanflat_vec", detectors, vectors.numpy())
        projector = astra.create_projector("line_fanflat", geometry, volume)
    else:
        geometry = astra.create_proj_geom("parallel", scan.detector_spacing, detectors, at.numpy())
        projector = astra.create_projector("linear", geometry, volume)
    W = astra.OpTomo(projector)
    back = W.T
    return lambda: torch.from_numpy(W @ x if direction == "forward" else back @ y)


def scikit_image(beam: str, size: int, angles: int, detectors: int, direction: str) -> Work:
    from skimage.transform import iradon, radon

    scan = scan_of(beam, size, angles, detectors)
    x, y = random_columns(scan)
    degrees = torch.rad2deg(torch.as_tensor(scan.angles, dtype=torch.float64)).numpy()
    image, sinogram = x.reshape(size, size).numpy(), scan.sinogram(y).mT.contiguous().numpy()
    if direction == "forward":
        return lambda: torch.from_numpy(radon(image, degrees, circle=False))
    return lambda: torch.from_numpy(iradon(sinogram, degrees, size, filter_name=None, circle=False))


def diffct(beam: str, size: int, angles: int, detectors: int, direction: str) -> Work:
    import diffct

    scan = scan_of(beam, size, angles, detectors)
    assert isinstance(scan, ConeBeam)
    x, y = random_columns(scan)
    trajectory = diffct.circular_trajectory_3d(angles, scan.source_to_axis, scan.source_to_detector, device="cpu")
    projector = diffct.Projector(
        trajectory, scan.image_shape, scan.view_shape, detector_spacing=scan.coordinates[1].diff()[0].item()
    )
    volume, sinogram = scan.image(x), scan.sinogram(y)
    return lambda: projector.project(volume) if direction == "forward" else projector.backproject(sinogram)


def run(config: Config, progress: Progress) -> Report:
    table: list[Record] = []
    for problem in progress([Problem(*sizes) for sizes in config.problems], "problems"):
        repeats = config.cone_repeats if problem.beam == "cone" else config.repeats
        for direction in DIRECTIONS:
            key = f"{problem.label}, {direction}"
            table += progress.once(key, lambda p=problem, d=direction, r=repeats: side_by_side(p, d, r))
        table += progress.once(f"{problem.label}, build", lambda p=problem: build(p))
    return Report(table, list(claims(table)))


def arguments(problem: Problem, direction: str) -> Record:
    return {
        "beam": problem.beam, "size": problem.size, "angles": problem.angles, "detectors": problem.detectors,
        "direction": direction,
    }  # fmt: skip


def side_by_side(problem: Problem, direction: str, repeats: int) -> list[Record]:
    """Each library in a child of its own, one run of each in every round; ratios are within a round."""
    names = ("matheron", *PEERS[problem.beam])
    peers = [
        Peer(f"benchmarks.projector:{name}", arguments(problem, direction), memory=LIMIT, timeout=3600.0)
        for name in names
    ]
    rounds = interleave(peers, repeats)
    rows: list[Record] = []
    for place, (name, peer) in enumerate(zip(names, peers, strict=True)):
        peer.close()
        rows.append(
            {
                "problem": problem.label,
                "direction": direction,
                "library": name,
                "seconds": statistics.median(round[place] for round in rounds),
                "ratio": rays(problem, direction, name)
                * statistics.median(round[place] / round[0] for round in rounds),
                "norm": peer.runs[-1]["norm"] if peer.runs else None,
                "peak_bytes": peer.peak,
                "ended": peer.ended,
            }
        )
    return rows


def rays(problem: Problem, direction: str, name: str) -> float:
    """Our rays over theirs, where they are theirs to choose."""
    if name != "scikit_image" or direction != "forward":
        return 1.0
    return problem.detectors / math.ceil(math.sqrt(2.0) * problem.size)


def build(problem: Problem) -> list[Record]:
    """Building and a first product; a matrix-free projector has nothing to build."""
    if problem.beam == "cone":
        return []
    peer = Peer("benchmarks.projector:matheron", arguments(problem, "build"), memory=LIMIT, timeout=3600.0)
    seconds = statistics.median(peer.run() for _ in range(3))
    peer.close()
    return [{"problem": problem.label, "direction": "build", "library": "matheron", "seconds": seconds}]


def claims(table: list[Record]) -> Iterator[Claim]:
    for row in table:
        if row["library"] != "matheron":
            name = f"times as fast as {LABELS[row['library']]}, {row['problem']}, {row['direction']}"
            yield at_least(name, measured=math.nan if row["ratio"] is None else row["ratio"], limit=1.0)


def draw(record: Record) -> Figure:
    rows = [row for row in record["table"] if row["direction"] in DIRECTIONS]
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    figure, axes = style.panels(len(problems), width=2.7, height=3.6)
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    limits = [10.0 ** math.floor(math.log10(1e3 * min(seconds))), 10.0 ** math.ceil(math.log10(1e3 * max(seconds)))]
    colors = dict(zip(LABELS, (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE), strict=True))
    for ax, problem in zip(axes, problems, strict=True):
        here = [row for row in rows if row["problem"] == problem]
        names = list(dict.fromkeys(row["library"] for row in here))
        for row in here:
            place = DIRECTIONS.index(row["direction"]) + 0.8 / len(names) * (names.index(row["library"]) + 0.5) - 0.4
            if row["seconds"] is not None:
                ax.bar(place, 1e3 * row["seconds"], 0.72 / len(names), color=colors[row["library"]])
        beam, _, sizes = problem.partition(" ")
        ax.set(yscale="log", ylim=limits, title=f"{beam.capitalize()}\n{sizes}", xticks=(0, 1))
        ax.set_xticklabels(DIRECTIONS)
        ax.grid(False, axis="x")
    axes[0].set_ylabel("milliseconds")
    shown = dict.fromkeys(row["library"] for row in rows)
    handles = [axes[0].bar(0, 0, color=colors[name]) for name in shown]
    figure.legend(handles, [LABELS[name] for name in shown], loc="outside lower center", ncols=len(handles))
    return figure


FULL = Config()
EXPERIMENT = Experiment(
    id="projector",
    title="Projections and back-projections on one thread",
    reproduces=("no figure of the thesis: the products under every reconstruction of chapter 7",),
    budgets={
        "quick": Config(problems=(*FULL.problems[:3], ("cone", 64, 12, 96)), repeats=7, cone_repeats=2),
        "full": FULL,
        "thesis": replace(FULL),
    },
    run=run,
    draw=draw,
    sizes=lambda config: {"rays": max(angles * detectors for _, _, angles, detectors in config.problems)},
)
