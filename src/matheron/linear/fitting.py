"""A posterior from end to end: the prior learnt from a few samples, then the samples that are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear.data import Data
from matheron.linear.mackay import EStep, Estimator, learn_prior
from matheron.linear.prior import Prior
from matheron.linear.regularizers import draw_regularizers
from matheron.linear.samples import Samples
from matheron.solvers.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class Fit:
    """The learnt prior, the data with their learnt noise, the final samples, and what all of it took.

    ``mode`` is that of the last E-step, or of the final solve where it was asked for one.

    >>> import torch
    >>> from matheron.linear import DenseSolve, DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> found = fit_posterior(
    ...     data, DiagonalPrior(1.0, num_weights=1), DenseSolve(), em_steps=3, num_samples=64, final_samples=64,
    ...     generator=torch.Generator().manual_seed(0),
    ... )  # fmt: skip
    >>> len(found.history), bool(found.effective_dimension < 1.5), found.final.samples.shape
    (3, True, torch.Size([64, 1]))
    """

    prior: Prior
    data: Data
    final: Samples
    mode: Float[Tensor, " d"] | None
    history: list[dict[str, Any]] = field(repr=False)
    em_converged: bool | None
    epochs: float
    seconds: float

    @property
    def effective_dimension(self) -> float:
        """``γ`` from the final samples, at most what data and weights allow."""
        most = min(self.data.num_rows, self.data.num_weights)
        return min(float(self.final.measured.fits.mean()), float(most))


@torch.no_grad()
def fit_posterior(
    data: Data,
    prior: Prior,
    step: EStep,
    *,
    em_steps: int,
    num_samples: int,
    final_samples: int,
    learning: EStep | None = None,
    learn_noise: bool = False,
    estimator: Estimator = "function",
    mode: bool = False,
    generator: torch.Generator,
    progress: bool = False,
    checkpoint: Checkpoint | Path | str | None = None,
) -> Fit:
    """``A`` by MacKay's update in ``em_steps``, then ``ζ ~ N(0, H⁻¹)`` at the learnt ``A``; ``em_steps=0`` keeps ``A``.

    ``learning`` is the E-step of the update where it is not that of the final samples; ``mode`` asks for the mode
    under the final prior. The checkpoint is that of :func:`~matheron.linear.learn_prior`, removed at the end.

    >>> import torch
    >>> from matheron.linear import DenseSolve, DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> prior, options = DiagonalPrior(1.0, num_weights=1), {"em_steps": 0, "num_samples": 2, "final_samples": 3}
    >>> fit_posterior(data, prior, DenseSolve(), mode=True, generator=g, **options).mode
    tensor([4.])
    """
    require_counts(em_steps, num_samples, final_samples)
    history, found_mode, em_converged, epochs, seconds = [], None, None, 0.0, 0.0
    if em_steps:
        learned = learn_prior(
            data, prior, em_steps=em_steps, num_samples=num_samples, settings=learning or step,
            learn_noise=learn_noise, estimator=estimator, generator=generator, progress=progress, checkpoint=checkpoint,
            keep_checkpoint=True,
        )  # fmt: skip
        prior, data, history, found_mode = learned.prior, learned.data, learned.history, learned.samples.mode
        em_converged, epochs, seconds = learned.converged, learned.epochs, learned.seconds
    final = data if mode else data.without_mode()
    drawn = draw_regularizers(final, final_samples, generator, mode=mode, keep_noise=step.keep_noise)
    found = step.posterior(final, prior, drawn, mode=mode, generator=generator, progress=progress)
    place = Checkpoint.of(checkpoint)
    if place is not None:
        place.remove()
    return Fit(
        prior=prior,
        data=data,
        final=found,
        mode=found.mode if mode else found_mode,
        history=history,
        em_converged=em_converged,
        epochs=epochs + drawn.epochs + found.epochs,
        seconds=seconds + found.seconds,
    )


def require_counts(em_steps: int, num_samples: int, final_samples: int) -> None:
    """Refuse what no fit can do, before any pass over the data."""
    require_count("em_steps", em_steps, least=0)
    require_count("num_samples", num_samples)
    require_count("final_samples", final_samples)
