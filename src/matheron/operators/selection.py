"""Picking rows."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.operators.base import Index, Operator


class Selection(Operator):
    """``(S V)_i = V_(index_i)``: rows picked, possibly repeated.

    >>> import torch
    >>> Selection(torch.tensor([2, 0]), 3) @ torch.tensor([1.0, 2.0, 3.0])
    tensor([3., 1.])
    """

    def __init__(
        self, index: Index, size: int, *, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> None:
        self.index = index
        if isinstance(index, slice):
            picked = len(range(*index.indices(size)))
        else:
            picked = len(torch.arange(size, device=index.device)[index])
        super().__init__((picked, size), dtype or torch.get_default_dtype(), device or torch.device("cpu"))

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """A view for a slice, a copy for an index."""
        return V[self.index]

    def transpose(self) -> Operator:
        """Scatters rows back."""
        return Scatter(self)


class Scatter(Operator):
    """``Sᵀ V``: each row added to the place it was picked from.

    >>> import torch
    >>> Selection(torch.tensor([2, 0]), 3).T @ torch.tensor([1.0, 2.0])
    tensor([2., 0., 1.])
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        rows, size = selection.shape
        super().__init__((size, rows), selection.dtype, selection.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Adds up rows that were picked more than once."""
        places = torch.arange(self.shape[0], device=self.device)[self.selection.index]
        return V.new_zeros(self.shape[0], V.shape[1]).index_add(0, places, V)

    def transpose(self) -> Operator:
        """The selection."""
        return self.selection
