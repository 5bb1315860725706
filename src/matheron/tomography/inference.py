"""The posterior of a linear image model: how a scan's equations are solved, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear import (
    Descent,
    DualSolve,
    EStep,
    GaussianCurvature,
    Prior,
    StoredData,
    draw_regularizers,
    learn_prior,
)
from matheron.networks.inference import KEEP, SMALL
from matheron.networks.report import LaplaceReport
from matheron.operators import Dense, Operator
from matheron.operators.memory import free_memory, gibibytes
from matheron.solvers import CG, Cholesky, RandomizedSVD
from matheron.solvers.checkpoint import Checkpoint

METHODS = ("auto", "exact", "cg", "sgd")

LARGE = 50_000
"""Measurements beyond which conjugate gradients may converge slowly (thesis, section 7.3.6)."""

RANK = 400
"""Of the preconditioner (thesis, section 7.3.4)."""

BATCHES = 16
"""Of measurements in one pass of descent."""


@dataclass(frozen=True, eq=False)
class ImageModel:
    """``y − offset = Φ w + ε`` with ``w ~ N(0, A⁻¹)``; ``Φ = T φ`` by its products, or kept in memory."""

    data: StoredData
    step: EStep
    reason: str

    @classmethod
    def of(
        cls,
        features: Operator,
        targets: Float[Tensor, " m"],
        noise_precision: float,
        method: str = "auto",
        descent: Descent | None = None,
    ) -> ImageModel:
        """``"exact"``: ``Φ`` in memory and one factorization; ``"cg"``: preconditioned conjugate gradients over
        measurements; ``"sgd"``: descent over weights; ``"auto"``: by the sizes."""
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        rows, weights = features.shape
        size = rows * weights * features.dtype.itemsize
        if method == "auto":
            if descent is not None or rows > LARGE:
                method = "sgd"
            else:
                method = "exact" if rows <= SMALL and size <= KEEP * free_memory(features.device) else "cg"
        if method == "exact":
            needed = size + 3 * 8 * rows**2
            if needed > 0.5 * free_memory(features.device):
                raise MemoryError(
                    f"{rows} measurements by {weights} weights take {gibibytes(needed)}; use method='cg' or 'sgd'"
                )
            # One pass back for every measurement: as a rule they are fewer than weights.
            features = Dense(features.T.dense().mT.contiguous())
        reason = {
            "exact": "exact, by measurements",
            "cg": "preconditioned conjugate gradients on measurements",
            "sgd": "stochastic gradient descent on weights",
        }[method]
        solver = (
            Cholesky()
            if method == "exact"
            else CG(tolerance=1e-4, preconditioner=RandomizedSVD(min(RANK, -(-rows // 4))))
        )
        step: EStep = (descent or Descent()) if method == "sgd" else DualSolve(solver)
        curvature = GaussianCurvature(noise_precision, size=rows, dtype=features.dtype, device=features.device)
        batch = -(-rows // BATCHES) if method == "sgd" else None
        data = StoredData(features, curvature, targets, batch)
        return cls(data, step, f"{weights} weights and {rows} measurements: {reason}")


@dataclass(frozen=True, eq=False)
class ImageFit:
    """What was learnt: prior, noise, samples of the weights around the mode ``(s, d)``, the mode, and how."""

    prior: Prior
    noise_precision: float
    samples: Float[Tensor, "s d"]
    mode: Float[Tensor, " d"] | None
    effective_dimension: float
    history: list[dict[str, Any]]
    report: LaplaceReport


@torch.no_grad()
def infer(
    model: ImageModel,
    prior: Prior,
    *,
    em_steps: int,
    num_samples: int,
    final_samples: int,
    learn_noise: bool,
    floored: int,
    offset_share: float,
    generator: torch.Generator,
    progress: bool,
    checkpoint: Checkpoint | Path | str | None,
) -> ImageFit:
    """Learn prior and noise in ``em_steps``, then draw ``final_samples`` (thesis, sections 7.3.5 and 7.3.7)."""
    require_count("em_steps", em_steps, least=0)
    require_count("num_samples", num_samples)
    require_count("final_samples", final_samples)
    data: Any = model.data
    history, epochs, seconds, em_converged = [], 0.0, 0.0, None
    if em_steps:
        learned = learn_prior(
            data, prior, em_steps=em_steps, num_samples=num_samples, settings=model.step, learn_noise=learn_noise,
            generator=generator, progress=progress, checkpoint=checkpoint, keep_checkpoint=True,
        )  # fmt: skip
        prior, data, history = learned.prior, learned.data, learned.history
        epochs, seconds, em_converged = learned.epochs, learned.seconds, learned.converged
    drawn = draw_regularizers(data, final_samples, generator, mode=True, keep_noise=model.step.keep_noise)
    found = model.step.posterior(data, prior, drawn, mode=True, generator=generator, progress=progress)
    place = Checkpoint.of(checkpoint)
    if place is not None:
        place.remove()
    report = LaplaceReport(
        method=model.reason,
        converged=found.converged,
        residual=float(found.residual.max()),
        epochs=epochs + drawn.epochs + found.epochs,
        seconds=seconds + found.seconds,
        em_converged=em_converged,
        floored=floored,
        offset_share=offset_share,
    )
    dimension = min(float(found.measured.fits.mean()), float(min(data.num_rows, data.num_weights)))
    return ImageFit(
        prior, data.noise_precision, found.samples, found.mode, dimension, history, report,
    )  # fmt: skip
