"""How the posterior of a tangent model is found: exactly, through rows, or by descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear import (
    Batch,
    Data,
    DenseSolve,
    Descent,
    DualSolve,
    EStep,
    PrimalSolve,
    Prior,
    Regularizers,
    Samples,
    Warm,
)
from matheron.linear.samples import losses_beside_zero
from matheron.networks.data import KeptData, NetworkData
from matheron.operators.memory import free_memory, gibibytes
from matheron.solvers import Cholesky

METHODS = ("auto", "exact", "cg", "sgd")

SMALL = 3_000
"""The side of a matrix that is factorized without a thought."""

WORK = 2e10
"""Multiplications for one assembly of a matrix beyond which conjugate gradients are the quicker exact answer."""

KEEP = 0.5
"""The share of free memory a Jacobian may take to be kept: a cache, not a requirement. Solving takes a quarter more."""

EXACT = 0.5
"""The share of it that all of an exact solve may take."""

WIDE = torch.float64
"""What is factorized: a wide prior has condition numbers beyond those of float32."""


@dataclass(frozen=True)
class Choice:
    """An E-step, whether ``Φ`` is kept in memory for it, why, and in which precision, if not that of the network."""

    step: EStep
    keep: bool
    reason: str
    dtype: torch.dtype | None = None


def require_method(method: str, descent: Descent | None) -> None:
    """Refuse what is no method, and settings of another one, before any pass over the data."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if descent is not None and not isinstance(descent, Descent):
        raise TypeError(f"descent must be a matheron.linear.Descent, got {type(descent).__name__}")
    if descent is not None and method not in ("auto", "sgd"):
        raise ValueError(f"descent is for method='sgd', and this is {method!r}; leave one of them out")


def choose(method: str, data: NetworkData, descent: Descent | None) -> Choice:
    """The E-step of a method by name; ``"auto"`` goes by the sizes."""
    rows, weights = data.num_rows, data.num_weights
    size = rows * weights * data.dtype.itemsize
    fits = size <= KEEP * free_memory(data.device)
    # By outputs rows are held a second time, as the prior weighs them; then a matrix, and what factorizes it.
    needed = (1 if weights <= rows else 2) * WIDE.itemsize * rows * weights + 3 * WIDE.itemsize * min(
        rows, weights
    ) ** 2
    require_method(method, descent)
    if method == "auto":
        side = min(rows, weights)
        quick = side <= SMALL and rows * weights * side <= WORK and needed <= EXACT * free_memory(data.device)
        name = "exact" if quick else "cg"
        chosen = choose(name if fits and descent is None else "sgd", data, descent)
        return replace(chosen, reason=f"{weights} weights and {rows} outputs: {chosen.reason}")
    if method == "exact":
        if needed > EXACT * free_memory(data.device):
            raise MemoryError(
                f"an exact solve of {rows} outputs by {weights} weights takes {gibibytes(needed)}; use method='sgd'"
            )
        if weights <= rows:
            return Choice(DenseSolve(), True, "exact, by weights", WIDE)
        return Choice(DualSolve(Cholesky()), True, "exact, by outputs", WIDE)
    if method == "cg":
        # On outputs a step costs the same, and has no sketch to start from: three times slower where these are fewer.
        return Choice(PrimalSolve(), fits, "conjugate gradients on weights")
    return Choice(descent or Descent(), fits, "stochastic gradient descent on weights")


@dataclass(frozen=True, eq=False)
class AtWeights:
    """An E-step whose mode is the network's own weights ``ṽ``: the classical evidence, for comparison (thesis §5.2).

    ``ṽ`` is no optimum of the tangent model's loss, so that the precision learnt from ``‖ṽ‖²`` is as a rule too small.
    """

    step: EStep
    weights: Float[Tensor, " d"]

    @property
    def keep_noise(self) -> bool:
        """As the step itself."""
        return self.step.keep_noise

    def posterior(
        self,
        data: Data,
        prior: Prior,
        regularizers: Regularizers,
        *,
        mode: bool = True,
        warm: Warm | None = None,
        generator: torch.Generator,
        progress: bool = False,
    ) -> Samples:
        """Samples of the step; the mode is not solved for."""
        options: dict[str, Any] = {"generator": generator, "progress": progress}
        found = self.step.posterior(data, prior, regularizers, mode=False, warm=warm, **options)
        if not mode:
            return found
        column = self.weights[:, None]
        forms = prior.group_sums(column * prior.precision(column))[:, 0]
        losses = torch.zeros(2, dtype=torch.float64, device=data.device)
        for batch in data.batches():
            losses += losses_beside_zero(batch, self.predicted(batch))
        # A residual of the mode would be that of a point which was not sought.
        measured = replace(found.measured, mode_forms=forms, loss=float(losses[0]), loss_at_zero=float(losses[1]))
        return replace(found, mode=self.weights, measured=measured)

    def predicted(self, batch: Batch) -> Float[Tensor, "m 1"]:
        """What the network puts out, as weights of the tangent model would have to predict it."""
        features: Any = batch.features
        return features.outputs.reshape(-1, 1) - features.offset[:, None]


def kept(data: NetworkData, choice: Choice) -> NetworkData | KeptData:
    """The data as the step wants them: with ``Φ`` in memory, or at least in one order where it goes by their place."""
    if choice.keep:
        return data.kept(choice.dtype)
    if isinstance(choice.step, DualSolve) or (isinstance(choice.step, PrimalSolve) and not data.quadratic):
        data.require_order()
    return data
