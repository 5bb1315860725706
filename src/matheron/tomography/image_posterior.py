"""Images with error bars: a mean and coherent samples around it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count, require_finite, require_float
from matheron.operators.base import Operator
from matheron.tomography.image_prior import ImagePrior
from matheron.tomography.scan import require_memory

FLOOR = 1e-6
"""Of the mean variance, added to every pixel's: one that no sample moves has a density too."""


class ImagePosterior:
    """``x | y ~ N(μ, K)``, known by its mean ``(*shape)`` and its ``deviations`` ``x_j ~ N(0, K)``, ``(s, pixels)``.

    ``noise_precision`` is ``b`` of the measurements ``y = T x + ε``, ``ε ~ N(0, (b W)⁻¹)``; ``W`` is the identity, or
    has the ``weights`` of the rays on its diagonal.

    >>> import torch
    >>> g = torch.Generator().manual_seed(0)
    >>> found = ImagePosterior()
    >>> found.adopt(torch.zeros(2, 3), 2.0 * torch.randn(5000, 6, generator=g), noise_precision=1.0)
    >>> found.std.shape, bool((found.std - 2.0).abs().max() < 0.1)
    (torch.Size([2, 3]), True)
    >>> found.coverage(torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), 0.95)  # within 3.92
    0.6666666666666666
    """

    _mean: Float[Tensor, "*shape"] | None = None
    _deviations: Float[Tensor, "s pixels"] | None = None
    noise_precision: float = math.nan
    A: Operator
    """``T``, the scan of what was measured."""
    y: Float[Tensor, " m"]
    """What was measured."""
    weights: Float[Tensor, " m"] | None = None
    """``w``, the precisions of the rays in units of ``b``, where they differ."""
    follows_scan: bool = False
    """Whether the prior depends on the scan, as the g-prior does."""

    def adopt(
        self, mean: Float[Tensor, "*shape"], deviations: Float[Tensor, "s pixels"], noise_precision: float
    ) -> None:
        """Take over what was found."""
        self._mean, self._deviations, self.noise_precision = mean, deviations, noise_precision

    @property
    def mean(self) -> Float[Tensor, "*shape"]:
        """``μ``."""
        if self._mean is None:
            raise RuntimeError("this posterior has not been fitted; call fit(y) first")
        return self._mean

    @property
    def deviations(self) -> Float[Tensor, "s pixels"]:
        """``x_j ~ N(0, K)``, one per row."""
        if self._deviations is None:
            raise RuntimeError("this posterior has not been fitted; call fit(y) first")
        return self._deviations

    @property
    def std(self) -> Float[Tensor, "*shape"]:
        """The root of the mean square of the samples, pixel by pixel."""
        return self.deviations.square().mean(0).sqrt().reshape(self.mean.shape)

    def sample(self, num: int | None = None) -> Float[Tensor, "num *shape"]:
        """``μ + x_j``: the first ``num`` of the images drawn, the same at every call; all without a number."""
        drawn = len(self.deviations)
        if num is not None and require_count("num", num) > drawn:
            raise ValueError(f"num is {num} but {drawn} samples were drawn; fit with final_samples={num}")
        return self.mean + self.deviations[:num].reshape(-1, *self.mean.shape)

    def log_prob(self, image: Float[Tensor, "*shape"], patch: int = 1, *, shrinkage: float = 0.5) -> float:
        """``log N(image; μ, K̂)`` over patches of ``patch`` pixels a side that do not overlap, mean per pixel, in nats.

        Within a patch ``K̂ = (1 − t) Σ_j x_j x_jᵀ / s + t diag(…)`` with ``t = shrinkage``, zero between patches. The
        thesis (section 7.3.7) and values published with it take ``t = ½``, which halves all covariances: biased, but
        of less variance; compare like with like. Patches at the border are what is left of the image.
        """
        require_count("patch", patch)
        require_between("shrinkage", shrinkage, -1e-9, 1.0)
        error = (self._require_image(image) - self.mean).double()
        X = self.deviations.double().reshape(-1, *self.mean.shape)
        floor = FLOOR * float(X.square().mean())
        if not floor > 0.0:
            raise ValueError("all samples are the same image, so that no image has a density; fit with more noise")
        total = 0.0
        for place, sizes in regions(tuple(self.mean.shape), patch):
            samples, missed = patches(X[:, *place], sizes), patches(error[None, *place], sizes)[0]
            needed = 3 * 8 * samples.shape[1] * samples.shape[2] ** 2
            require_memory(needed, "the covariance within patches", X.device, "take a smaller patch")
            K = torch.einsum("spi,spj->pij", samples, samples) / len(samples)
            variance = K.diagonal(dim1=1, dim2=2)
            K = (1.0 - shrinkage) * K + torch.diag_embed(shrinkage * variance + floor)
            factor = torch.linalg.cholesky(K)
            white = torch.linalg.solve_triangular(factor, missed[:, :, None], upper=False)
            determinant = 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum()
            total -= 0.5 * float(white.square().sum() + determinant + missed.numel() * math.log(2.0 * math.pi))
        return total / error.numel()

    def coverage(self, image: Float[Tensor, "*shape"], level: float) -> float:
        """The share of pixels of ``image`` in their central interval of probability ``level``; calibrated if equal."""
        reached = (1.0 + require_between("level", level, 0.0, 1.0)) / 2.0
        error = (self._require_image(image) - self.mean).abs()
        if reached == 1.0:  # the whole line, also where a deviation is zero
            return 1.0
        inside = error <= float(torch.special.ndtri(torch.tensor(reached, dtype=torch.float64))) * self.std
        return float(inside.double().mean())

    def image_prior(
        self,
        A: Operator | None = None,
        generator: torch.Generator | int | None = None,
        *,
        weights: Float[Tensor, " n"] | None = None,
    ) -> ImagePrior:
        """``N(0, K)``, the prior whose posterior this is; one that follows the scan follows ``A`` where it is given.

        ``weights`` are those of the rays of ``A``.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no prior; take GaussianImage or LinearizedDIP")

    def refitted(
        self,
        A: Operator,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        generator: torch.Generator | int | None = None,
    ) -> ImagePosterior:
        """The same model of other measurements of the same image; this one stays as it is."""
        raise NotImplementedError(f"{type(self).__name__} cannot be fitted; take GaussianImage or LinearizedDIP")

    def _require_image(self, image: Tensor) -> Tensor:
        image = require_finite("image", require_float("image", image))
        if image.shape != self.mean.shape:
            raise ValueError(f"image has shape {tuple(image.shape)}; the posterior's is {tuple(self.mean.shape)}")
        return image.to(self.mean)


def regions(shape: tuple[int, ...], patch: int) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Parts of an image that whole patches of one size tile, and that size."""
    axes = []
    for size in shape:
        whole = size - size % patch
        parts = [(slice(0, whole), patch)] if whole else []
        axes.append(parts + ([(slice(whole, size), size - whole)] if size > whole else []))
    for chosen in itertools.product(*axes):
        yield tuple(place for place, _ in chosen), tuple(size for _, size in chosen)


def patches(X: Float[Tensor, "s *region"], sizes: tuple[int, ...]) -> Float[Tensor, "s patches pixels"]:
    """A region cut up."""
    for axis, size in enumerate(sizes, start=1):
        X = X.unfold(axis, size, size)
    return X.flatten(1, len(sizes)).flatten(2)
