"""Gaussian priors over images: samples, and products with their covariance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels import Kernel, sample_prior
from matheron.kernels.sampling import MOST_POINTS, by_cholesky
from matheron.linear import GaussianCurvature, Prior, RowKernel, StoredData
from matheron.operators import Diagonal, KernelOperator, Operator
from matheron.seeds import normals

CHUNK = 256
"""Draws of weights at a time."""

FEATURES = 8_000
"""Random features of images too large for a factorization."""


class ImagePrior(ABC):
    """``x ~ N(0, K)`` over the pixels of an image.

    >>> import torch
    >>> from matheron.operators import Diagonal
    >>> class Centered(ImagePrior):  # the middle of three pixels is known least
    ...     covariance = Diagonal(torch.tensor([1.0, 4.0, 1.0]))
    ...
    ...     def draw(self, num, generator):
    ...         return torch.randn(num, 3, generator=generator) * self.covariance.diagonal().sqrt()
    >>> Centered().draw(2, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3])
    """

    @property
    @abstractmethod
    def covariance(self) -> Operator:
        """``K`` by its products."""

    @abstractmethod
    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "num pixels"]:
        """``x_j ~ N(0, K)``, one per row."""


@dataclass(frozen=True, eq=False)
class IndependentPixels(ImagePrior):
    """``K = v I``.

    >>> import torch
    >>> prior = IndependentPixels(4.0, torch.zeros(3))
    >>> prior.covariance.dense()[0]
    tensor([4., 0., 0.])
    """

    variance: float
    like: Float[Tensor, " pixels"]
    """Any image: its size, dtype and device."""

    @property
    def covariance(self) -> Operator:
        """A multiple."""
        return Diagonal(torch.full_like(self.like, self.variance))

    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "num pixels"]:
        """``√v u``."""
        return math.sqrt(self.variance) * normals((num, len(self.like)), self.like, generator)


@dataclass(frozen=True, eq=False)
class StationaryPixels(ImagePrior):
    """``K_ij = k(i, j)`` with ``i`` and ``j`` places of pixels, ``(pixels, axes)``.

    Draws are exact up to 5,000 pixels, beyond by random features, their covariance right to about one percent.

    >>> import torch
    >>> from matheron.kernels import Matern12
    >>> prior = StationaryPixels(Matern12(2.0), places((2, 2)))
    >>> prior.covariance.dense()[0]  # exp(−distance / 2)
    tensor([1.0000, 0.6065, 0.6065, 0.4931])
    """

    kernel: Kernel
    places: Float[Tensor, "pixels axes"]

    @property
    def covariance(self) -> Operator:
        """In tiles; kept where memory allows."""
        return KernelOperator(self.kernel.requires_grad_(False), self.places)

    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "num pixels"]:
        """By a factorization, or by random features."""
        if len(self.places) <= MOST_POINTS:
            with torch.no_grad():
                return by_cholesky(self.kernel, self.places, num, generator)
        return sample_prior(self.kernel, self.places, num, generator, num_features=FEATURES)


@dataclass(frozen=True, eq=False)
class TangentImages(ImagePrior):
    """``x = φ w`` with ``w ~ N(0, A⁻¹)``, so that ``K = φ A⁻¹ φᵀ``.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior
    >>> from matheron.operators import Dense
    >>> prior = TangentImages(Dense(torch.tensor([[1.0, 1.0], [0.0, 2.0]])), DiagonalPrior(4.0, num_weights=2))
    >>> prior.covariance.dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 1.0000]])
    """

    features: Operator
    weights: Prior

    @property
    def covariance(self) -> Operator:
        """A pass back, and one forward."""
        phi = self.features
        white = GaussianCurvature(1.0, size=phi.shape[0], dtype=phi.dtype, device=phi.device)
        return RowKernel(StoredData(phi, white), self.weights)

    @torch.no_grad()
    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "num pixels"]:
        """``φ A^(-½) u``, some at a time: weights are many."""
        sizes = [min(CHUNK, num - start) for start in range(0, num, CHUNK)]
        return torch.cat([(self.features @ self.weights.draw(size, generator)).mT for size in sizes])


def places(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Float[Tensor, "pixels axes"]:
    """Where the pixels of an image stand, in pixels, as its columns come.

    >>> places((2, 2)).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    axes = [torch.arange(size, dtype=dtype, device=device) for size in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(shape))
