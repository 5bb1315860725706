"""The inverse of a low-rank matrix plus a block-diagonal one."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.operators.base import Operator
from matheron.operators.layout import multiply


class BlockLowRankInverse(Operator):
    """``(B Bᵀ + S)⁻¹ = L⁻ᵀ (I − Q Qᵀ) L⁻¹`` with ``S = L Lᵀ`` block-diagonal, ``Q = L⁻¹ B R⁻¹``, ``RᵀR = I + BᵀS⁻¹B``.

    ``places`` holds the rows of each block, ``(blocks, b)``; where a block is shorter, its last places are ``n``, one
    beyond the rows. ``roots`` are the inverse factors ``L⁻¹``, ``(blocks, b, b)``, with ones on the diagonal there.
    ``factor`` and ``roots`` are constants: no gradient reaches them.

    >>> import torch
    >>> places, roots = torch.tensor([[0, 1], [2, 3]]), torch.eye(2).expand(2, 2, 2)
    >>> BlockLowRankInverse(torch.ones(3, 1), places, roots).dense()
    tensor([[ 0.7500, -0.2500, -0.2500],
            [-0.2500,  0.7500, -0.2500],
            [-0.2500, -0.2500,  0.7500]])
    """

    def __init__(
        self,
        factor: Float[Tensor, "n r"],
        places: Int[Tensor, "k b"],
        roots: Float[Tensor, "k b b"],
        dtype: torch.dtype | None = None,
    ) -> None:
        n, factor, roots = factor.shape[0], factor.detach(), roots.detach()
        super().__init__((n, n), dtype or factor.dtype, factor.device)
        self.places, self.roots = places, roots
        # Block by block and in place: the factor may be most of the memory there is.
        blocks = factor.new_empty(*places.shape, factor.shape[1])
        for place, root, block in zip(places, roots, blocks, strict=True):
            here = place[place < n]
            torch.mm(root[:, : len(here)], factor[here], out=block)
        self.projection = blocks.flatten(0, 1)
        gram = self.projection.mT @ self.projection
        triangle = torch.linalg.cholesky(gram + torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
        for block in blocks:
            block.copy_(torch.linalg.solve_triangular(triangle, block.mT, upper=False).mT)

    def spread(self, V: Float[Tensor, "n s"]) -> Float[Tensor, "k b s"]:
        """Rows to their blocks, with a row of zeros for places beyond."""
        return torch.cat([V, V.new_zeros(1, V.shape[1])])[self.places]

    def product(self, V: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
        """``O(n (b + r) s)``."""
        whitened = torch.bmm(self.roots, self.spread(V.to(self.roots.dtype))).flatten(0, 1)
        whitened = whitened - multiply(self.projection, multiply(self.projection.mT, whitened))
        blocks = torch.bmm(self.roots.mT, whitened.view(*self.places.shape, -1))
        result = V.new_zeros(V.shape[0] + 1, V.shape[1], dtype=blocks.dtype)
        return result.index_copy_(0, self.places.flatten(), blocks.flatten(0, 1))[:-1].to(self.dtype)

    def transpose(self) -> Operator:
        """Itself."""
        return self

    def diagonal(self) -> Float[Tensor, " n"]:
        """From the factors."""
        blocks = self.projection.view(*self.places.shape, -1)
        left = torch.bmm(self.roots.mT, blocks).square().sum(2)
        result = self.roots.new_zeros(self.shape[0] + 1)
        return result.index_copy_(0, self.places.flatten(), (self.roots.square().sum(1) - left).flatten())[:-1].to(
            self.dtype
        )
