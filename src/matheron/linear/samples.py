"""Posterior samples and what one full pass over the data says of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.data import Batch, Data
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers
from matheron.solvers import ConvergenceWarning


@dataclass(frozen=True, eq=False)
class Measurement:
    """One pass over all data, in random order, at given samples and mode.

    ``residual`` is the gradient of each objective, the mode's last, in units of the data's pull at zero weights and
    in the norm ``‖·‖_A⁻¹``. ``curvature_forms`` ``(g, s)`` are ``ζ_gᵀ(Mζ)_g`` of each group of weights,
    ``pulled_forms`` are ``‖(w₀ − ζ)_g‖²_A``, how far the data pulled a prior sample, ``prior_forms`` are
    ``ζ_gᵀ(Aζ)_g``, ``mode_forms`` ``(g,)`` are ``w⋆_gᵀ(Aw⋆)_g``. ``loss`` is that of the mode, without the
    prior, and ``loss_at_zero`` that of zero weights.

    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData, solve_dense
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> measured = solve_dense(data, DiagonalPrior(1.0, num_weights=1), 2, generator=0).measured
    >>> measured.loss, measured.loss_at_zero, measured.mode_forms  # ½ 4 · 1², ½ 4 · 5², 4²
    (2.0, 50.0, tensor([16.], dtype=torch.float64))
    """

    residual: Float[Tensor, " k"]
    fits: Float[Tensor, " s"]
    """``Σ_i ‖Φ_i ζ‖²_{B_i}`` of each sample, never negative."""
    curvature_forms: Float[Tensor, "g s"]
    pulled_forms: Float[Tensor, "g s"]
    prior_forms: Float[Tensor, "g s"]
    mode_forms: Float[Tensor, " g"] | None
    loss: float | None
    loss_at_zero: float | None
    margin: float | None
    """``Σ_j tr[M_j (I − 2H⁻¹M_j)]`` estimated; positive where the low-variance objective wins at the optimum."""


@dataclass(frozen=True, eq=False)
class Samples:
    """``ζ ~ N(0, H⁻¹)``, one per row ``(s, d)``, and the mode ``w⋆`` ``(d,)`` where it was asked for.

    ``residual`` was measured by a full pass, the mode's last; ``epochs`` counts passes of products with ``Φ`` and
    ``Φᵀ`` over the data, those for step sizes and the residual too, those of the regularizers not.

    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData, solve_dense
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> found = solve_dense(data, DiagonalPrior(1.0, num_weights=1), 5000, generator=0)
    >>> found.converged, bool((found.samples.var() - 1 / 5).abs() < 0.02)
    (True, True)
    """

    samples: Float[Tensor, "s d"]
    mode: Float[Tensor, " d"] | None
    measured: Measurement
    prior: Prior
    tolerance: float
    epochs: float
    seconds: float
    method: str
    trace: list[dict[str, Any]] = field(repr=False)
    events: list[str]
    steepness: Float[Tensor, "t 2"] | None = field(default=None, repr=False)
    """Largest eigenvalues that set the steps, of the samples' objective and of the mode's, over data and per batch."""
    dual: Float[Tensor, "k m"] | None = field(default=None, repr=False)
    """Solutions of the dual systems, to start the next ones from."""
    sketch: Float[Tensor, "d r"] | None = field(default=None, repr=False)
    """``F Fᵀ ≈ A^(-1/2) M A^(-1/2)``, the preconditioner of the next systems."""

    @property
    def residual(self) -> Float[Tensor, " k"]:
        """Relative gradient norms of the samples and, last, of the mode where it was solved for."""
        return self.measured.residual

    @property
    def mode_residual(self) -> float | None:
        """Of the mode, where it was solved for."""
        return float(self.residual[-1]) if len(self.residual) > len(self.samples) else None

    @property
    def converged(self) -> bool:
        """Whether every residual is at most the tolerance."""
        return bool((self.residual <= self.tolerance).all())

    @property
    def low_variance_preferred(self) -> bool | None:
        """Whether at the optimum the low-variance objective's gradients vary less than the plain one's.

        Judged in the coordinates that are descended in, where the prior is white. ``None`` where all data are one
        batch.
        """
        return None if self.measured.margin is None else self.measured.margin > 0.0

    def warn(self) -> Samples:
        """Say so if not converged; refuse what is not a number."""
        # Row by row: samples of large networks are not to be copied.
        rows = [*self.samples, *([] if self.mode is None else [self.mode])]
        if not all(bool(row.isfinite().all()) for row in rows):
            a = self.prior.values
            raise ValueError(
                f"{self.method} ended in NaN or infinite weights: prior precisions of {float(a.min()):.2g} to "
                f"{float(a.max()):.2g} are too far from what the data say in {self.samples.dtype}; give others, or "
                "use double precision"
            )
        if not self.converged:
            warnings.warn(
                f"{self.method} stopped at a relative gradient norm of {float(self.residual.max()):.2g}, above the "
                f"tolerance {self.tolerance:g}, after {self.epochs:.1f} epochs; allow more epochs, or loosen the "
                "tolerance if predictions have settled",
                ConvergenceWarning,
                stacklevel=4,
            )
        return self


@dataclass(frozen=True, eq=False)
class WarmStart:
    """What an E-step starts from: the samples and mode of an earlier one, its prior, and what it measured of steps.

    >>> from matheron.linear import Descent, DiagonalPrior, GaussianCurvature, StoredData, sample_then_optimize
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.eye(4)), GaussianCurvature(1.0, size=4), torch.ones(4))
    >>> prior, tight = DiagonalPrior(1.0, num_weights=4), Descent(tolerance=1e-4)
    >>> first = sample_then_optimize(data, prior, 2, settings=tight, generator=0)
    >>> again = sample_then_optimize(data, prior, 2, settings=tight, warm=WarmStart.of(first), generator=0)
    >>> again.epochs < first.epochs
    True
    """

    samples: Float[Tensor, "s d"]
    mode: Float[Tensor, " d"] | None
    prior: Prior
    steepness: Float[Tensor, "t 2"] | None = None
    dual: Float[Tensor, "k m"] | None = None
    sketch: Float[Tensor, "d r"] | None = None

    @classmethod
    def of(cls, found: Samples) -> WarmStart:
        """From its result."""
        return cls(found.samples, found.mode, found.prior, found.steepness, found.dual, found.sketch)


Warm = Samples | WarmStart
"""Where to start from: a result, or what is kept of it."""


def units(prior: Prior, regularizers: Regularizers, mode: bool) -> Float[Tensor, " k"]:
    """``‖ΦᵀBε‖_A⁻¹`` of every sample and, for the mode, ``‖Φᵀ∂ℓ(0)‖_A⁻¹``: what the data pull with at zero weights."""
    pulls = regularizers.pull
    if mode:
        if regularizers.slope is None:
            raise ValueError("regularizers has no slope for the mode; draw them with mode=True")
        pulls = torch.cat([pulls, regularizers.slope[None]])
    size = (pulls * prior.covariance(pulls.mT).mT).sum(1).sqrt()
    return torch.where(size > 0, size, 1.0)


@torch.no_grad()
def measure(
    data: Data,
    prior: Prior,
    regularizers: Regularizers,
    samples: Float[Tensor, "s d"],
    mode: Float[Tensor, " d"] | None,
    generator: torch.Generator,
) -> Measurement:
    """Gradients, fits and loss by one pass of products with ``Φ`` and ``Φᵀ``."""
    num = len(samples)
    weights = samples if mode is None else torch.cat([samples, mode[None]])
    total = torch.zeros_like(weights)
    fits = torch.zeros(num, dtype=torch.float64, device=data.device)
    losses = torch.zeros(2, dtype=torch.float64, device=data.device)
    batch_squares, pairs = 0.0, 0.0
    for batch in data.batches(generator):
        F = batch.features @ weights.mT
        slopes = batch.curvature @ F[:, :num]
        fits += (F[:, :num] * slopes).sum(0)
        if mode is not None:
            losses += losses_beside_zero(batch, F[:, num:])
            slopes = torch.cat([slopes, batch.loss_gradient(F[:, num:])], dim=1)
        gradient = (batch.features.T @ slopes).mT
        total += gradient
        part = gradient[:num]
        batch_squares += float((part * prior.covariance(part.mT).mT).sum()) / num
        pairs += batch.curvature.num_data * (batch.curvature.num_data - 1)
    # Two data share a batch with this probability, which tells sums over data from sums over batches.
    together = pairs / max(data.num_data * (data.num_data - 1), 1)
    margin = _margin(prior, regularizers.pull, total[:num], batch_squares, together)
    whole = total + prior.precision(weights.mT).mT
    whole[:num] -= prior.precision(regularizers.center(prior).mT).mT
    size = (whole * prior.covariance(whole.mT).mT).sum(1).clamp(min=0.0).sqrt()
    forms = prior.group_sums((weights * prior.precision(weights.mT).mT).mT)
    pulled = (regularizers.start(prior) - samples).mT
    return Measurement(
        residual=size / units(prior, regularizers, mode is not None),
        fits=fits.cpu(),
        curvature_forms=prior.group_sums((samples * total[:num]).mT),
        pulled_forms=prior.group_sums(pulled * prior.precision(pulled)),
        prior_forms=forms[:, :num],
        mode_forms=None if mode is None else forms[:, num],
        loss=None if mode is None else float(losses[0]),
        loss_at_zero=None if mode is None else float(losses[1]),
        margin=margin,
    )


def losses_beside_zero(batch: Batch, F: Float[Tensor, "m 1"]) -> Float[Tensor, " 2"]:
    """``ℓ(F)``, and ``ℓ(0)``: all that there is to explain."""
    return batch.loss(torch.cat([F, torch.zeros_like(F)], dim=1))


def _margin(
    prior: Prior, pull: Tensor, gradient: Float[Tensor, "s d"], batch_squares: float, together: float
) -> float | None:
    """``tr M − 2 Σ_j E‖M_jζ‖²``, with the sum over data ``j`` from that over batches and its cross terms."""
    if together > 0.999:
        return None
    num = len(gradient)
    whole = float((gradient * prior.covariance(gradient.mT).mT).sum()) / num
    by_datum = (batch_squares - together * whole) / (1.0 - together)
    return float((pull * prior.covariance(pull.mT).mT).sum()) / len(pull) - 2.0 * by_datum
