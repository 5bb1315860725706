"""Gradients of weighted sums of kernel entries, gathered tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.rows import take_rows
from matheron.kernels.tiling import TILE, upper_tiles

if TYPE_CHECKING:
    from matheron.kernels.base import Kernel

Weigh = Callable[[slice, slice, float, Tensor], None]
"""``out ← factor · W[rows, columns]``."""


class Contraction:
    """``∂/∂θ Σ_ij W_ij k(x_i, z_j)`` for every hyperparameter ``θ``; this one lets autograd work for any kernel.

    Kernels override :meth:`Kernel.contraction` where they know a shorter way.
    """

    def __init__(self, kernel: Kernel, x: Tensor, z: Tensor) -> None:
        self.kernel, self.x, self.z = kernel, x, z
        self.parameters = list(kernel.parameters())
        self.totals = [torch.zeros_like(p) for p in self.parameters]

    def add(self, rows: slice, columns: slice, weight: Float[Tensor, "r c"]) -> float:
        """One tile, whose weights may be overwritten; returns its part of ``Σ_ij W_ij k(x_i, z_j)``."""
        leaves = [p.detach().requires_grad_() for p in self.parameters]
        names = [name for name, _ in self.kernel.named_parameters()]
        with torch.enable_grad():
            tile = (take_rows(self.x, rows).detach(), take_rows(self.z, columns).detach())
            parameters = dict(zip(names, leaves, strict=True))
            value = (torch.func.functional_call(self.kernel, parameters, tile) * weight).sum()
        if leaves and value.requires_grad:
            for total, piece in zip(self.totals, torch.autograd.grad(value, leaves, allow_unused=True), strict=True):
                if piece is not None:
                    total += piece
        return float(value)

    def gradients(self) -> list[Tensor]:
        """In the order of ``kernel.parameters()``."""
        return self.totals


@torch.no_grad()
def contract(kernel: Kernel, X: Float[Tensor, "n d"], weigh: Weigh) -> list[Tensor]:
    """``∂/∂θ Σ_ij W_ij k(x_i, x_j)`` for a symmetric ``W``, in the order of ``kernel.parameters()``.

    Half of the tiles are visited: those above the diagonal count twice.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> X, W = torch.tensor([[0.0], [1.0]]), torch.ones(2, 2)
    >>> contract(RBF(), X, lambda rows, columns, factor, out: torch.mul(W[rows, columns], factor, out=out))
    [tensor(3.2131, dtype=torch.float64), tensor(1.2131, dtype=torch.float64)]
    """
    n = X.shape[0]
    contraction = kernel.contraction(X, X)
    buffer = torch.empty(TILE[0] * TILE[1], dtype=X.dtype, device=X.device)
    for rows, columns in upper_tiles(n):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        out = buffer[: height * width].view(height, width)
        weigh(rows, columns, 1.0 if columns.start == rows.start else 2.0, out)
        contraction.add(rows, columns, out)
    return contraction.gradients()


@torch.no_grad()
def contract_inputs(kernel: Kernel, X: Float[Tensor, "n d"], weigh: Weigh) -> Float[Tensor, "n d"]:
    """``∂/∂X Σ_ij W_ij k(x_i, x_j)`` for a symmetric ``W``: twice what comes by the first argument of ``k``.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> X, W = torch.tensor([[0.0], [1.0]]), torch.ones(2, 2)
    >>> contract_inputs(RBF(), X, lambda rows, columns, factor, out: torch.mul(W[rows, columns], factor, out=out))
    tensor([[ 1.2131],
            [-1.2131]])
    """
    n, total = X.shape[0], torch.zeros_like(X)
    for top in range(0, n, TILE[0]):
        rows = slice(top, min(top + TILE[0], n))
        for left in range(0, n, TILE[1]):
            columns = slice(left, min(left + TILE[1], n))
            weight = X.new_empty(rows.stop - top, columns.stop - left)
            weigh(rows, columns, 2.0, weight)
            with torch.enable_grad():
                x = X[rows].detach().requires_grad_()
                value = (kernel(x, X[columns]) * weight).sum()
            # Some kernels are differentiable in no input, and without parameters to learn have no graph either.
            piece = torch.autograd.grad(value, x, allow_unused=True)[0] if value.requires_grad else None
            if piece is not None:
                total[rows] += piece
    return total


def low_rank(U: Float[Tensor, "n s"], V: Float[Tensor, "n s"]) -> Weigh:
    """``W = U Vᵀ``, a product per tile."""

    def weigh(rows: slice, columns: slice, factor: float, out: Tensor) -> None:
        torch.addmm(out, U[rows], V[columns].mT, beta=0.0, alpha=factor, out=out)

    return weigh
