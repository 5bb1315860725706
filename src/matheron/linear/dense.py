"""Posterior samples and the mode through the matrix ``H``: for few weights."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.linear.data import Data
from matheron.linear.newton import newton
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers, regularizers_of
from matheron.linear.samples import Samples, Warm, measure
from matheron.operators.memory import SAFE, free_memory, gibibytes
from matheron.seeds import own_source
from matheron.solvers.cholesky import Cholesky, substitute

JITTER = Cholesky.jitter
"""Of the mean diagonal, where rounding has made ``H`` indefinite."""


@dataclass(frozen=True)
class DenseSolve:
    """The exact E-step: ``H`` in float64, one factorization; Newton's steps for a loss that is not quadratic.

    They end within ``newton_tolerance`` posterior standard deviations of the mode.

    >>> DenseSolve().newton_steps
    30
    """

    tolerance: float = 1e-3
    newton_steps: int = 30
    newton_tolerance: float = 1e-6

    keep_noise: ClassVar[bool] = False
    """Regularizers need not keep their noise row by row."""

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_count("newton_steps", self.newton_steps)
        require_between("newton_tolerance", self.newton_tolerance, 0.0, 1.0)

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
        """Samples and mode; only the mode starts from ``warm``."""
        return solve_dense(data, prior, regularizers, mode=mode, warm=warm, settings=self, generator=generator)


@torch.no_grad()
def solve_dense(
    data: Data,
    prior: Prior,
    num: int | Regularizers,
    *,
    mode: bool = True,
    warm: Warm | None = None,
    settings: DenseSolve | None = None,
    generator: torch.Generator | int | None = None,
) -> Samples:
    """``ζ = H⁻¹ (A w₀ + ΦᵀBε)`` and the mode by Newton's steps; ``8 d²`` bytes, refused where they do not fit.

    From the same regularizers it is the optimum of :func:`~matheron.linear.sample_then_optimize`. Rows of ``Φ`` are
    made explicit a batch at a time, at a pass of ``d`` columns for every assembly of ``H``.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> solve_dense(data, DiagonalPrior(1.0, num_weights=1), 2).mode
    tensor([4.])
    """
    settings = settings or DenseSolve()
    needed, free = 3 * 8 * data.num_weights**2, free_memory(data.device)
    if needed > SAFE * free:
        raise MemoryError(
            f"H of {data.num_weights} weights needs {gibibytes(needed)} and {gibibytes(free)} are free; "
            "use sample_then_optimize or solve_dual"
        )
    began, source = time.perf_counter(), own_source(generator)
    drawn = regularizers_of(num, data, prior, source, mode=mode)
    events: list[str] = []
    factor = positive_factor(hessian(data, prior, None), events)
    pulled = (prior.precision(drawn.center(prior).mT)).double()
    samples = substitute(factor, pulled).mT.to(data.dtype).contiguous()
    passes, found = 1.0, None
    if mode:

        def direction(w: Tensor, F: Tensor, slope: Tensor) -> Tensor:
            here = factor if data.quadratic else positive_factor(hessian(data, prior, w[:, 0]), events)
            return substitute(here, slope.double()).to(w)

        guess, most = None if warm is None else warm.mode, settings.newton_steps
        minimum = newton(data, prior, guess, direction, steps=most, tolerance=settings.newton_tolerance)
        found = minimum.weights
        events += minimum.events
        passes += 0.5 + minimum.steps * (1.0 if data.quadratic else 2.0)
    measured = measure(data, prior, drawn, samples, found, source)
    return Samples(
        samples=samples,
        mode=found,
        measured=measured,
        prior=prior,
        tolerance=settings.tolerance,
        epochs=passes + 1.0 + (0.0 if num is drawn else drawn.epochs),
        seconds=time.perf_counter() - began,
        method=repr(settings),
        trace=[],
        events=events,
    ).warn()


def curvature_matrix(data: Data, mode: Float[Tensor, " d"] | None = None) -> Float[Tensor, "d d"]:
    """``M = ΦᵀBΦ`` in float64, with the ``B`` of the data or, given a mode, that of the loss there.

    Rows of ``Φ`` are explicit a batch at a time.
    """
    M = torch.zeros(data.num_weights, data.num_weights, dtype=torch.float64, device=data.device)
    for batch in data.batches():
        Phi = batch.features.dense()
        B = batch.curvature if mode is None else batch.loss_curvature(Phi @ mode)
        rooted = (B.root.T @ Phi).double()
        M.addmm_(rooted.mT, rooted)
    return M


def positive_factor(H: Float[Tensor, "d d"], events: list[str]) -> Float[Tensor, "d d"]:
    """``L`` with ``L Lᵀ = H``; where rounding hides the prior, a share of the mean diagonal joins it, which is said.

    >>> said = []
    >>> positive_factor(torch.ones(2, 2, dtype=torch.float64), said).shape, said
    (torch.Size([2, 2]), ['added 1e-10 to the diagonal of H'])
    """
    factor, failed = torch.linalg.cholesky_ex(H)
    if not int(failed):
        return factor
    shift = JITTER * float(H.diagonal().mean())
    factor, failed = torch.linalg.cholesky_ex(H + shift * torch.eye(len(H), dtype=H.dtype, device=H.device))
    if int(failed):
        raise ValueError(f"H is not positive definite, also with {shift:.2g} added to its diagonal; raise the noise")
    events.append(f"added {shift:.2g} to the diagonal of H")
    return factor


def hessian(data: Data, prior: Prior, mode: Float[Tensor, " d"] | None) -> Float[Tensor, "d d"]:
    """``H = ΦᵀBΦ + A`` in float64, with the ``B`` of the data or, given a mode, that of the loss there."""
    identity = torch.eye(data.num_weights, dtype=data.dtype, device=data.device)
    return curvature_matrix(data, mode).add_(prior.precision(identity))
