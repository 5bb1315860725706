"""Evaluating a kernel matrix in tiles, and keeping what fits."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels import Kernel
from matheron.kernels.evaluator import Evaluator, Scratch
from matheron.kernels.tiling import TILE, upper_tiles
from matheron.operators.base import Index
from matheron.operators.layout import multiply
from matheron.operators.memory import free_memory

KEEP = 0.5
"""The share of free memory a kept matrix may take, unless a budget is given."""


class Tiles:
    """Prepared inputs, and the rows kept so far; both forgotten when a hyperparameter or an input changes."""

    def __init__(self, kernel: Kernel, X: Tensor, Z: Tensor, memory: int | None) -> None:
        # Not the operator that holds these: a circle of references would keep the matrix until it is looked for.
        self.kernel, self.X, self.Z, self.memory = kernel, X, Z, memory
        self.version: tuple[Any, ...] = ()
        self.seen: list[Tensor] = []
        self.evaluator: Evaluator
        self.matrix: Tensor
        self.filled: Tensor
        self.keeps = False

    def product(self, rows: Index, V: Float[Tensor, "m s"]) -> Float[Tensor, "r s"]:
        """``K[rows] V`` from kept rows where there are any."""
        self._refresh()
        if isinstance(rows, slice):
            rows = slice(*rows.indices(self.X.shape[0]))
            if rows.step == 1 and self.keeps:
                self._fill(rows)
                return multiply(self.matrix[rows], V)
            if rows.step == 1 and self.Z is self.X and rows == slice(0, len(V), 1):
                return symmetric_product(self.evaluator, V)
            if rows.step == 1:
                return tiled_product(self.evaluator, rows, V)
            rows = torch.arange(rows.start, rows.stop, rows.step, device=V.device)
        if self.keeps and bool(self.filled.all()):
            return multiply(self.matrix[rows], V)
        return tiled_product(self.evaluator.gather(rows), slice(0, len(rows), 1), V)

    def holds(self, rows: slice) -> bool:
        """Whether these rows are kept already."""
        self._refresh()
        start, stop, step = rows.indices(self.X.shape[0])
        return self.keeps and step == 1 and bool(self.filled[start // TILE[0] : -(-stop // TILE[0])].all())

    @torch.no_grad()
    def _refresh(self) -> None:
        X, Z = self.X, self.Z
        tensors = (*self.kernel.parameters(), *self.kernel.buffers(), X, Z)
        version = tuple((_address(t), _changes(t)) for t in tensors)
        if version == self.version:
            return
        n, m = X.shape[0], Z.shape[0]
        self.evaluator = self.kernel.evaluator(X.detach(), X.detach() if Z is X else Z.detach())
        if self.keeps and self.matrix.shape == (n, m) and self.matrix.dtype == X.dtype:
            # Its memory is taken already: asking for free memory beside it would let the matrix go.
            self.filled.zero_()
        else:
            budget = KEEP * free_memory(X.device) if self.memory is None else self.memory
            self.keeps = 0 < n * m * X.dtype.itemsize <= budget
            if self.keeps:
                self.matrix = torch.empty(n, m, dtype=X.dtype, device=X.device)
                self.filled = torch.zeros(-(-n // TILE[0]), dtype=torch.bool)
        # Storages seen are held, so that no other takes their address.
        self.version, self.seen = version, [t.detach() for t in tensors]

    @torch.no_grad()
    def _fill(self, rows: slice) -> None:
        first, last = rows.start // TILE[0], -(-rows.stop // TILE[0])
        n, m = self.X.shape[0], self.Z.shape[0]
        buffer = Scratch(self.matrix.dtype, self.matrix.device)
        for chunk in (~self.filled[first:last]).nonzero()[:, 0].tolist():
            part = slice((first + chunk) * TILE[0], min((first + chunk + 1) * TILE[0], n))
            for start in range(0, m, TILE[1]):
                columns = slice(start, min(start + TILE[1], m))
                kept = self.matrix[part, columns]
                # By way of a tile that stays in cache: rows of the matrix lie pages apart.
                tile = buffer.like(kept)
                self.evaluator.fill(part, columns, tile)
                kept.copy_(tile)
            self.filled[first + chunk] = True


@torch.no_grad()
def tiled_product(evaluator: Evaluator, rows: slice, V: Tensor) -> Tensor:
    """``Σ_tiles K[rows, tile] V[tile]`` through one buffer."""
    # By columns, as in `multiply`.
    result, columnwise = V.new_zeros(V.shape[1], rows.stop - rows.start), V.mT.contiguous()
    buffer = V.new_empty(TILE[0] * TILE[1])
    for top in range(rows.start, rows.stop, TILE[0]):
        part = slice(top, min(top + TILE[0], rows.stop))
        out = result[:, part.start - rows.start : part.stop - rows.start]
        for left in range(0, V.shape[0], TILE[1]):
            columns = slice(left, min(left + TILE[1], V.shape[0]))
            shape = (part.stop - part.start, columns.stop - columns.start)
            tile = buffer[: shape[0] * shape[1]].view(shape)
            evaluator.fill(part, columns, tile)
            out.addmm_(columnwise[:, columns], tile.mT)
    return result.mT


@torch.no_grad()
def symmetric_product(evaluator: Evaluator, V: Tensor) -> Tensor:
    """``K V`` for a symmetric ``K``: each tile above the diagonal stands for its mirror image too."""
    result, columnwise = V.new_zeros(V.shape[1], V.shape[0]), V.mT.contiguous()
    buffer = V.new_empty(TILE[0] * TILE[1])
    for rows, columns in upper_tiles(len(V)):
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        tile = buffer[: shape[0] * shape[1]].view(shape)
        evaluator.fill(rows, columns, tile)
        result[:, rows].addmm_(columnwise[:, columns], tile.mT)
        if columns.start > rows.start:
            result[:, columns].addmm_(columnwise[:, rows], tile)
    return result.mT


def _address(t: Tensor) -> int:
    return (t if t.layout == torch.strided else t.values()).data_ptr()


def _changes(t: Tensor) -> int:
    """How often it was changed in place; PyTorch does not count that for tensors made in inference mode."""
    return 0 if t.is_inference() else t._version
