"""A kernel matrix, evaluated in tiles."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_finite, require_same
from matheron.kernels.base import Kernel
from matheron.kernels.rows import take_rows
from matheron.kernels.tiling import upper_tiles
from matheron.operators.base import Index, Operator
from matheron.operators.dense import Dense
from matheron.operators.gradient import KernelProduct
from matheron.operators.tiles import Tiles

PAIRS = 64
"""Rows paired at once for a diagonal between two sets: few enough that the unused entries cost little."""


class KernelOperator(Operator):
    """``K V`` with ``K_ij = k(x_i, z_j)``, never whole: memory is ``O(n s + tile)``.

    Differentiable in the kernel's hyperparameters, in the inputs and in ``V``; the backward pass evaluates the tiles
    again. Where ``memory`` bytes allow, rows that have been evaluated are kept and read from then on (``0`` keeps
    nothing, ``None`` allows half of what is free); results agree to rounding.

    >>> import torch
    >>> from matheron.kernels import Matern32
    >>> X = torch.linspace(0, 1, 5)[:, None]
    >>> K = KernelOperator(Matern32(lengthscale=0.5), X)
    >>> (K @ torch.ones(5, 2)).shape, (K.rows(slice(0, 2)) @ torch.ones(5)).shape, K.block(slice(0, 2)).shape
    (torch.Size([5, 2]), torch.Size([2]), torch.Size([2, 2]))
    """

    def __init__(self, kernel: Kernel, X: Tensor, Z: Tensor | None = None, *, memory: int | None = None) -> None:
        self.kernel = kernel
        self.X = _require_rows("X", kernel, X)
        self.Z = self.X if Z is None else _require_rows("Z", kernel, Z)
        require_same("Z", self.Z, "X", self.X)
        if self.Z.shape[1] != self.X.shape[1]:
            raise ValueError(f"Z has {self.Z.shape[1]} columns but X has {self.X.shape[1]}; they must agree")
        if memory is not None and memory < 0:
            raise ValueError(f"memory must be a number of bytes, zero or more, got {memory}")
        self.memory = memory
        self.tiles = Tiles(kernel, self.X, self.Z, memory)
        super().__init__((self.X.shape[0], self.Z.shape[0]), self.X.dtype, self.X.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """All rows."""
        return self.rows_product(slice(0, self.shape[0]), V)

    def rows_product(self, rows: Index, V: Float[Tensor, "m s"]) -> Float[Tensor, "r s"]:
        """``K[rows] V``."""
        tensors = (*self.kernel.parameters(), self.X, self.Z)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (V, *tensors)):
            return KernelProduct.apply(self, rows, V, *tensors)
        return self.tiles.product(rows, V)

    def transpose(self) -> Operator:
        """``k(z_j, x_i)``; the matrix itself where it is symmetric."""
        return self if self.Z is self.X else KernelOperator(self.kernel, self.Z, self.X, memory=self.memory)

    def diagonal(self) -> Float[Tensor, " n"]:
        """``k(x_i, x_i)``."""
        self._require_square("diagonal")
        if self.Z is self.X:
            return self.kernel.diagonal(self.X)
        parts = [slice(start, start + PAIRS) for start in range(0, self.shape[0], PAIRS)]
        return torch.cat([self.kernel(take_rows(self.X, p), take_rows(self.Z, p)).diagonal() for p in parts])

    def rows(self, index: Index) -> KernelRows:
        """``len(index) × m`` entries per product; a slice copies nothing."""
        return KernelRows(self, index)

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """``k(x_i, z_j)`` for ``i, j`` in ``index``; exactly symmetric where ``X`` meets itself."""
        self._require_square("block")
        if isinstance(index, slice) and not torch.is_grad_enabled() and self.tiles.holds(index):
            return self.tiles.matrix[index, index]
        x = take_rows(self.X, index)
        return self.kernel(x) if self.Z is self.X else self.kernel(x, take_rows(self.Z, index))

    def upper(self) -> Float64[Tensor, "n n"]:
        """Evaluated in float64, tile by tile."""
        self._require_square("upper")
        return super().upper() if self.Z is not self.X else upper_triangle(self.kernel, self.X.to(torch.float64))

    def permuted(self, order: Tensor) -> KernelOperator:
        """``K[order][:, order]``: the same kernel on shuffled inputs."""
        self._require_square("permuted")
        X = take_rows(self.X, order)
        return KernelOperator(
            self.kernel, X, None if self.Z is self.X else take_rows(self.Z, order), memory=self.memory
        )


class KernelRows(Operator):
    """``K[index]``: some rows of a kernel matrix.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> KernelOperator(RBF(), torch.zeros(4, 1)).rows(torch.tensor([3, 1])) @ torch.ones(4)
    tensor([4., 4.], grad_fn=<SelectBackward0>)
    """

    def __init__(self, operator: KernelOperator, index: Index) -> None:
        self.operator = operator
        n, m = operator.shape
        self.index: Index
        if isinstance(index, slice):
            self.index, count = index, len(range(*index.indices(n)))
        else:
            self.index = torch.arange(n, device=operator.device)[index]
            count = len(self.index)
        super().__init__((count, m), operator.dtype, operator.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "r s"]:
        """``len(index) × m`` entries."""
        return self.operator.rows_product(self.index, V)

    def transpose(self) -> Operator:
        """A kernel matrix of its own, evaluated as it is used, unless the rows are kept."""
        K = self.operator
        if self.shape[0] == 0:
            return Dense(torch.zeros(self.shape[1], 0, dtype=self.dtype, device=self.device))
        if isinstance(self.index, slice) and not torch.is_grad_enabled() and K.tiles.holds(self.index):
            return Dense(K.tiles.matrix[self.index].mT)
        return KernelOperator(K.kernel, K.Z, take_rows(K.X, self.index), memory=0)


@torch.no_grad()
def upper_triangle(kernel: Kernel, X: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """``k(x_i, x_j)`` on and above the diagonal; what is below is not written."""
    n = X.shape[0]
    matrix = torch.empty(n, n, dtype=X.dtype, device=X.device)
    evaluator = kernel.evaluator(X, X)
    for rows, columns in upper_tiles(n):
        evaluator.fill(rows, columns, matrix[rows, columns])
    return matrix


def _require_rows(name: str, kernel: Kernel, value: Tensor) -> Tensor:
    value = kernel.check_inputs(name, value)
    if value.shape[0] == 0:
        raise ValueError(f"{name} has no rows; give it at least one")
    if value.shape[1] == 0:
        raise ValueError(f"{name} has no columns; give it at least one")
    require_finite(name, value.detach() if value.layout == torch.strided else value.values().detach())
    return value
