"""Which weights are the pixels of one convolution filter, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from matheron.arguments import require_count


class Part(NamedTuple):
    """Weights in a row: ``size`` of them, filters of shape ``kernel`` one after the other, of one ``block``.

    Weights that are no filters, such as biases, have the kernel ``()``.

    >>> Part(18, (3, 3), block=0).kernel  # two filters
    (3, 3)
    """

    size: int
    kernel: tuple[int, ...]
    block: int


class Filters:
    """``A_k⁻¹ = a_k⁻¹ Σ_c exp(−r_c/ψ_k) S_c``: the weights of block ``k`` covary within filters by distance (§ 7.2.3).

    ``r_c``, in ``distances``, are those between the pixels of a filter, zero first; ``S_c`` marks the pairs of weights
    of one filter that are ``r_c`` apart, ``S_0 = I``. Quadratic forms with the ``S_c``, once computed, give
    ``u A⁻¹ v`` for every ``a`` and ``ψ``.

    >>> filters = Filters([Part(18, (3, 3), 0), Part(2, (), 0), Part(4, (), 1)])
    >>> filters.distances.round(decimals=2)
    tensor([0.0000, 1.0000, 1.4100, 2.0000, 2.2400, 2.8300], dtype=torch.float64)
    >>> filters.smooth  # which blocks have filters, and so a lengthscale
    tensor([ True, False])
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(Part(size, _spread_out(kernel), block) for size, kernel, block in parts)
        if not self.parts:
            raise ValueError("parts is empty; give at least one")
        for part in self.parts:
            if require_count("size", part.size) % math.prod(part.kernel):
                raise ValueError(f"a part has {part.size} weights, which are no whole filters of {part.kernel}")
        self.num_weights = sum(part.size for part in self.parts)
        self.num_blocks = 1 + max(part.block for part in self.parts)
        kernels = {part.kernel for part in self.parts}
        apart = {kernel: _distances(kernel) for kernel in kernels}
        self.distances = torch.cat([found.flatten() for found in apart.values()]).round(decimals=9).unique()
        self.classes: dict[tuple[int, ...], Int[Tensor, "p p"]] = {
            kernel: torch.searchsorted(self.distances, found.round(decimals=9)) for kernel, found in apart.items()
        }
        self.smooth = torch.zeros(self.num_blocks, dtype=torch.bool)
        for part in self.parts:
            self.smooth[part.block] |= bool(part.kernel)

    @property
    def groups(self) -> Int[Tensor, " d"]:
        """The block of every weight."""
        blocks = torch.tensor([part.block for part in self.parts])
        return blocks.repeat_interleave(torch.tensor([part.size for part in self.parts]))

    @property
    def components(self) -> list[tuple[int, int]]:
        """Pairs ``(k, c)`` of a block and a distance that occurs in it."""
        found = {(part.block, c) for part in self.parts for c in self.classes[part.kernel].unique().tolist()}
        return sorted(found)

    def places(self) -> Iterator[tuple[slice, Part]]:
        """Where each part stands."""
        start = 0
        for part in self.parts:
            yield slice(start, start + part.size), part
            start += part.size

    def coefficients(
        self, precision: Float64[Tensor, " k"], lengthscales: Float64[Tensor, " k"]
    ) -> Float64[Tensor, "k c"]:
        """``a_k⁻¹ exp(−r_c/ψ_k)``, differentiable."""
        return (-self.distances / lengthscales[:, None]).exp() / precision[:, None]

    def forms(self, U: Float[Tensor, "d s"], V: Float[Tensor, "d s"]) -> Float64[Tensor, "k c s"]:
        """``u_kᵀ S_c v_k`` of every block, distance and column.

        >>> filters = Filters([Part(4, (2,), 0)])
        >>> u = torch.tensor([[1.0], [2.0], [0.0], [3.0]])
        >>> filters.forms(u, u)[0, :, 0]  # 1 + 4 + 9, and twice 1 · 2
        tensor([14.,  4.], dtype=torch.float64)
        """
        columns = U.shape[1]
        total = torch.zeros(self.num_blocks, len(self.distances), columns, dtype=torch.float64)
        for place, part in self.places():
            shape = (columns, -1, math.prod(part.kernel))
            pairs = U.mT[:, place].reshape(shape).mT @ V.mT[:, place].reshape(shape)
            total[part.block].index_add_(0, self.classes[part.kernel].flatten(), pairs.flatten(1).mT.double().cpu())
        return total

    def grams(self, Phi: Float[Tensor, "m d"]) -> Float64[Tensor, "i m m"]:
        """``Φ_k S_c Φ_kᵀ`` of every component, in float64: what they sum to must stay positive definite.

        >>> Filters([Part(2, (2,), 0)]).grams(torch.tensor([[1.0, 2.0]])).flatten()
        tensor([5., 4.], dtype=torch.float64)
        """
        rows, place_of = len(Phi), {pair: i for i, pair in enumerate(self.components)}
        total = torch.zeros(len(place_of), rows, rows, dtype=torch.float64, device=Phi.device)
        for place, part in self.places():
            features = Phi[:, place].double()
            for c in self.classes[part.kernel].unique().tolist():
                marks = (self.classes[part.kernel] == c).to(features)
                beside = (features.reshape(rows, -1, len(marks)) @ marks).reshape(rows, -1)
                total[place_of[part.block, c]].addmm_(beside, features.mT)
        return total


def _spread_out(kernel: tuple[int, ...]) -> tuple[int, ...]:
    """A filter of a single pixel is a weight like any other."""
    return tuple(kernel) if math.prod(kernel) > 1 else ()


def _distances(kernel: tuple[int, ...]) -> Float64[Tensor, "p p"]:
    if not kernel:
        return torch.zeros(1, 1, dtype=torch.float64)
    axes = [torch.arange(size, dtype=torch.float64) for size in kernel]
    pixels = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(kernel))
    return (pixels[:, None] - pixels).square().sum(-1).sqrt()
