"""Sums, products and multiples of operators."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_same
from matheron.operators.base import Index, Operator
from matheron.operators.diagonal import Diagonal


class Sum(Operator):
    """``(A + B) V``.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> Sum(Dense(torch.ones(2, 2)), Diagonal(1.0)).diagonal()
    tensor([2., 2.])
    """

    def __init__(self, first: Operator, second: Operator) -> None:
        if isinstance(first, Diagonal) and not first.sized:
            first = first.fit_to(second)
        if isinstance(second, Diagonal):
            second = second.fit_to(first)
        if first.shape != second.shape:
            raise ValueError(f"a sum needs operators of one shape, got {first.shape} and {second.shape}")
        require_same("the second operator of the sum", second, "the first", first)
        self.first, self.second = first, second
        super().__init__(first.shape, first.dtype, first.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Adds the two."""
        return self.first.product(V) + self.second.product(V)

    def transpose(self) -> Operator:
        """Of both."""
        return Sum(self.first.T, self.second.T)

    def diagonal(self) -> Float[Tensor, " n"]:
        """Of both."""
        return self.first.diagonal() + self.second.diagonal()

    def rows(self, index: Index) -> Operator:
        """Of both."""
        return Sum(self.first.rows(index), self.second.rows(index))

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """Of both."""
        return self.first.block(index) + self.second.block(index)

    def permuted(self, order: Tensor) -> Operator:
        """Of both."""
        return Sum(self.first.permuted(order), self.second.permuted(order))

    def upper(self) -> Float64[Tensor, "n n"]:
        """Of both."""
        return self.first.upper().add_(self.second.upper())


class Product(Operator):
    """``A (B V)``.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> Product(Dense(torch.ones(1, 3)), Dense(torch.ones(3, 2))) @ torch.ones(2)
    tensor([6.])
    """

    def __init__(self, first: Operator, second: Operator) -> None:
        if isinstance(second, Diagonal) and not second.sized:
            second = Diagonal(second.values.to(dtype=first.dtype, device=first.device), size=first.shape[1])
        if isinstance(first, Diagonal):
            first = first.fit_to(second)
        if first.shape[1] != second.shape[0]:
            raise ValueError(f"a product of {first.shape} and {second.shape} does not fit; the inner sizes must agree")
        require_same("the second operator of the product", second, "the first", first)
        self.first, self.second = first, second
        super().__init__((first.shape[0], second.shape[1]), first.dtype, first.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """One after the other."""
        return self.first.product(self.second.product(V))

    def transpose(self) -> Operator:
        """In reverse."""
        return Product(self.second.T, self.first.T)

    def rows(self, index: Index) -> Operator:
        """Of the first."""
        return Product(self.first.rows(index), self.second)


class Scaled(Operator):
    """``c (A V)``.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> (3.0 * Dense(torch.eye(2))).diagonal()
    tensor([3., 3.])
    """

    def __init__(self, operator: Operator, factor: float | Tensor) -> None:
        factor = torch.as_tensor(factor)
        if factor.ndim != 0:
            raise ValueError(f"factor must be a single number, got shape {tuple(factor.shape)}; a vector is Diagonal")
        self.operator, self.factor = operator, factor.to(dtype=operator.dtype, device=operator.device)
        super().__init__(operator.shape, operator.dtype, operator.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """The product, scaled."""
        return self.factor * self.operator.product(V)

    def transpose(self) -> Operator:
        """The transpose, scaled."""
        return Scaled(self.operator.T, self.factor)

    def diagonal(self) -> Float[Tensor, " n"]:
        """The diagonal, scaled."""
        return self.factor * self.operator.diagonal()

    def rows(self, index: Index) -> Operator:
        """The rows, scaled."""
        return Scaled(self.operator.rows(index), self.factor)

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """The block, scaled."""
        return self.factor * self.operator.block(index)

    def permuted(self, order: Tensor) -> Operator:
        """Reordered, scaled."""
        return Scaled(self.operator.permuted(order), self.factor)

    def upper(self) -> Float64[Tensor, "n n"]:
        """In float64, scaled."""
        return self.operator.upper().mul_(self.factor.to(torch.float64))
