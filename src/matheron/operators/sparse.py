"""A matrix of which few entries are not zero."""

from __future__ import annotations

import copy
import warnings
from functools import cached_property
from typing import Any

import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_float
from matheron.operators.action import Action
from matheron.operators.base import Index, Operator


class Sparse(Action):
    """``A V`` with ``A`` and, from its first use, ``Aᵀ`` in compressed rows.

    Both are kept since a product through compressed columns is many times slower. The entries themselves are taken
    for constants: gradients flow to ``V`` only.

    >>> import torch
    >>> A = Sparse(torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]).to_sparse_csr())
    >>> A @ torch.ones(3), A.T @ torch.tensor([1.0, 1.0])
    (tensor([2., 4.]), tensor([1., 2., 3.]))
    """

    def __init__(self, matrix: Tensor, transposed: Tensor | None = None) -> None:
        matrix = require_float("matrix", matrix)
        if matrix.layout != torch.sparse_csr or matrix.ndim != 2:
            raise ValueError(
                f"matrix must be a sparse CSR tensor of shape (n, m), got {matrix.layout} of shape "
                f"{tuple(matrix.shape)}; convert it with matrix.to_sparse_csr()"
            )
        self.matrix = matrix
        if transposed is not None:
            self.transposed = transposed
        super().__init__((matrix.shape[0], matrix.shape[1]), matrix.dtype, matrix.device)

    @cached_property
    def transposed(self) -> Tensor:
        """``Aᵀ`` in compressed rows."""
        return flip(self.matrix)

    def __deepcopy__(self, memo: dict[int, Any]) -> Sparse:
        """Part by part: PyTorch clones tensors in compressed rows, but does not copy them by this name."""
        memo[id(self)] = other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.clone() if isinstance(value, Tensor) else copy.deepcopy(value, memo))
        return other

    def act(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """One call."""
        return multiply(self.matrix, V)

    def transpose(self) -> Operator:
        """The other half of the pair, computed in its first product."""
        return SparseTransposed(self)

    def rows(self, index: Index) -> Sparse:
        """Entries are shared for a slice, copied for an index."""
        starts, places, values = self.matrix.crow_indices(), self.matrix.col_indices(), self.matrix.values()
        if isinstance(index, slice):
            first, last, step = index.indices(self.shape[0])
            if step == 1:
                starts = starts[first : max(first, last) + 1]
                kept = slice(int(starts[0]), int(starts[-1]))
                return Sparse(compressed(starts - starts[0], places[kept], values[kept], self.shape[1]))
        picked = torch.arange(self.shape[0], device=self.device)[index]
        counts = (starts[1:] - starts[:-1])[picked].long()
        ends = counts.cumsum(0)
        entries = torch.arange(int(counts.sum()), device=self.device)
        entries += torch.repeat_interleave(starts[:-1][picked].long() - (ends - counts), counts)
        starts = torch.cat([ends.new_zeros(1), ends]).to(starts.dtype)
        return Sparse(compressed(starts, places[entries], values[entries], self.shape[1]))


class SparseTransposed(Action):
    """``Aᵀ U`` of a :class:`Sparse`."""

    def __init__(self, forward: Sparse) -> None:
        self.forward = forward
        super().__init__((forward.shape[1], forward.shape[0]), forward.dtype, forward.device)

    def act(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """One call."""
        return multiply(self.forward.transposed, V)

    def transpose(self) -> Operator:
        """The matrix."""
        return self.forward

    def rows(self, index: Index) -> Operator:
        """Rows of the half that is kept."""
        return Sparse(self.forward.transposed).rows(index)


def multiply(matrix: Tensor, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
    """``A V`` of compressed rows; a single column takes a way that is twice as fast."""
    if 0 in (*V.shape, *matrix.shape) or matrix.col_indices().numel() == 0:
        return V.new_zeros(matrix.shape[0], V.shape[1])
    return (matrix @ V[:, 0].contiguous())[:, None] if V.shape[1] == 1 else matrix @ V.contiguous()


def compressed(starts: Tensor, places: Tensor, values: Tensor, columns: int) -> Tensor:
    """The CSR tensor of these parts, without PyTorch's word of warning that such tensors are young."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(starts, places, values, (len(starts) - 1, columns), check_invariants=False)


def flip(matrix: Tensor) -> Tensor:
    """``Aᵀ`` in compressed rows with their columns in order, in one pass on the host.

    PyTorch sorts all entries for this, which took twenty times as long.
    """
    parts = (part.cpu().numpy() for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices()))
    flipped = scipy.sparse.csr_matrix(tuple(parts), shape=tuple(matrix.shape)).T.tocsr()
    # SciPy picks the width of its indices anew; both halves of a pair are indexed alike.
    width, device = matrix.crow_indices().dtype, matrix.device
    starts, places = (torch.from_numpy(part).to(device, width) for part in (flipped.indptr, flipped.indices))
    return compressed(starts, places, torch.from_numpy(flipped.data).to(device), matrix.shape[0])
