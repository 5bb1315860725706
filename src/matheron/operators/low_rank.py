"""The inverse of a low-rank matrix plus a diagonal."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_same
from matheron.operators.base import Operator
from matheron.operators.layout import multiply


class LowRankInverse(Operator):
    """``(B Bᵀ + D)⁻¹ = D^(−½) (I − F Fᵀ) D^(−½)``, with ``F = D^(−½) B R⁻¹`` and ``RᵀR = I + BᵀD⁻¹B``.

    ``factor`` is ``B (n, r)``, ``diagonal`` is ``D (n,)``, positive. Applied in the dtype of ``factor``, which may be
    finer than ``dtype``, that of the products.

    >>> import torch
    >>> B, D = torch.ones(2, 1), torch.ones(2)
    >>> LowRankInverse(B, D).dense()
    tensor([[ 0.6667, -0.3333],
            [-0.3333,  0.6667]])
    """

    def __init__(
        self, factor: Float[Tensor, "n r"], diagonal: Float[Tensor, " n"], dtype: torch.dtype | None = None
    ) -> None:
        require_same("diagonal", diagonal, "factor", factor)
        if diagonal.shape != factor.shape[:1]:
            raise ValueError(f"diagonal has shape {tuple(diagonal.shape)} but factor has {factor.shape[0]} rows")
        if not bool((diagonal > 0).all()):
            raise ValueError("diagonal must be positive; add noise")
        whitened = factor / diagonal.sqrt()[:, None]
        gram = whitened.to(torch.float64).mT @ whitened.to(torch.float64)
        triangle = torch.linalg.cholesky(gram + torch.eye(len(gram), dtype=torch.float64, device=factor.device))
        self.root = diagonal.rsqrt()[:, None]
        self.projection = torch.linalg.solve_triangular(triangle.to(factor.dtype), whitened.mT, upper=False).mT
        super().__init__((factor.shape[0], factor.shape[0]), dtype or factor.dtype, factor.device)

    def scaled_to(self, factor: float, dtype: torch.dtype) -> LowRankInverse:
        """``factor · (B Bᵀ + D)⁻¹``, stored and applied in ``dtype``."""
        twin = object.__new__(LowRankInverse)
        twin.root = (math.sqrt(factor) * self.root).to(dtype)
        twin.projection = self.projection.to(dtype)
        Operator.__init__(twin, self.shape, dtype, self.device)
        return twin

    def product(self, V: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
        """``O(n r s)``."""
        whitened = self.root * V.to(self.root.dtype)
        whitened = whitened - multiply(self.projection, multiply(self.projection.mT, whitened))
        return (self.root * whitened).to(self.dtype)

    def transpose(self) -> Operator:
        """Itself."""
        return self

    def diagonal(self) -> Float[Tensor, " n"]:
        """From the factor."""
        return (self.root[:, 0].square() * (1.0 - self.projection.square().sum(1))).to(self.dtype)
