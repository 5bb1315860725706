"""A matrix that is stored."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_float
from matheron.operators.base import Index, Operator
from matheron.operators.layout import multiply


class Dense(Operator):
    """``A V`` with ``A`` in memory.

    >>> import torch
    >>> Dense(torch.eye(3)).rows(slice(0, 2)) @ torch.arange(3.0)
    tensor([0., 1.])
    """

    def __init__(self, matrix: Tensor) -> None:
        matrix = require_float("matrix", matrix)
        if matrix.ndim != 2:
            raise ValueError(f"matrix must have shape (n, m), got {tuple(matrix.shape)}")
        super().__init__((matrix.shape[0], matrix.shape[1]), matrix.dtype, matrix.device)
        self.matrix = matrix

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """One call to the matrix product."""
        return multiply(self.matrix, V)

    def transpose(self) -> Operator:
        """A view."""
        return Dense(self.matrix.mT)

    def diagonal(self) -> Float[Tensor, " n"]:
        """Read off."""
        self._require_square("diagonal")
        return self.matrix.diagonal()

    def rows(self, index: Index) -> Operator:
        """A view for a slice, a copy for an index."""
        return Dense(self.matrix[index])

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """Rows, then columns."""
        self._require_square("block")
        return self.matrix[index][:, index]

    def permuted(self, order: Tensor) -> Operator:
        """A copy."""
        return Dense(self.matrix[order][:, order])

    def dense(self) -> Float[Tensor, "n m"]:
        """The matrix."""
        return self.matrix
