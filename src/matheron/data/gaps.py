"""The small UCI regression sets with standard and gap splits."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from matheron.arguments import require_count, require_inputs
from matheron.data.arrays import read_arrays, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.regression import Split, require_targets, standardize
from matheron.data.tables import read_table

_TEST = 2
_SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
}


@dataclass(frozen=True, eq=False)
class GapRegression:
    """A regression set in raw units with random splits and, per input, a split that tests on its middle third.

    Row ``i`` of ``standard`` or ``gap`` marks the rows that split ``i`` tests on; all others are trained on.

    >>> X = torch.arange(6.0)[:, None]
    >>> middle = torch.tensor([[False, False, True, True, False, False]])
    >>> ramp = GapRegression("ramp", X, X[:, 0], standard=~middle, gap=middle)
    >>> split = ramp.split(0, kind="gap")
    >>> split.restore(split.y_test)
    tensor([2., 3.])
    """

    name: str
    X: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    standard: Bool[Tensor, "s n"]
    gap: Bool[Tensor, "g n"]

    def __post_init__(self) -> None:
        require_inputs("X", self.X)
        require_targets(self.y, self.rows)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.X.shape[0]

    def split(
        self, index: int, kind: Literal["standard", "gap"] = "standard", dtype: torch.dtype = torch.float32
    ) -> Split:
        """Return split ``index`` of one kind, standardized with the statistics of its training rows."""
        if kind not in ("standard", "gap"):
            raise ValueError(f"kind must be 'standard' or 'gap', got {kind!r}")
        tests = self.standard if kind == "standard" else self.gap
        if require_count("index", index, least=0) >= len(tests):
            raise ValueError(f"index is {index}, but {self.name} has {len(tests)} {kind} splits, counted from 0")
        return standardize(self.X, self.y, tests[index], dtype)


def read_gaps_npz(path: Path, name: str, member: str) -> GapRegression:
    """Read ``NAME_X``, ``NAME_y``, ``NAME_standard_split`` and ``NAME_gap_split`` (1 train, 2 test)."""
    members = (f"{member}_X", f"{member}_y", f"{member}_standard_split", f"{member}_gap_split")
    arrays = read_arrays(path, **dict(zip(members, (2, 1, 2, 2), strict=True)))
    X, y, standard, gap = (arrays[key] for key in members)
    if not len(X) == len(y) == standard.shape[1] == gap.shape[1] or X.shape[1] != _SHAPES[member][1]:
        raise damaged(path, f"has members of shapes {[arrays[key].shape for key in members]} that do not fit together")
    return GapRegression(
        name,
        tensor(X, torch.float64),
        tensor(y, torch.float64),
        standard=tensor(standard == _TEST, torch.bool),
        gap=tensor(gap == _TEST, torch.bool),
    )


def read_gaps_text(table: Path, features: Path, target: Path, *first: Path, name: str, member: str) -> GapRegression:
    """Read ``data.txt`` with the indices of its input and target columns, and one file of test rows per split."""
    inputs, output = _integers(features), int(_integers(target)[0])
    if len(inputs) != _SHAPES[member][1]:
        raise damaged(features, f"names {len(inputs)} input columns, where {_SHAPES[member][1]} are needed")
    # Some tables carry columns that no index names, so the width comes from the first line that is read.
    values = read_table(table, None, delimiter=None)
    if max(*inputs, output) >= values.shape[1]:
        raise damaged(table, f"has {values.shape[1]} columns, but column {max(*inputs, output)} is asked for")
    standard, gap = (_test_rows(path, len(values)) for path in first)
    return GapRegression(
        name,
        tensor(values[:, inputs], torch.float64),
        tensor(values[:, output], torch.float64),
        standard=standard,
        gap=gap,
    )


def _test_rows(first: Path, rows: int) -> Bool[Tensor, "s n"]:
    marks: list[np.ndarray] = []
    while (path := first.with_name(first.name.replace("_0.", f"_{len(marks)}."))).is_file():
        indices = _integers(path)
        if indices.min() < 0 or indices.max() >= rows:
            raise damaged(path, f"names row {indices.max()}, but the table has {rows} rows")
        mark = np.zeros(rows, dtype=bool)
        mark[indices] = True
        marks.append(mark)
    return tensor(np.stack(marks), torch.bool)


def _integers(path: Path) -> np.ndarray:
    return read_table(path, None, delimiter=None).ravel().astype(int)


def _source(member: str) -> Source[GapRegression]:
    name = f"{member}_gap"
    standard, gap = (f"UCI_for_sharing/{kind}/{member}/data" for kind in ("standard", "gap"))
    text = (
        f"{standard}/data.txt",
        f"{standard}/index_features.txt",
        f"{standard}/index_target.txt",
        f"{standard}/index_test_0.txt",
        f"{gap}/index_test_0.txt",
    )
    return Source(
        origin="the repository cambridge-mlg/DUN (UCI_for_sharing: standard and gap splits)",
        license="splits MIT; the UCI data under the terms of their donors",
        layouts=(
            Layout(("uci_dun_splits.npz",), partial(read_gaps_npz, name=name, member=member)),
            Layout(text, partial(read_gaps_text, name=name, member=member)),
        ),
        rows=_SHAPES[member][0],
        note="Of the numbered index files only the first is listed; the others lie beside it.",
    )


SOURCES: dict[str, Source[GapRegression]] = {f"{member}_gap": _source(member) for member in _SHAPES}
