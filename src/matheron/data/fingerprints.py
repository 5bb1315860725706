"""Morgan count fingerprints of molecules, stored by rows."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from matheron.data.arrays import read_arrays, require_rows, tensor
from matheron.data.files import Layout, Source, damaged

_BINS = 1024


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Counts per bin in compressed sparse rows: row i has ``counts[indptr[i]:indptr[i+1]]`` in ``indices[...]``.

    ``row`` is the molecule's row in the set the fingerprints were computed from, ``y`` its score.

    >>> prints = Fingerprints(
    ...     "one",
    ...     row=torch.tensor([7]),
    ...     indptr=torch.tensor([0, 2]),
    ...     indices=torch.tensor([1, 3]),
    ...     counts=torch.tensor([2, 1]),
    ...     y=torch.tensor([-8.1], dtype=torch.float64),
    ...     bins=4,
    ... )
    >>> prints.dense()
    tensor([[0., 2., 0., 1.]])
    """

    name: str
    row: Int64[Tensor, " n"]
    indptr: Int64[Tensor, " n+1"]
    indices: Int64[Tensor, " k"]
    counts: Int64[Tensor, " k"]
    y: Float64[Tensor, " n"]
    bins: int

    @property
    def rows(self) -> int:
        """The number of molecules."""
        return len(self.row)

    def dense(
        self, rows: Int64[Tensor, " m"] | None = None, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "m bins"]:
        """Return the fingerprints of some rows, or of all, as a dense matrix."""
        rows = torch.arange(self.rows) if rows is None else rows
        lengths = self.indptr[rows + 1] - self.indptr[rows]
        owners = torch.repeat_interleave(torch.arange(len(rows)), lengths)
        # Entry k of a row lies k places after the row's start.
        offsets = torch.arange(len(owners)) - (lengths.cumsum(0) - lengths)[owners]
        entries = self.indptr[rows][owners] + offsets
        matrix = torch.zeros(len(rows), self.bins, dtype=dtype)
        matrix[owners, self.indices[entries]] = self.counts[entries].to(dtype)
        return matrix


def read_morgan(path: Path) -> Fingerprints:
    """Read the fingerprints of ``dockstring_partial`` (radius 1, 1024 bins, counts) with its F2 scores."""
    arrays = read_arrays(path, row=1, indptr=1, indices=1, counts=1, F2_x10=1)
    require_rows(path, arrays, "row", "F2_x10")
    require_rows(path, arrays, "indices", "counts")
    indptr = arrays["indptr"]
    if (
        len(indptr) != len(arrays["row"]) + 1
        or indptr[-1] != len(arrays["indices"])
        or (indptr[1:] < indptr[:-1]).any()
    ):
        raise damaged(path, "has an indptr that does not fit its rows and indices")
    if arrays["indices"].max(initial=0) >= _BINS:
        raise damaged(path, f"has a bin {arrays['indices'].max()}, where {_BINS} are counted from 0")
    return Fingerprints(
        "dockstring_f2_morgan",
        row=tensor(arrays["row"], torch.int64),
        indptr=tensor(indptr.astype("int64"), torch.int64),
        indices=tensor(arrays["indices"].astype("int64"), torch.int64),
        counts=tensor(arrays["counts"], torch.int64),
        y=tensor(arrays["F2_x10"], torch.float64) / 10,
        bins=_BINS,
    )


SOURCES: dict[str, Source[Fingerprints]] = {
    "dockstring_f2_morgan": Source(
        origin="dockstring_partial, its F2 molecules through RDKit's Morgan generator (radius 1, 1024 bins, counts)",
        license="as dockstring_partial",
        layouts=(Layout(("dockstring_F2_morgan.npz",), read_morgan),),
        rows=97030,
    )
}
