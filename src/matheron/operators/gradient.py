"""The gradient of a product with a kernel matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from matheron.kernels.rows import take_rows
from matheron.kernels.tiling import TILE
from matheron.operators.base import Index

if TYPE_CHECKING:
    from matheron.operators.kernel import KernelOperator


class KernelProduct(torch.autograd.Function):
    """``K[rows] V`` whose backward pass evaluates the tiles again: nothing of size ``n × m`` is saved."""

    @staticmethod
    def forward(ctx: Any, operator: KernelOperator, rows: Index, V: Tensor, *tensors: Tensor) -> Tensor:
        """``tensors`` are the hyperparameters, then ``X``, then ``Z``."""
        ctx.operator, ctx.rows = operator, rows
        ctx.save_for_backward(V, *tensors)
        return operator.tiles.product(rows, V)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """``Kᵀ U`` for ``V``; for all else the gradient of ``Σ_ij (U Vᵀ)_ij K_ij``, tile by tile."""
        refuse_second("a product with a kernel matrix, and so a posterior's mean and functions")
        V, *tensors = ctx.saved_tensors
        operator: KernelOperator = ctx.operator
        gradient_V = operator.rows(ctx.rows).T @ upstream if ctx.needs_input_grad[2] else None
        needed = ctx.needs_input_grad[3:]
        totals = [torch.zeros_like(t) if need else None for t, need in zip(tensors, needed, strict=True)]
        if any(needed[:-2]) and not any(needed[-2:]):
            index = torch.arange(operator.shape[0], device=V.device)[ctx.rows]
            pieces = _parameter_gradients(operator, index, upstream, V)
            totals = [piece if need else None for piece, need in zip([*pieces, None, None], needed, strict=True)]
        elif any(needed):
            index = torch.arange(operator.shape[0], device=V.device)[ctx.rows]
            for rows, weight in zip(index.split(TILE[0]), upstream.split(TILE[0]), strict=True):
                for left in range(0, V.shape[0], TILE[1]):
                    _add_tile_gradient(totals, operator, tensors, rows, slice(left, left + TILE[1]), weight, V)
        return None, None, gradient_V, *totals


def refuse_second(what: str) -> None:
    """Refuse a gradient that is to be differentiated again, as of ``create_graph=True``.

    PyTorch's own guard lets those through whose upstream is a constant, and they would lack this part.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"{what} can be differentiated once; take differences of gradients for second derivatives")


def _parameter_gradients(operator: KernelOperator, index: Tensor, upstream: Tensor, V: Tensor) -> list[Tensor]:
    """With inputs that are fixed, kernels know shorter ways than autograd."""
    contraction = operator.kernel.contraction(take_rows(operator.X, index).detach(), operator.Z.detach())
    for top in range(0, len(index), TILE[0]):
        rows = slice(top, min(top + TILE[0], len(index)))
        for left in range(0, V.shape[0], TILE[1]):
            columns = slice(left, min(left + TILE[1], V.shape[0]))
            contraction.add(rows, columns, upstream[rows] @ V[columns].mT)
    return contraction.gradients()


def _add_tile_gradient(
    totals: list[Tensor | None],
    operator: KernelOperator,
    tensors: list[Tensor],
    rows: Tensor,
    columns: slice,
    weight: Tensor,
    V: Tensor,
) -> None:
    *parameters, X, Z = tensors
    with torch.enable_grad():
        x, z = (take_rows(t, place).detach() for t, place in ((X, rows), (Z, columns)))
        inputs = [*parameters, x, z]
        wanted = [t for t, total in zip(inputs, totals, strict=True) if total is not None]
        for leaf in (t for t in wanted if not t.requires_grad):
            leaf.requires_grad_()
        value = operator.kernel(x, z) @ V[columns].detach()
    pieces = iter(torch.autograd.grad(value, wanted, weight, allow_unused=True))
    for position, total in enumerate(totals):
        piece = next(pieces) if total is not None else None
        if total is None or piece is None:
            continue
        if position == len(totals) - 2:
            total.index_add_(0, rows, piece)
        elif position == len(totals) - 1:
            total[columns] += piece
        else:
            total += piece
