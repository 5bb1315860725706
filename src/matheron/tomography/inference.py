"""How the equations of a scan are solved for the weights of a linear image model."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from matheron.linear import (
    Batch,
    Descent,
    DualSolve,
    EStep,
    GaussianCurvature,
    StoredData,
)
from matheron.networks.inference import KEEP, SMALL, AtWeights
from matheron.operators import Dense, Operator
from matheron.operators.memory import free_memory, gibibytes
from matheron.solvers import CG, Cholesky, RandomizedSVD

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
        fits = size <= KEEP * free_memory(features.device)
        if method == "auto":
            small = "exact" if rows <= SMALL and fits else "cg"
            method = "sgd" if descent is not None or rows > LARGE else small
        if method == "exact":
            needed = size + 3 * 8 * rows**2
            if needed > 0.5 * free_memory(features.device):
                raise MemoryError(
                    f"{rows} measurements by {weights} weights take {gibibytes(needed)}; use method='cg' or 'sgd'"
                )
        if method == "exact" or (method == "cg" and fits and not isinstance(features, Dense)):
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


class AtOwnWeights(AtWeights):
    """An E-step whose mode is the network's own weights: they predict ``Φ ṽ``."""

    def predicted(self, batch: Batch) -> Float[Tensor, "m 1"]:
        """``Φ ṽ``, as the targets are without the offset."""
        return batch.features @ self.weights[:, None]
