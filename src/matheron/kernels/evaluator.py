"""Filling tiles of a kernel matrix, without a graph and with as few passes over the tile as the kernel allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.rows import take_rows

if TYPE_CHECKING:
    from matheron.kernels.base import Kernel


class Evaluator:
    """``out ← k(x[rows], z[columns])`` for inputs fixed beforehand; this one works for any kernel.

    Kernels override :meth:`Kernel.evaluator` to prepare their inputs once and to fill tiles in place.
    """

    def __init__(self, kernel: Kernel, x: Tensor, z: Tensor) -> None:
        self.kernel, self.x, self.z = kernel, x, z

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``."""
        return Evaluator(self.kernel, take_rows(self.x, index), self.z)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Write one tile."""
        with torch.no_grad():
            out.copy_(self.kernel(take_rows(self.x, rows), take_rows(self.z, columns)))


class Scratch:
    """A tile-sized buffer that is allocated once and handed out as views."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._buffer = torch.empty(0, dtype=dtype, device=device)

    def like(self, out: Tensor) -> Tensor:
        """A contiguous matrix of the shape of ``out``."""
        if self._buffer.numel() < out.numel():
            self._buffer = self._buffer.new_empty(out.numel())
        return self._buffer[: out.numel()].view(out.shape)
