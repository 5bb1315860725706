"""Random features of the Tanimoto kernel by consistent weighted sampling."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.kernels.base import Kernel
from matheron.kernels.feature_map import FeatureMap
from matheron.kernels.rows import distinct_pairs, entries
from matheron.kernels.tanimoto import Tanimoto

CHUNK = 64
"""Features evaluated together: enough for long vector operations, few enough for the tables to stay in cache."""
TABLE = 2**22
"""Entries of the largest table, where inputs have so many distinct values that a chunk must be smaller."""

GOLDEN = -7046029254386353131  # 2⁶⁴/φ as a signed number: the increment of SplitMix64.
MIX = ((30, -4658895280553007687), (27, -7723592293110705685))


class HashFeatures(FeatureMap):
    """``√(σ²/num) r_m(k*, t*)``: random signs of hashes that agree with probability ``T(x, z)`` (Ioffe, 2010).

    For each feature ``m`` and column ``k`` let ``r, c ~ Gamma(2, 1)`` and ``β ~ U(0, 1)``; with
    ``t = ⌊log x_k / r + β⌋``, the hash is the ``(k, t)`` of least ``log c − r (t − β + 1)``. All these numbers come
    from one seed per feature by counting (SplitMix64), so that the columns need not be known beforehand.
    """

    factor: Tanimoto
    seeds: Tensor

    def __init__(self, kernel: Kernel, factor: Tanimoto, num: int, generator: torch.Generator) -> None:
        super().__init__(kernel, num)
        self.__dict__["factor"] = factor
        low, high = -(2**63), 2**63 - 1
        seeds = torch.randint(low, high, (num,), generator=generator, device=generator.device)
        self.register_buffer("seeds", seeds.to(factor.variance.device))

    def evaluate(self, x: Tensor) -> Float[Tensor, "n num"]:
        """Signs, and their scale."""
        with torch.no_grad():
            signs = self.signs(self.factor.select(x))
        scale = (self.factor.variance / self.num).sqrt().to(x.dtype)
        return scale * signs if torch.is_grad_enabled() else signs.mul_(scale)

    def signs(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n num"]:
        """``±1`` for every row and feature."""
        pointers, columns, values = entries(x)
        # A (column, value) pair hashes alike in every row: work is done once per pair, then looked up.
        column_of_pair, value, pair = distinct_pairs(columns, values.to(torch.float64))
        column, column_of_pair = column_of_pair.unique(return_inverse=True)
        logarithm = value.log()

        # Rows from long to short, so that those with a j-th entry are the first so many.
        lengths = pointers.diff()
        order = lengths.argsort(descending=True)
        starts = pointers[:-1][order]
        alive = len(lengths) - torch.bincount(lengths).cumsum(0)[:-1] if len(lengths) else lengths
        out = torch.empty(x.shape[0], self.num, dtype=x.dtype, device=x.device)
        chunk = max(1, min(CHUNK, TABLE // max(len(value), 1)))
        for first in range(0, self.num, chunk):
            seeds = self.seeds[first : first + chunk]
            table = priorities(seeds, column, column_of_pair, logarithm)
            least = table.new_full((x.shape[0], len(seeds)), float("inf"))
            for j, count in enumerate(alive.tolist()):
                head = least[:count]
                torch.minimum(head, table[pair[starts[:count] + j]], out=head)
            out[order, first : first + chunk] = 1.0 - 2.0 * (least.view(torch.int32) & 1).to(x.dtype)
        return out


def priorities(
    seeds: Int[Tensor, " f"],
    column: Int[Tensor, " c"],
    column_of_pair: Int[Tensor, " p"],
    logarithm: Float[Tensor, " p"],
) -> Float[Tensor, "p f"]:
    """``log c − r (t − β + 1)`` of each pair, with the random sign of ``(k, t)`` as the last bit of the mantissa.

    The least of these is thus both chosen and its sign known after one pass; of a priority in float32 the last bit
    does not matter.
    """
    first, second, third, fourth = (mixed(seeds + GOLDEN * (4 * column[:, None] + i)) for i in range(1, 5))
    r = -(uniform(first) * uniform(first >> 32)).log_()
    log_c = (-(uniform(second) * uniform(second >> 32)).log_()).log_()
    beta = uniform(third)
    r, log_c, beta, fourth = (v[column_of_pair] for v in (r, log_c, beta, fourth))
    t = (logarithm[:, None] / r).add_(beta).floor_()
    sign = mixed(fourth + GOLDEN * t.to(torch.int64)) < 0
    value = log_c.sub_(r.mul_(t.sub_(beta).add_(1.0))).to(torch.float32)
    bits = value.view(torch.int32)
    return bits.bitwise_and_(-2).bitwise_or_(sign.to(torch.int32)).view(torch.float32)


def mixed(state: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """The output function of SplitMix64: 64 well-mixed bits of a counter."""
    for shift, factor in MIX:
        state = (state ^ shifted(state, shift)) * factor
    return state ^ shifted(state, 31)


def shifted(bits: Int[Tensor, "..."], places: int) -> Int[Tensor, "..."]:
    """A logical shift to the right."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def uniform(bits: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The lower 32 bits as a number in (0, 1)."""
    return ((bits & 0xFFFFFFFF).to(torch.float64) + 0.5) * 2.0**-32
