"""Whole numbers in unary: ``Σ_k min(x_k, z_k)`` as a product of sparse binary rows."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.kernels.rows import csr, distinct_pairs, entries

MOST_TOKENS = 16
"""Tokens per non-zero entry beyond which the distances of dense rows are likely to be as cheap."""


def unary(
    x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]
) -> tuple[Float[Tensor, "n t"], Float[Tensor, "m t"], Float[Tensor, " t"]] | None:
    """``min(x_k, z_k) = Σ_t w_t 1[x_k ≥ t] 1[z_k ≥ t]``: CSR rows of tokens ``1[x_k ≥ t]``, and their weights ``w``.

    Only levels ``t`` that occur in column ``k`` need a token; it weighs the step from the level below. One token of
    weight one belongs to all-zero rows, which are thereby like each other and unlike all others. ``None`` if an entry
    is no whole number, if the sums are not exact in this dtype, or if it takes too many tokens.

    >>> x, z, w = unary(torch.tensor([[2.0]]), torch.tensor([[7.0]]))
    >>> x.to_dense(), z.to_dense(), w  # tokens x ≥ 2 and x ≥ 7
    (tensor([[1., 0.]]), tensor([[1., 1.]]), tensor([2., 5.]))
    """
    parts = [entries(x), entries(z)]
    columns, values = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    if not bool((values == values.round()).all()):
        return None
    column, amount, token = distinct_pairs(columns, values)
    lowest = torch.searchsorted(column, column)
    if int((token - lowest[token] + 1).sum()) > MOST_TOKENS * len(token):
        return None
    below = torch.where(lowest == torch.arange(len(column), device=x.device), 0.0, amount.roll(1))
    weights = amount - below
    left, right = token.split([len(part[1]) for part in parts])
    rows = [expand(part[0], tokens, lowest, weights) for part, tokens in zip(parts, (left, right), strict=True)]
    largest = max((float((v @ weights[:, None]).max()) for v in rows if v.shape[0]), default=0.0)
    return None if largest * torch.finfo(x.dtype).eps >= 1.0 else (rows[0], rows[1], weights)


def expand(
    pointers: Int[Tensor, " pointers"],
    token: Int[Tensor, " e"],
    lowest: Int[Tensor, " t"],
    weights: Float[Tensor, " t"],
) -> Float[Tensor, "n t"]:
    """CSR rows that hold, for each entry, its token and all below it in the same column."""
    lengths = token - lowest[token] + 1
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    tokens = torch.arange(int(ends[-1]), device=token.device) + (lowest[token] - ends[:-1]).repeat_interleave(lengths)
    return csr(ends[pointers], tokens, weights.new_ones(len(tokens)), len(weights))
