"""Images with error bars under a plain Gaussian prior over pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from matheron.arguments import require_count, require_positive_number
from matheron.kernels import Matern12
from matheron.linear import SequentialPosterior
from matheron.operators.base import Operator
from matheron.seeds import own_source
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.image_prior import ImagePrior, IndependentPixels, StationaryPixels, places
from matheron.tomography.measurements import Whitened, require_shape, require_sinogram, require_weights
from matheron.tomography.scan import require_memory

COVARIANCES = ("isotropic", "matern12")

SHORTEST, LONGEST = 0.2, 10.0
"""Lengthscales that are tried: in pixels, and in sides of the image."""

COARSE, FINE, ZOOMS = 9, 101, 4
"""Lengthscales tried before the search narrows; ratios of noise to variance tried at a time, and how often."""

WIDEST = 1e10
"""Between the largest eigenvalue of the scan's covariance and the least noise, and the other way round."""


ROUNDING = 4.0
"""By how much the least noise that is learnt is above what rounding makes of the scan's covariance."""


class GaussianImage(ImagePosterior):
    """``x ~ N(0, K)``, ``y = T x + ε``: ``N(K Tᵀ G⁻¹ y, K − K Tᵀ G⁻¹ T K)`` with ``G = T K Tᵀ + (b W)⁻¹`` (§ 7.4).

    ``covariance`` is ``"isotropic"``, ``K = v I``, or ``"matern12"``, ``K_ij = v exp(−‖i − j‖ / ψ)`` between pixels,
    lengths in pixels. What is not given of ``variance`` ``v``, ``lengthscale`` ``ψ`` and ``noise``, the variance
    ``b⁻¹``, maximizes the exact evidence ``log N(y; 0, G)``, with no less noise than the dtype of ``A`` rounds off;
    ``W`` is the identity unless rays have weights. The scan knows the shape of its images; those of an operator without
    one are square unless ``shape`` says otherwise.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam
    >>> g = torch.Generator().manual_seed(0)
    >>> A = ParallelBeam(12, torch.arange(6) * math.pi / 6, 17).operator()
    >>> truth = torch.zeros(12, 12)
    >>> truth[3:8, 4:9] = 1.0
    >>> y = A @ truth.flatten() + 0.1 * torch.randn(A.shape[0], generator=g)
    >>> post = GaussianImage(A, "matern12").fit(y, generator=g)
    >>> post.mean.shape, post.sample(5).shape, bool(1.0 < post.lengthscale < 100.0)
    (torch.Size([12, 12]), torch.Size([5, 12, 12]), True)
    >>> rougher = GaussianImage(A, "isotropic").fit(y, generator=g)
    >>> post.log_evidence > rougher.log_evidence
    True
    """

    def __init__(
        self,
        A: Operator,
        covariance: str = "matern12",
        *,
        variance: float | None = None,
        lengthscale: float | None = None,
        noise: float | None = None,
        shape: int | Sequence[int] | None = None,
    ) -> None:
        if covariance not in COVARIANCES:
            raise ValueError(f"covariance must be one of {', '.join(COVARIANCES)}, got {covariance!r}")
        if covariance == "isotropic" and lengthscale is not None:
            raise ValueError("lengthscale is given but independent pixels have none; leave it out, or take 'matern12'")
        given = {"variance": variance, "lengthscale": lengthscale, "noise": noise}
        self.A, self.covariance_name, self.shape = A, covariance, require_shape(A, shape)
        self.given = {k: None if v is None else require_positive_number(k, v) for k, v in given.items()}
        self.variance = self.lengthscale = self.log_evidence = math.nan
        self._again: dict[str, int] = {}
        self.history: list[dict[str, float]] = []
        """Every lengthscale that was tried, with its best variance and noise and their log evidence."""

    @torch.no_grad()
    def fit(
        self,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        final_samples: int = 64,
        generator: torch.Generator | int | None = None,
    ) -> GaussianImage:
        """Learn what was not given, and condition the mean and ``final_samples`` prior images on ``y``.

        ``weights`` are the precisions of the rays up to one factor, such as those of :func:`from_counts`: a ray has
        the noise variance ``b⁻¹ / w``.
        """
        require_count("final_samples", final_samples)
        self.y = require_sinogram(y, self.A)
        self.weights = None if weights is None else require_weights(weights, self.A)[:, 0]
        if not bool(self.y.any()) and self.given["noise"] is None and self.given["variance"] is None:
            raise ValueError("y is zero, from which neither variance nor noise can be learnt; give one of them")
        rows, pixels = self.A.shape
        needed = 8.0 * (4 * rows**2 + 3 * rows * pixels)
        require_memory(needed, "the exact evidence", self.A.device, "scan fewer angles, or a smaller image")
        source = own_source(generator)
        self.history, self._again = [], {"final_samples": final_samples}
        white = Whitened.of(self.A, self.y, self.weights)
        best = self._search(white)
        self.variance, self.lengthscale, self.log_evidence = best.variance, best.lengthscale, best.value
        prior = self.image_prior()
        drawn = prior.draw(final_samples, source)
        found = SequentialPosterior(prior.covariance, drawn, 1.0 / best.noise, generator=source)
        found.observe(white.A, white.y)
        self.adopt(found.mean.reshape(self.shape), found.samples, 1.0 / best.noise)
        return self

    def image_prior(
        self,
        A: Operator | None = None,
        generator: torch.Generator | int | None = None,
        *,
        weights: Float[Tensor, " n"] | None = None,
    ) -> ImagePrior:
        """``N(0, K)`` as it was learnt; it knows of no scan."""
        if math.isnan(self.variance):
            raise RuntimeError("this posterior has not been fitted; call fit(y) first")
        return self._prior(self.variance, self.lengthscale)

    def refitted(
        self,
        A: Operator,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        generator: torch.Generator | int | None = None,
    ) -> GaussianImage:
        """The same model of other measurements of the same image."""
        other = GaussianImage(A, self.covariance_name, shape=self.shape, **self.given)
        return other.fit(y, weights=weights, generator=generator, **self._again)

    def _prior(self, variance: float, lengthscale: float) -> ImagePrior:
        if self.covariance_name == "isotropic":
            return IndependentPixels(variance, torch.empty(self.A.shape[1], dtype=self.A.dtype, device=self.A.device))
        kernel = Matern12(lengthscale=lengthscale, variance=variance).to(self.A.device)
        return StationaryPixels(kernel, places(self.shape, self.A.dtype, self.A.device))

    def _search(self, white: Whitened) -> _Evidence:
        """The best lengthscale: on a coarse grid, then between the neighbors of the best there."""
        if self.covariance_name == "isotropic" or self.given["lengthscale"] is not None:
            return self._at(white, self.given["lengthscale"] or math.nan)
        low, high = math.log(SHORTEST), math.log(LONGEST * max(self.shape))
        grid = torch.linspace(low, high, COARSE, dtype=torch.float64).tolist()
        found = [self._at(white, math.exp(point)) for point in grid]
        top = max(range(COARSE), key=lambda i: found[i].value)
        bounds = (grid[max(top - 1, 0)], grid[min(top + 1, COARSE - 1)])

        def objective(point: float) -> float:
            found.append(self._at(white, math.exp(point)))
            return -found[-1].value

        minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 0.01})
        return max(found, key=lambda evidence: evidence.value)

    def _at(self, white: Whitened, lengthscale: float) -> _Evidence:
        """The best variance and noise at one lengthscale, from one eigendecomposition."""
        K = self._prior(1.0, lengthscale).covariance
        G = (white.A @ (K @ white.A.T.dense())).double()
        # With less noise than products in this dtype round off, G would not be positive definite.
        least = ROUNDING * torch.finfo(self.A.dtype).eps * math.sqrt(len(G)) * float(G.diagonal().max())
        values, vectors = torch.linalg.eigh(0.5 * (G + G.mT))
        found = maximize(
            values.clamp(min=0.0),
            vectors.mT @ white.y.double(),
            lengthscale,
            self.given["variance"],
            self.given["noise"],
            least=least,
        )
        found = replace(found, value=found.value + white.log_scale)
        self.history.append(vars(found))
        return found

    def __repr__(self) -> str:
        state = "not fitted" if self._deviations is None else f"{len(self.deviations)} samples"
        return f"GaussianImage({self.shape}, covariance={self.covariance_name!r}, {state})"


@dataclass(frozen=True)
class _Evidence:
    value: float
    variance: float
    noise: float
    lengthscale: float


def maximize(
    spectrum: Float[Tensor, " m"],
    y: Float[Tensor, " m"],
    lengthscale: float = math.nan,
    variance: float | None = None,
    noise: float | None = None,
    *,
    least: float = 0.0,
) -> _Evidence:
    """``max log N(y; 0, v diag(λ) + b⁻¹ I)`` over what is not given of ``v`` and ``b⁻¹``.

    With ``r = b⁻¹ / v`` and neither given, ``v = mean(y² / (λ + r))`` is the best for every ``r``, which is searched on
    a grid of logarithms that narrows around its best, where ``r`` is not below ``least``.
    """
    top = math.log(max(float(spectrum.max()), torch.finfo(spectrum.dtype).tiny))
    low, high = top - math.log(WIDEST), top + math.log(WIDEST)
    if variance is not None and noise is not None:
        low = high = math.log(noise / variance)
    for _ in range(ZOOMS):
        grid = torch.linspace(low, high, FINE, dtype=torch.float64, device=spectrum.device)
        ratio = grid.exp()[:, None]
        spread = spectrum + ratio
        if noise is not None:
            scale = noise / ratio
        elif variance is not None:
            scale = torch.full_like(ratio, variance)
        else:
            scale = (y.square() / spread).mean(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        total = scale * spread
        value = -0.5 * (y.square() / total + total.log() + math.log(2.0 * math.pi)).sum(1)
        if low < high:
            value = torch.where(ratio[:, 0] < least, -torch.inf, value)
        best = int(value.argmax())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, FINE - 1)])
    found = float(scale[best, 0])
    return _Evidence(float(value[best]), found, found * float(ratio[best, 0]), lengthscale)
