"""Rows of a kernel matrix times columns, against the sum of its parts, KeOps, whole blocks and compiled tiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.peer import GIB, Peer, interleave
from matheron.kernels import Matern32
from matheron.kernels.stationary import StationaryEvaluator, embed
from matheron.kernels.tiling import TILE
from matheron.operators import KernelOperator

Work = Callable[[], Tensor]
LIMIT = 8 * GIB


@dataclass(frozen=True)
class Config:
    """Sizes; ``large_rows`` of ``large`` rows are multiplied for the memory claim."""

    n: int = 100_000
    d: int = 9
    rows: int = 512
    columns: tuple[int, ...] = (1, 64)
    repeats: int = 15
    large: int = 1_000_000
    large_d: int = 8
    large_rows: int = 2_048


def inputs(n: int, d: int, columns: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, d, generator=generator), torch.randn(n, columns, generator=generator)


def kernel() -> Matern32:
    return Matern32().requires_grad_(False)


def matheron(n: int, d: int, columns: int, rows: int, memory: int | None = 0) -> Work:
    X, V = inputs(n, d, columns)
    K = KernelOperator(kernel(), X, memory=memory)
    return lambda: K.rows(slice(0, rows)) @ V


def tiles(n: int, d: int, columns: int, rows: int) -> tuple[StationaryEvaluator, list[slice], Tensor, Tensor]:
    """What the parts share: prepared inputs, the columns of each tile, one tile, the right-hand sides."""
    X, V = inputs(n, d, columns)
    evaluator = kernel().evaluator(X, X)
    assert isinstance(evaluator, StationaryEvaluator)
    return (
        evaluator,
        [slice(left, min(left + TILE[1], n)) for left in range(0, n, TILE[1])],
        torch.rand(rows, TILE[1]),
        V,
    )


def distances(n: int, d: int, columns: int, rows: int) -> Work:
    evaluator, parts, tile, _ = tiles(n, d, columns, rows)

    def work() -> Tensor:
        for part in parts:
            out = tile.view(-1)[: rows * (part.stop - part.start)].view(rows, -1)
            squared = evaluator.squared.like(out)
            torch.mm(evaluator.left[:rows], evaluator.right[part].mT, out=squared)
            out.copy_(squared)
        return tile

    return work


def elementwise(n: int, d: int, columns: int, rows: int, compiled: bool = False) -> Work:
    evaluator, parts, tile, _ = tiles(n, d, columns, rows)

    def correlate(out: Tensor, scratch: Tensor) -> None:
        out.clamp_min_(0)
        evaluator.kernel.fill_correlation(out, scratch)

    correlate = torch.compile(correlate, dynamic=True) if compiled else correlate

    def work() -> Tensor:
        for part in parts:
            out = tile.view(-1)[: rows * (part.stop - part.start)].view(rows, -1)
            correlate(out, evaluator.spare.like(out))
        return tile

    return work


def output(n: int, d: int, columns: int, rows: int) -> Work:
    _, parts, tile, V = tiles(n, d, columns, rows)
    result = torch.zeros(rows, columns)

    def work() -> Tensor:
        for part in parts:
            result.addmm_(tile.view(-1)[: rows * (part.stop - part.start)].view(rows, -1), V[part])
        return result

    return work


def whole_block(n: int, d: int, columns: int, rows: int) -> Work:
    """The same formula, the same float64 product for distances, in plain PyTorch on all columns at once."""
    X, V = inputs(n, d, columns)
    left, right = embed(X[:rows], X, X.double().mean(0))

    def work() -> Tensor:
        root = (3.0 * (left @ right.mT).float().clamp_min(0)).sqrt()
        return ((1.0 + root) * torch.exp(-root)) @ V

    return work


def keops(n: int, d: int, columns: int, rows: int) -> Work:
    from pykeops.torch import LazyTensor

    X, V = inputs(n, d, columns)
    root = (3.0 * ((LazyTensor(X[:rows, None]) - LazyTensor(X[None])) ** 2).sum(-1)).sqrt()
    K = (1.0 + root) * (-root).exp()
    return lambda: K @ V


PARTS = ("distances", "elementwise", "output")
LABELS = {
    "matheron": "matheron",
    "sum of parts": "sum of its parts",
    "distances": "distances",
    "elementwise": "elementwise",
    "compiled": "elementwise, compiled",
    "output": "output product",
    "whole_block": "whole blocks",
    "keops": "KeOps",
}


def run(config: Config, progress: Progress) -> Report:
    table: list[Record] = []
    ratios: dict[tuple[str, int], float] = {}
    for columns in config.columns:
        peers = ("matheron", *PARTS, "whole_block", *(("keops", "compiled") if columns == 1 else ()))
        seconds = side_by_side(config, columns, peers, progress, table)
        parts = [sum(round[peers.index(part)] for part in PARTS) for round in seconds]
        ratios["parts", columns] = statistics.median(
            round[0] / total for round, total in zip(seconds, parts, strict=True)
        )
        for name in peers[1:]:
            ratios[name, columns] = statistics.median(round[peers.index(name)] / round[0] for round in seconds)
        table.append({"peer": "sum of parts", "columns": columns, "seconds": statistics.median(parts)})
    extra = large_memory(config, progress, table)
    claims = [
        *(
            at_most(f"time over the sum of its parts, {c} columns", measured=ratios["parts", c], limit=1.2)
            for c in config.columns
        ),
        at_least("times as fast as KeOps, one column", measured=ratios["keops", 1], limit=5.0),
        at_least("times as fast as whole blocks, one column", measured=ratios["whole_block", 1], limit=3.0),
        at_most(f"extra peak memory of {config.large:,} rows, GiB", measured=extra / GIB, limit=2.0),
    ]
    return Report(table, claims)


def side_by_side(
    config: Config, columns: int, names: tuple[str, ...], progress: Progress, table: list[Record]
) -> list[list[float]]:
    """Seconds per round of each peer in its own child, one after the other in every round."""
    arguments = {"n": config.n, "d": config.d, "columns": columns, "rows": config.rows}
    peers = []
    for name in progress(names, f"{columns} columns"):
        compiled = {"compiled": True} if name == "compiled" else {}
        target = f"benchmarks.kernel_matmul:{'elementwise' if compiled else name}"
        peers.append(Peer(target, arguments | compiled, memory=LIMIT))
    rounds = interleave(peers, config.repeats)
    for position, (name, peer) in enumerate(zip(names, peers, strict=True)):
        peer.close()
        table.append(
            {
                "peer": name,
                "columns": columns,
                "seconds": statistics.median(round[position] for round in rounds),
                "norm": peer.runs[-1]["norm"] if peer.runs and name in ("matheron", "whole_block", "keops") else None,
                "peak_memory_bytes": peer.peak,
                "ended": peer.ended,
            }
        )
    return rounds


def large_memory(config: Config, progress: Progress, table: list[Record]) -> float:
    """Resident bytes beyond the inputs, for some rows of a large matrix with the default budget."""
    progress.note(f"{config.large_rows:,} of {config.large:,} rows")
    arguments = {"n": config.large, "d": config.large_d, "columns": 1, "rows": config.large_rows, "memory": None}
    peer = Peer("benchmarks.kernel_matmul:matheron", arguments, memory=LIMIT)
    peer.run()  # compiles, where there is a compiler
    seconds = peer.run()
    peer.close()
    extra = peer.peak - peer.ready["resident"] if peer.peak is not None else math.nan
    table.append(
        {
            "peer": "matheron, large",
            "columns": 1,
            "seconds": seconds,
            "seconds_all_rows": seconds * config.large / config.large_rows,
            "peak_memory_bytes": peer.peak,
            "extra_memory_bytes": extra,
            "ended": peer.ended,
        }
    )
    return extra


def draw(record: Record) -> Figure:
    columns = record["config"]["columns"]
    figure, panels = style.panels(len(columns), width=5.4, height=3.4)
    for axes, count in zip(panels, columns, strict=True):
        rows = [row for row in record["table"] if row["columns"] == count and "extra_memory_bytes" not in row]
        ours = next(row["seconds"] for row in rows if row["peer"] == "matheron")
        rows.sort(key=lambda row: list(LABELS).index(row["peer"]))
        colors = {"matheron": style.BLUE, "sum of parts": style.SKY, "whole_block": style.ORANGE, "keops": style.RED}
        for place, row in enumerate(reversed(rows)):
            seconds, ended = row["seconds"], row.get("ended")
            axes.barh(place, seconds or 0.0, height=0.65, color=colors.get(row["peer"], style.LIGHT))
            text = ended if seconds is None else f"{1e3 * seconds:.0f} ms, {seconds / ours:.2g}×"
            axes.annotate(text, (seconds or 0.0, place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_yticks(range(len(rows)), [LABELS[row["peer"]] for row in reversed(rows)])
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.25)
        axes.set(title=f"{count} column{'s' if count > 1 else ''}", xlabel="seconds, median")
    return figure


EXPERIMENT = Experiment(
    id="kernel-matmul",
    title="512 rows of a Matérn-3/2 matrix times columns, in tiles",
    reproduces=("no figure of the thesis: the product under every solver of chapter 4",),
    budgets={"quick": Config(repeats=5, large_rows=1_024), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"entries": config.n * config.rows},
)
