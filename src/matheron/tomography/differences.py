"""Differences between neighboring pixels, of which total variation is the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.operators.base import Operator


class Differences(Operator):
    """``(D x)_ij = x_j − x_i`` over all neighbors along each axis of an image; ``TV(x) = ‖D x‖₁`` (§ 7.1).

    Images are flattened columns ``(pixels, s)`` of shape ``shape``, in the plane or in space; the differences along the
    first axis come first.

    >>> import torch
    >>> D = Differences((2, 2))
    >>> D @ torch.tensor([0.0, 1.0, 5.0, 5.0])
    tensor([5., 4., 1., 0.])
    """

    def __init__(
        self, shape: Sequence[int], *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        self.image_shape = tuple(require_count("shape", size) for size in shape)
        pixels = math.prod(self.image_shape)
        self.edges = [pixels // size * (size - 1) for size in self.image_shape]
        super().__init__((sum(self.edges), pixels), dtype, torch.device(device))

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """One axis after the other."""
        images = V.reshape(*self.image_shape, V.shape[1])
        return torch.cat([images.diff(dim=axis).flatten(0, -2) for axis in range(len(self.edges))])

    def transpose(self) -> Operator:
        """What flows into a pixel less what flows out."""
        return Divergence(self)


class Divergence(Operator):
    """``Dᵀ q`` of :class:`Differences`."""

    def __init__(self, differences: Differences) -> None:
        self.differences = differences
        super().__init__((differences.shape[1], differences.shape[0]), differences.dtype, differences.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Along each axis, a difference with nothing beyond the border."""
        shape, s = self.differences.image_shape, V.shape[1]
        total = V.new_zeros(*shape, s)
        for axis, flow in enumerate(V.split(self.differences.edges)):
            sizes = [size - (place == axis) for place, size in enumerate(shape)]
            nothing = V.new_zeros(*(1 if place == axis else size for place, size in enumerate(shape)), s)
            flow = flow.reshape(*sizes, s)
            total = total - flow.diff(dim=axis, prepend=nothing, append=nothing)
        return total.flatten(0, -2)

    def transpose(self) -> Operator:
        """The differences."""
        return self.differences
