"""Whole tiles of a stationary kernel in one compiled pass, where a compiler is there and the work is worth it."""

from __future__ import annotations

import functools
import shutil
import types
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from matheron.kernels.tiling import TILE

FROM_ENTRIES = 2 * 10**9
"""Compiling takes two to ten seconds: what one or two passes over a matrix of this many entries save."""

MOST_INPUTS = 32
"""Differences are taken input by input; with more of them a matrix product is faster."""

FARTHEST = 150.0
"""In lengthscales from the center: beyond, float32 coordinates are too coarse for an error of 1e-5."""

Fill = Callable[[Tensor, Tensor, Tensor], None]


class FusedTile:
    """``out ← κ(Σ_k (x_k − z_k)²)`` for coordinates ``x (d, n)`` and ``z (d, m)`` in float32, one row per input.

    Nothing is written but the tile itself, so that speed does not hang on the cache; the differences are exact for
    coincident rows. Whole tiles are compiled; those at the borders are filled without.
    """

    def __init__(self, correlation: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> None:
        self.correlation, self.left, self.right = correlation, left, right

    @classmethod
    def worthwhile(cls, left: Tensor, right: Tensor, dtype: torch.dtype) -> bool:
        """Whether it pays, and float32 coordinates are fine enough."""
        return (
            dtype == torch.float32
            and left.device.type == "cpu"
            and left.shape[1] <= MOST_INPUTS
            and len(left) * len(right) >= FROM_ENTRIES
            and any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++"))
            and float(max(left.abs().max(), right.abs().max())) <= FARTHEST
        )

    def gather(self, index: Tensor) -> FusedTile:
        """The same with the rows ``index``."""
        return FusedTile(self.correlation, self.left[:, index], self.right)

    def fill(self, rows: slice, columns: slice, out: Tensor) -> bool:
        """Write one tile; false where it could not be done."""
        if out.shape != TILE or not out.is_contiguous():
            return False
        fill = _compiled(self.correlation, len(self.left))
        if fill is None:
            return False
        fill(self.left[:, rows].contiguous(), self.right[:, columns].contiguous(), out)
        return True


@functools.cache
def _compiled(correlation: Callable[[Tensor], Tensor], inputs: int) -> Fill | None:
    """Compiled once per kernel and number of inputs; ``None`` where the compiler fails, whatever its reason."""

    def fill(x: Tensor, z: Tensor, out: Tensor) -> None:
        squared = (x[0][:, None] - z[0][None, :]) ** 2
        for k in range(1, inputs):
            squared = squared + (x[k][:, None] - z[k][None, :]) ** 2
        out.copy_(correlation(squared))

    # PyTorch compiles a piece of code for a few cases only, and goes on without: each case has a copy of its own.
    own = types.FunctionType(fill.__code__.replace(), fill.__globals__, closure=fill.__closure__)
    compiled = torch.compile(own, dynamic=False)
    try:
        compiled(torch.zeros(inputs, TILE[0]), torch.zeros(inputs, TILE[1]), torch.empty(TILE))
    except Exception as error:
        warnings.warn(f"tiles are filled without torch.compile, which failed: {error}", RuntimeWarning, stacklevel=2)
        return None
    return compiled
