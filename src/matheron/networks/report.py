"""What a fit did."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from matheron.linear import Fit

MUCH = 1.0
"""An offset larger than the outputs is more than what remains to be explained."""

LITTLE = 1e-3
"""Of the curvature at outputs of zero, below which a network is certain of its data."""


@dataclass(frozen=True)
class LaplaceReport:
    """What was solved, how well, at what cost; ``epochs`` are passes over the data, by ``J`` and back by ``Jᵀ``.

    >>> import torch
    >>> import matheron as mt
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> y = x + 0.1 * torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    >>> model = torch.nn.Linear(1, 1).eval()
    >>> report = mt.LinearizedLaplace(model, "regression").fit((x, y), em_steps=20, generator=3).report
    >>> report.converged, report.seed
    (True, 3)
    """

    method: str
    converged: bool
    residual: float
    epochs: float
    seconds: float
    em_converged: bool | None
    floored: int
    """Entries of the g-prior's scale that were raised, as the data say next to nothing of them."""
    offset_share: float
    """``‖g − Jṽ‖ / ‖g‖`` on the first batch: how far the tangent model without weights is from zero."""
    seed: int | None = None
    """Repeats the draws, where it was recorded."""

    @classmethod
    def of(cls, fit: Fit, *, method: str, floored: int, offset_share: float, seed: int | None = None) -> LaplaceReport:
        """Of a fit, with what it does not know itself."""
        return cls(
            method=method,
            converged=fit.final.converged,
            residual=float(fit.final.residual.max()),
            epochs=fit.epochs,
            seconds=fit.seconds,
            em_converged=fit.em_converged,
            floored=floored,
            offset_share=offset_share,
            seed=seed,
        )


def warn_of_offset(share: float) -> None:
    """Say that the weights of the tangent model mostly make up for its offset."""
    warnings.warn(
        f"the tangent model's offset g − Jṽ is {share:.2g} times as large as the network's outputs, as is usual with "
        "several layers or batch norm; its weights must make up for it, so that the learnt prior and the error bars "
        "tend to be too wide; where the last layer is dense, offset='simple' is as a rule better calibrated",
        UserWarning,
        stacklevel=3,
    )


def warn_of_certainty(share: float, dimension: float) -> None:
    """Say that the curvature at the network's own predictions says next to nothing."""
    warnings.warn(
        f"the network is certain of its training data: their curvature is {share:.1g} of that at outputs of zero, all "
        f"of them have an effective dimension of {dimension:.2g} only, and under the prior learnt from that class "
        "probabilities tend to be uniform; curvature='tangent' takes it at the tangent model's own optimum",
        UserWarning,
        stacklevel=3,
    )
