"""Random functions of the prior, and the noise drawn with them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels import Kernel
from matheron.kernels.feature_map import FeatureMap
from matheron.kernels.rows import take_rows
from matheron.seeds import normals

BLOCK = 4096
"""Inputs whose features exist at once."""


class PriorFunctions(nn.Module):
    """``f_j(·) = φ(·) w_j`` with ``w_j ~ N(0, I)``: functions of the prior, one per column (thesis §2.2.3).

    The base numbers stay fixed; the functions follow the hyperparameters of the kernel that ``features`` refers to.

    >>> import torch
    >>> import matheron as mt
    >>> k, g = mt.kernels.RBF(), torch.Generator().manual_seed(0)
    >>> f = PriorFunctions.draw(k, 5, num_features=100, like=torch.zeros(1, 2), generator=g)
    >>> f(torch.zeros(3, 2)).shape
    torch.Size([3, 5])
    """

    weights: Float[Tensor, "f k"]

    def __init__(self, features: FeatureMap, weights: Float[Tensor, "f k"], num_features: int) -> None:
        super().__init__()
        # What was asked for; features that are exact take fewer.
        self.features, self.num_features = features, num_features
        self.register_buffer("weights", weights)

    @classmethod
    def draw(
        cls, kernel: Kernel, num: int, *, num_features: int, like: Tensor, generator: torch.Generator
    ) -> PriorFunctions:
        """``num`` functions of inputs with as many columns as ``like``."""
        features = kernel.features(num_features, dimension=like.shape[1], generator=generator)
        return cls(features, normals((features.num, num), like, generator), num_features)

    @property
    def num(self) -> int:
        """How many functions."""
        return self.weights.shape[1]

    def forward(self, x: Tensor) -> Float[Tensor, "m k"]:
        """``φ(x) w``, block by block, differentiable in ``x``."""
        blocks = (slice(start, start + BLOCK) for start in range(0, x.shape[0], BLOCK))
        return torch.cat([self.features(take_rows(x, block)) @ self.weights.to(x.dtype) for block in blocks])

    def first(self, num: int) -> PriorFunctions:
        """The first so many."""
        return PriorFunctions(self.features, self.weights[:, :num], self.num_features)

    def more(self, num: int, generator: torch.Generator) -> PriorFunctions:
        """These and ``num`` new ones of the same features."""
        new = normals((self.features.num, num), self.weights, generator)
        return PriorFunctions(self.features, torch.cat([self.weights, new], dim=1), self.num_features)


class PriorDraws(nn.Module):
    """``ξ_j = f_j(X) + σ ⊙ n_j``: noisy prior functions at the training inputs, their random numbers fixed.

    There is one column ``j`` per function: for several outputs, sample ``i`` of output ``o`` is column ``i c + o``.

    >>> import torch
    >>> import matheron as mt
    >>> k, g = mt.kernels.RBF(), torch.Generator().manual_seed(0)
    >>> X = torch.zeros(3, 1)
    >>> draws = PriorDraws.draw(k, X, 5, num_features=100, generator=g)
    >>> draws(X).shape, draws.noisy(X, torch.ones(3)).shape
    (torch.Size([3, 5]), torch.Size([3, 5]))
    """

    normals: Float[Tensor, "n k"]

    def __init__(self, functions: PriorFunctions, normals: Float[Tensor, "n k"]) -> None:
        super().__init__()
        self.functions = functions
        self.register_buffer("normals", normals)

    @classmethod
    def draw(cls, kernel: Kernel, X: Tensor, num: int, *, num_features: int, generator: torch.Generator) -> PriorDraws:
        """``num`` functions, and one normal per row of ``X`` for each."""
        functions = PriorFunctions.draw(kernel, num, num_features=num_features, like=X, generator=generator)
        return cls(functions, normals((X.shape[0], num), X, generator))

    @property
    def num(self) -> int:
        """How many functions."""
        return self.functions.num

    def forward(self, x: Tensor) -> Float[Tensor, "m k"]:
        """``f_j(x)``."""
        return self.functions(x)

    def noisy(self, X: Tensor, noise: Float[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """``f_j(X) + √noise ⊙ n_j``: draws of ``N(0, K + N)``."""
        return self(X) + noise.sqrt()[:, None] * self.normals

    def cast(self, dtype: torch.dtype) -> PriorDraws:
        """The same draws in another precision."""
        return PriorDraws(self.functions, self.normals.to(dtype))

    def resized(self, num: int, generator: torch.Generator) -> PriorDraws:
        """The first ``num`` of these, with new ones after them where there are fewer."""
        if num <= self.num:
            return PriorDraws(self.functions.first(num), self.normals[:, :num])
        missing = num - self.num
        fresh = normals((self.normals.shape[0], missing), self.normals, generator)
        return PriorDraws(self.functions.more(missing, generator), torch.cat([self.normals, fresh], dim=1))
