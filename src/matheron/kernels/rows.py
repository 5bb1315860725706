"""Rows and columns of input matrices, dense or in compressed sparse rows (CSR)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def take_rows(x: Float[Tensor, "n d"], rows: slice | Tensor) -> Float[Tensor, "r d"]:
    """``x[rows]`` for a slice, an index or a mask, of the layout of ``x``.

    >>> x = torch.eye(3)
    >>> take_rows(x.to_sparse_csr(), torch.tensor([2, 0])).to_dense()
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if x.layout == torch.strided:
        return x[rows]
    pointers, columns, values = x.crow_indices(), x.col_indices(), x.values()
    if isinstance(rows, slice):
        start, stop, step = rows.indices(x.shape[0])
        if step == 1:
            stop = max(start, stop)
            first, last = int(pointers[start]), int(pointers[stop])
            return csr(pointers[start : stop + 1] - first, columns[first:last], values[first:last], x.shape[1])
        rows = torch.arange(start, stop, step, device=x.device)
    # Indexing the row numbers gives masks, negative indices and range checks the meaning they have for dense rows.
    rows = torch.arange(x.shape[0], device=x.device)[rows]
    starts, lengths = pointers[rows], pointers[rows + 1] - pointers[rows]
    taken = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    entries = torch.arange(int(taken[-1]), device=x.device) + (starts - taken[:-1]).repeat_interleave(lengths)
    return csr(taken, columns[entries], values[entries], x.shape[1])


def copy_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """``x`` in memory of its own, without its history."""
    return x.detach().clone(memory_format=torch.contiguous_format) if x.layout == torch.strided else x.detach().clone()


def join_rows(first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> Float[Tensor, "n+m d"]:
    """The rows of ``first``, then those of ``second``, of their common layout.

    >>> x = torch.eye(2).to_sparse_csr()
    >>> join_rows(x, x).to_dense()[:, 0]
    tensor([1., 0., 1., 0.])
    """
    if first.layout == torch.strided:
        return torch.cat([first, second])
    pointers = torch.cat([first.crow_indices(), second.crow_indices()[1:] + first.crow_indices()[-1]])
    columns = torch.cat([first.col_indices(), second.col_indices()])
    return csr(pointers, columns, torch.cat([first.values(), second.values()]), first.shape[1])


def take_columns(x: Float[Tensor, "n d"], columns: Sequence[int]) -> Float[Tensor, "n c"]:
    """``x[:, columns]``, of the layout of ``x``."""
    if x.layout == torch.strided:
        return x[:, list(columns)]
    index = torch.tensor([c % x.shape[1] for c in columns], device=x.device)
    return x.to_sparse_coo().index_select(1, index).coalesce().to_sparse_csr()


def entries(x: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n+1"], Int[Tensor, " e"], Float[Tensor, " e"]]:
    """The non-zero entries row by row: where each row starts, their columns and their values.

    An all-zero row has a one in column ``d``, where no other row has anything.

    >>> entries(torch.tensor([[0.0, 5.0], [0.0, 0.0]]))
    (tensor([0, 1, 2]), tensor([1, 2]), tensor([5., 1.]))
    """
    if x.layout == torch.strided:
        rows, columns = x.nonzero(as_tuple=True)
        values = x[rows, columns]
    else:
        stored = x.values() != 0
        rows = row_numbers(x)[stored]
        columns, values = x.col_indices()[stored].to(torch.int64), x.values()[stored]
    counts = torch.bincount(rows, minlength=x.shape[0])
    empty = counts == 0
    if bool(empty.any()):
        kept = torch.arange(len(rows), device=x.device) + empty.cumsum(0)[rows]
        size = len(rows) + int(empty.sum())
        columns = columns.new_full((size,), x.shape[1]).index_copy_(0, kept, columns)
        values = values.new_ones(size).index_copy_(0, kept, values)
    counts = counts.clamp_min(1)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns, values


def distinct_pairs(
    columns: Int[Tensor, " e"], values: Float[Tensor, " e"]
) -> tuple[Int[Tensor, " p"], Float[Tensor, " p"], Int[Tensor, " e"]]:
    """The columns and values of the pairs that occur, sorted by column then value, and the pair of each entry.

    >>> distinct_pairs(torch.tensor([4, 1, 4, 4]), torch.tensor([2.0, 1.0, 1.0, 2.0]))
    (tensor([1, 4, 4]), tensor([1., 1., 2.]), tensor([2, 0, 1, 2]))
    """
    amounts, level = values.unique(return_inverse=True)
    base = max(len(amounts), 1)
    pairs, pair = (columns * base + level).unique(return_inverse=True)
    return pairs // base, amounts[pairs % base], pair


def row_numbers(x: Float[Tensor, "n d"]) -> Int[Tensor, " e"]:
    """The row of each stored entry of a CSR matrix."""
    return torch.arange(x.shape[0], device=x.device).repeat_interleave(x.crow_indices().diff())


def csr(pointers: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """A CSR matrix from its parts."""
    with warnings.catch_warnings():
        # The user who hands over a dense matrix need not read that PyTorch calls CSR tensors beta.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(pointers, columns, values, (len(pointers) - 1, width), check_invariants=False)
