"""One- and two-dimensional toy regressions."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from matheron.data.arrays import read_arrays, require_rows, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.regression import ALWAYS_TRAIN, Regression

_FILE = "toy_1d_dun.npz"


def read_pairs(path: Path, name: str) -> Regression:
    """Read a member whose columns are x and y."""
    table = _pairs(path, name)
    return Regression(name, tensor(table[:, :1], torch.float64), tensor(table[:, 1], torch.float64), columns=("x",))


def read_simple(path: Path) -> Regression:
    """Read ``simple_1d``, whose split 0 trains on its first half and tests on its second."""
    train, test = _pairs(path, "simple_1d_train"), _pairs(path, "simple_1d_test")
    table = np.concatenate([train, test])
    folds = torch.zeros(len(table), dtype=torch.uint8)
    folds[: len(train)] = ALWAYS_TRAIN
    return Regression(
        "simple_1d", tensor(table[:, :1], torch.float64), tensor(table[:, 1], torch.float64), folds, columns=("x",)
    )


def read_plane(path: Path, name: str) -> Regression:
    """Read members ``NAME_X`` (two inputs) and ``NAME_y``."""
    arrays = read_arrays(path, **{f"{name}_X": 2, f"{name}_y": 1})
    require_rows(path, arrays, *arrays)
    return Regression(name, tensor(arrays[f"{name}_X"], torch.float64), tensor(arrays[f"{name}_y"], torch.float64))


def _pairs(path: Path, member: str) -> np.ndarray:
    table = read_arrays(path, **{member: 2})[member]
    if table.shape[1] != 2:
        raise damaged(path, f"has member {member} of shape {table.shape}, where two columns are needed")
    return table


def _source(rows: int, read: partial[Regression], note: str) -> Source[Regression]:
    origin = "the repository cambridge-mlg/DUN, gathered into one archive"
    return Source(origin, "MIT", (Layout((_FILE,), read),), rows=rows, note=note)


SOURCES: dict[str, Source[Regression]] = {
    "matern_1d": _source(400, partial(read_pairs, name="matern_1d"), "A Matérn-3/2 draw in two clusters; standardized"),
    "simple_1d": _source(1002, partial(read_simple), "Three clusters; split 0 is the published one"),
    "agw_1d": _source(400, partial(read_pairs, name="agw_1d"), "Raw units"),
    "wiggle": _source(300, partial(read_pairs, name="wiggle"), "Standardized"),
    "axis": _source(100, partial(read_plane, name="axis"), "Two inputs, raw units"),
    "origin": _source(100, partial(read_plane, name="origin"), "Two inputs, raw units"),
}
