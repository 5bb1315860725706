"""Random functions of the prior, and the noise drawn with them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels import Kernel
from matheron.kernels.feature_map import FeatureMap
from matheron.kernels.rows import take_rows

BLOCK = 4096
"""Inputs whose features exist at once."""


class PriorDraws(nn.Module):
    """``f_j(·) = φ(·) w_j`` and ``ξ_j = f_j(X) + σ ⊙ n_j``: prior functions and noisy draws of them (thesis §2.2.3).

    The base numbers ``w`` and ``n`` stay fixed; the functions follow the hyperparameters of the kernel that ``features``
    refers to. There is one column ``j`` per function: for several outputs, sample ``i`` of output ``o`` is column
    ``i c + o``.

    >>> import torch
    >>> import matheron as mt
    >>> k, g = mt.kernels.RBF(), torch.Generator().manual_seed(0)
    >>> X = torch.zeros(3, 1)
    >>> draws = PriorDraws.draw(k, X, 5, num_features=100, generator=g)
    >>> draws(X).shape, draws.noisy(X, torch.ones(3)).shape
    (torch.Size([3, 5]), torch.Size([3, 5]))
    """

    features: FeatureMap
    weights: Float[Tensor, "f k"]
    normals: Float[Tensor, "n k"]

    def __init__(self, features: FeatureMap, weights: Float[Tensor, "f k"], normals: Float[Tensor, "n k"]) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("weights", weights)
        self.register_buffer("normals", normals)

    @classmethod
    def draw(cls, kernel: Kernel, X: Tensor, num: int, *, num_features: int, generator: torch.Generator) -> PriorDraws:
        """``num`` functions, and one normal per row of ``X`` for each."""
        features = kernel.features(num_features, dimension=X.shape[1], generator=generator)
        return cls(features, normals(features.num, num, X, generator), normals(X.shape[0], num, X, generator))

    @property
    def num(self) -> int:
        """How many functions."""
        return self.weights.shape[1]

    def forward(self, x: Tensor) -> Float[Tensor, "m k"]:
        """``φ(x) w``, block by block, differentiable in ``x``."""
        blocks = (slice(start, start + BLOCK) for start in range(0, x.shape[0], BLOCK))
        return torch.cat([self.features(take_rows(x, block)) @ self.weights.to(x.dtype) for block in blocks])

    def noisy(self, X: Tensor, noise: Float[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """``φ(X) w + √noise ⊙ normals``: draws of ``N(0, K + N)``."""
        return self(X) + noise.sqrt()[:, None] * self.normals

    def first(self, num: int) -> PriorDraws:
        """The first so many functions."""
        return PriorDraws(self.features, self.weights[:, :num], self.normals[:, :num])

    def extended(self, rows: int, generator: torch.Generator) -> PriorDraws:
        """The same functions with noise for so many more rows."""
        more = normals(rows, self.num, self.normals, generator)
        return PriorDraws(self.features, self.weights, torch.cat([self.normals, more]))


def normals(rows: int, columns: int, like: Tensor, generator: torch.Generator) -> Float[Tensor, "r c"]:
    """Standard normal numbers from the generator's device, on that of ``like``."""
    return torch.randn(rows, columns, dtype=like.dtype, generator=generator, device=generator.device).to(like.device)
