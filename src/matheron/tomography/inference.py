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
    PrimalSolve,
    StoredData,
)
from matheron.networks.inference import SMALL, WIDE, AtWeights, require_method
from matheron.operators import Dense, Operator
from matheron.operators.memory import free_memory, gibibytes
from matheron.solvers import CG, Cholesky, RandomizedSVD

LARGE = 50_000
"""Measurements beyond which conjugate gradients on them may converge slowly (thesis, section 7.3.6)."""

RANK = 400
"""Of the preconditioner (thesis, section 7.3.4)."""

KEEP = 0.1
"""The share of free memory that the copies of ``Φ`` may take."""

COPIES = 2
"""Of ``Φ`` at a time: it comes out transposed, and is turned."""

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
        *,
        on_measurements: bool = False,
    ) -> ImageModel:
        """``"exact"``: ``Φ`` in memory and one factorization, in float64; ``"cg"``: preconditioned conjugate gradients
        over measurements or, where these are many or more than weights, over weights, unless ``on_measurements``;
        ``"sgd"``: descent over weights; ``"auto"``: by the sizes.

        A step of descent takes a whole pass through the network for a batch of measurements, one of conjugate gradients
        for all of them: in space, too, they are the quicker way over weights.
        """
        require_method(method, descent)
        rows, weights = features.shape
        fits = may_keep(features)
        if method == "auto":
            solved = "exact" if rows <= SMALL and fits else "cg"
            method = solved if descent is None else "sgd"
        if method == "exact":
            entry = max(COPIES * features.dtype.itemsize, features.dtype.itemsize + WIDE.itemsize)
            needed = rows * weights * entry + 3 * WIDE.itemsize * rows**2
            if needed > 0.5 * free_memory(features.device):
                raise MemoryError(
                    f"{rows} measurements by {weights} weights take {gibibytes(needed)}; use method='cg' or 'sgd'"
                )
        if method == "exact" or (method == "cg" and fits and not isinstance(features, Dense)):
            features = stored(features)
        if method == "exact":
            features = Dense(features.dense().to(WIDE))
        by_weights = not on_measurements and (weights < rows or rows > LARGE)
        reason = {
            "exact": "exact, by measurements",
            "cg": f"preconditioned conjugate gradients on {'weights' if by_weights else 'measurements'}",
            "sgd": "stochastic gradient descent on weights",
        }[method]
        step: EStep
        if method == "sgd":
            step = descent or Descent()
        elif method == "exact":
            step = DualSolve(Cholesky())
        elif by_weights:
            step = PrimalSolve()
        else:
            step = DualSolve(CG(tolerance=1e-4, preconditioner=RandomizedSVD(min(RANK, -(-rows // 4)))))
        curvature = GaussianCurvature(noise_precision, size=rows, dtype=features.dtype, device=features.device)
        batch = -(-rows // BATCHES) if method == "sgd" else None
        data = StoredData(features, curvature, targets.to(features.dtype), batch)
        return cls(data, step, f"{weights} weights and {rows} measurements: {reason}")


def stored(features: Operator) -> Dense:
    """``Φ`` in memory, by one pass back for every row: as a rule they are fewer than weights."""
    return Dense(features.T.dense().mT.contiguous())


def may_keep(features: Operator) -> bool:
    """Whether ``Φ`` takes a small share of memory while it is stored."""
    rows, weights = features.shape
    return COPIES * rows * weights * features.dtype.itemsize <= KEEP * free_memory(features.device)


def kept(features: Operator) -> Operator:
    """``Φ`` in memory where that takes a small share of it, for products to come; else as it is."""
    return stored(features) if may_keep(features) else features


class AtOwnWeights(AtWeights):
    """An E-step whose mode is the network's own weights: they predict ``Φ ṽ``."""

    def predicted(self, batch: Batch) -> Float[Tensor, "m 1"]:
        """``Φ ṽ``, as the targets are without the offset."""
        return batch.features @ self.weights[:, None]
