"""A matrix as an action."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, overload

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_float, require_same

if TYPE_CHECKING:
    from matheron.operators.diagonal import Diagonal

Index = slice | Tensor


class Operator(ABC):
    """``A``: known by what it does to columns, ``A @ V``.

    A subclass gives :meth:`product` and :meth:`transpose`; where they can be had cheaply also :meth:`diagonal`,
    :meth:`rows` and :meth:`block`. Sums, products and multiples are operators again.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> A = Dense(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> (2.0 * A.T + A) @ torch.tensor([1.0, 0.0])
    tensor([3., 7.])
    """

    origin: object = None
    """What it was made from where that is more than numbers, such as a scan; parts of it do not inherit this."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        """What products come out in."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """Where products are computed."""
        return self._device

    @abstractmethod
    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """``A V`` for columns that have been checked."""

    @abstractmethod
    def transpose(self) -> Operator:
        """``Aᵀ``."""

    def diagonal(self) -> Float[Tensor, " n"]:
        """``A_ii`` of a square operator; this fallback costs a product with the identity."""
        self._require_square("diagonal")
        return self.dense().diagonal()

    def rows(self, index: Index) -> Operator:
        """``A[index]`` as an operator; this fallback computes all of ``A V`` and keeps the rows asked for."""
        from matheron.operators.selection import Selection

        return Selection(index, self.shape[0], dtype=self.dtype, device=self.device) @ self

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """``A[index, index]`` as a dense matrix."""
        self._require_square("block")
        picked = torch.arange(self.shape[0], device=self.device)[index]
        columns = torch.zeros(self.shape[1], len(picked), dtype=self.dtype, device=self.device)
        columns[picked, torch.arange(len(picked), device=self.device)] = 1.0
        return self.rows(index) @ columns

    def permuted(self, order: Tensor) -> Operator:
        """``A[order][:, order]``."""
        from matheron.operators.selection import Selection

        picked = Selection(order, self.shape[0], dtype=self.dtype, device=self.device)
        return picked @ self @ picked.T

    def dense(self) -> Float[Tensor, "n m"]:
        """The matrix itself: for tests and small problems."""
        return self.product(torch.eye(self.shape[1], dtype=self.dtype, device=self.device))

    def upper(self) -> Float64[Tensor, "n n"]:
        """A symmetric matrix in float64, on and above its diagonal at least: what a factorization reads.

        Operators that can be evaluated in float64 are, so that what is small beside the matrix is not lost in rounding.
        """
        self._require_square("upper")
        return self.dense().to(torch.float64, copy=True)

    @property
    def T(self) -> Operator:
        """``Aᵀ``."""
        return self.transpose()

    @overload
    def __matmul__(self, other: Operator) -> Operator: ...
    @overload
    def __matmul__(self, other: Tensor) -> Tensor: ...
    def __matmul__(self, other: Any) -> Any:
        from matheron.operators.algebra import Product

        if isinstance(other, Operator):
            return Product(self, other)
        other = require_float("the right-hand side of @", other)
        if other.ndim not in (1, 2) or other.shape[0] != self.shape[1]:
            raise ValueError(
                f"the right-hand side of @ has shape {tuple(other.shape)} but the operator is {self.shape}; "
                f"it takes ({self.shape[1]},) or ({self.shape[1]}, s)"
            )
        require_same("the right-hand side of @", other, "the operator", self)
        return self.product(other[:, None])[:, 0] if other.ndim == 1 else self.product(other)

    def __add__(self, other: Operator) -> Operator:
        from matheron.operators.algebra import Sum

        return Sum(self, other) if isinstance(other, Operator) else NotImplemented

    def __sub__(self, other: Operator) -> Operator:
        return self + (-1.0) * other if isinstance(other, Operator) else NotImplemented

    def __mul__(self, factor: float | Tensor) -> Operator:
        from matheron.operators.algebra import Scaled

        return Scaled(self, factor) if isinstance(factor, (int, float, Tensor)) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Operator:
        return (-1.0) * self

    def shift(self, values: float | Tensor | Diagonal) -> Operator:
        """``A + diag(values)``."""
        from matheron.operators.diagonal import Diagonal

        return self + (values if isinstance(values, Diagonal) else Diagonal(values))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"

    def _require_square(self, verb: str) -> None:
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{verb} needs a square operator, this one is {self.shape}")
