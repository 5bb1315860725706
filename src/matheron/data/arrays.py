"""Reading ``.npz`` archives."""

import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matheron.data.files import damaged
from matheron.data.regression import Regression

_UNREADABLE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError)


def read_arrays(path: Path, **dimensions: int) -> dict[str, np.ndarray]:
    """Return the named members of an archive, each checked to have the given number of dimensions."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            absent = sorted(set(dimensions) - set(archive.files))
            arrays = {member: archive[member] for member in dimensions if member not in absent}
    except (*_UNREADABLE, TypeError) as error:  # TypeError: a bare .npy array is no archive to be opened
        raise damaged(path, f"is not a readable npz archive ({error})") from error
    if absent:
        raise damaged(path, f"lacks the member(s) {', '.join(absent)}")
    for member, ndim in dimensions.items():
        array = arrays[member]
        if array.ndim != ndim:
            raise damaged(path, f"has member {member} of shape {array.shape}, where {ndim} dimensions are needed")
        if array.size == 0:
            raise damaged(path, f"has nothing in member {member}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise damaged(path, f"has NaN or infinite entries in member {member}")
    return arrays


def require_rows(path: Path, arrays: dict[str, np.ndarray], *members: str) -> None:
    """Refuse an archive whose named members differ in their first dimension."""
    lengths = {member: len(arrays[member]) for member in members}
    if len(set(lengths.values())) > 1:
        raise damaged(path, f"has members of unequal length, {lengths}")


def tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return a tensor of the given dtype that owns its memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype)


def read_regression(
    path: Path, name: str, inputs: int, *, columns: tuple[str, ...] | None = None, folded: bool = False
) -> Regression:
    """Return the regression set of members ``X`` and ``y``, and ``test_fold`` where ``folded``."""
    arrays = read_arrays(path, X=2, y=1, **({"test_fold": 1} if folded else {}))
    require_rows(path, arrays, *arrays)
    if arrays["X"].shape[1] != inputs:
        raise damaged(path, f"has {arrays['X'].shape[1]} input columns, where {inputs} are needed")
    return Regression(
        name,
        tensor(arrays["X"], torch.float64),
        tensor(arrays["y"], torch.float64),
        folds=tensor(arrays["test_fold"], torch.uint8) if folded else None,
        columns=columns,
    )
