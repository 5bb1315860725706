"""Posterior samples and the mode through the weights by conjugate gradients: for fewer of them than rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.linear.curvature import Curvature
from matheron.linear.data import Data
from matheron.linear.newton import newton
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers, regularizers_of
from matheron.linear.samples import Samples, Warm, measure, units
from matheron.linear.starting import set_out
from matheron.operators import Diagonal, Operator
from matheron.operators.memory import free_memory
from matheron.seeds import own_source
from matheron.solvers import CG, ConvergenceWarning, Factored, Sketch
from matheron.solvers.system import System

KEEP = 0.1
"""The share of free memory that a preconditioner may take."""


class WeightKernel(Operator):
    """``RΦᵀBΦR`` with ``RR = A⁻¹``: the curvature of the data where the prior is white; ``R`` is a symmetric root.

    ``B`` comes from ``curvatures``, one per batch, or from the batches themselves. ``columns`` counts the columns that
    were multiplied, each a pass forward and one back.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(3, 2)), GaussianCurvature(4.0, size=3))
    >>> WeightKernel(data, DiagonalPrior(1.0, num_weights=2)).dense()[0]
    tensor([12., 12.])
    """

    def __init__(self, data: Data, prior: Prior, curvatures: Sequence[Curvature] | None = None) -> None:
        self.data, self.prior, self.curvatures, self.columns = data, prior, curvatures, 0
        super().__init__((data.num_weights,) * 2, data.dtype, data.device)

    def product(self, V: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """One pass over the data."""
        W = self.prior.root(V)
        total = torch.zeros(V.shape[1], self.shape[0], dtype=self.dtype, device=self.device)
        for place, batch in enumerate(self.data.batches()):
            F = batch.features @ W
            B = batch.curvature if self.curvatures is None else self.curvatures[place]
            total += (batch.features.T @ (B @ F)).mT
        self.columns += V.shape[1]
        return self.prior.root(total.mT)

    def transpose(self) -> Operator:
        """Itself."""
        return self


@dataclass(frozen=True)
class PrimalSolve:
    """The E-step through weights: conjugate gradients for every linear system, Newton's steps for a loss that is not
    quadratic.

    The preconditioner is a sketch of the curvature by ``rank`` columns, made once and carried from one E-step to the
    next: where ``rank`` columns do not fit beside the samples, as many as do. Newton's steps end within
    ``newton_tolerance`` posterior standard deviations of the mode.

    >>> PrimalSolve().rank
    100
    """

    tolerance: float = 0.01
    epochs: float = 100.0
    rank: int = 100
    newton_steps: int = 20
    newton_tolerance: float = 0.05

    keep_noise: ClassVar[bool] = False
    """Regularizers need not keep their noise row by row."""

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("epochs", self.epochs, 0.0, 1e9)
        require_count("rank", self.rank, least=0)
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
        """Samples and mode, started from those of ``warm``."""
        return solve_primal(data, prior, regularizers, mode=mode, warm=warm, settings=self, generator=generator)


@torch.no_grad()
def solve_primal(
    data: Data,
    prior: Prior,
    num: int | Regularizers,
    *,
    mode: bool = True,
    warm: Warm | None = None,
    settings: PrimalSolve | None = None,
    generator: torch.Generator | int | None = None,
) -> Samples:
    """``ζ = R (I + RΦᵀBΦR)⁻¹ (u + RΦᵀBε)``, ``RR = A⁻¹``, ``u ~ N(0, I)``, and the mode by Newton's steps.

    From the same regularizers it is the optimum of :func:`~matheron.linear.sample_then_optimize`. Every iteration is a
    pass over all data with all columns at once; memory is ``O(d (s + rank))``.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> solve_primal(data, DiagonalPrior(1.0, num_weights=1), 2, generator=g).mode.round(decimals=4)
    tensor([4.])
    """
    source = own_source(generator)
    drawn = regularizers_of(num, data, prior, source, mode=mode)
    run = _PrimalRun(settings or PrimalSolve(), data, prior, drawn, source)
    found = run.finish(mode, warm, 0.0 if num is drawn else drawn.epochs)
    return found.warn()


def unrooted(prior: Prior, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
    """``R⁻¹ W = R A W``: weights where the prior is white."""
    return prior.root(prior.precision(W))


class _PrimalRun:
    def __init__(
        self, settings: PrimalSolve, data: Data, prior: Prior, regularizers: Regularizers, generator: torch.Generator
    ) -> None:
        self.settings, self.data, self.prior, self.generator = settings, data, prior, generator
        self.regularizers, self.kernel = regularizers, WeightKernel(data, prior)
        self.trace: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.began = time.perf_counter()

    def finish(self, with_mode: bool, warm: Warm | None, epochs: float) -> Samples:
        """Solve for all columns at once, then measure."""
        drawn, joint = self.regularizers, with_mode and self.data.quadratic
        self.sketch = self.sketched(warm)
        columns = (drawn.unit + self.prior.root(drawn.pull.mT).mT).mT
        # Directions that no datum sees are solved by the prior sample.
        guess = drawn.unit.mT
        if warm is not None and len(warm.samples) == len(drawn):
            guess = unrooted(warm.prior, warm.samples.mT)
        if joint:
            assert drawn.slope is not None
            columns = torch.cat([columns, -self.prior.root(drawn.slope[:, None])], dim=1)
            last = None if warm is None or warm.mode is None else warm.mode[:, None]
            start = set_out(self.data, self.prior, self.data.guess)[0] if last is None else last
            guess = torch.cat([guess, unrooted(self.prior, start)], dim=1)
        size = units(self.prior, drawn, joint).to(columns)
        tolerance = self.settings.tolerance * float((size / columns.norm(dim=0).clamp(min=1e-30)).min())
        # Rounding is the floor, and what is measured in the end is the residual in the data's own units.
        tolerance = min(max(tolerance, 4.0 * torch.finfo(columns.dtype).eps), 0.5)
        weights = self.prior.root(self.solve(self.kernel, columns, guess, tolerance)).mT
        samples, mode = weights[: len(drawn)].contiguous(), weights[-1] if joint else None
        if with_mode and not joint:
            mode = self.newton(None if warm is None else warm.mode)
        measured = measure(self.data, self.prior, drawn, samples, mode, self.generator)
        return Samples(
            samples=samples,
            mode=mode,
            measured=measured,
            prior=self.prior,
            tolerance=self.settings.tolerance,
            epochs=epochs + self.kernel.columns / (len(drawn) + with_mode) + 1.0,
            seconds=time.perf_counter() - self.began,
            method=repr(self.settings),
            trace=self.trace,
            events=self.events,
            sketch=self.sketch,
        )

    def solve(
        self, kernel: WeightKernel, columns: Float[Tensor, "d s"], guess: Tensor | None, tolerance: float
    ) -> Float[Tensor, "d s"]:
        """``(I + RΦᵀBΦR)⁻¹`` on columns."""
        known = None if self.sketch is None else Factored(known=self.sketch)
        solver = CG(epochs=self.settings.epochs, tolerance=tolerance, preconditioner=known)
        with warnings.catch_warnings():
            # What counts is measured in the end.
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = solver.solve(kernel + Diagonal(1.0), columns, guess=guess, generator=self.generator)
        record = {"columns": kernel.columns, "residual": float(result.residual.max()), "epochs": result.epochs}
        self.trace.append(record | {"seconds": time.perf_counter() - self.began})
        return result.solution

    def sketched(self, warm: Warm | None) -> Float[Tensor, "d r"] | None:
        """``F Fᵀ ≈ RΦᵀBΦR``: that of an earlier prior in this one's units, or a new one."""
        if warm is not None and warm.sketch is not None:
            return self.prior.root(unrooted(warm.prior, warm.sketch))
        bytes_each = 8 * self.data.num_weights
        rank = min(self.settings.rank, self.data.num_weights, int(KEEP * free_memory(self.data.device) / bytes_each))
        if rank == 0:
            return None
        try:
            found = Sketch(rank).factor(System(self.kernel + Diagonal(1.0)), self.generator)
        except ValueError:
            # Where some prior variances are beyond all measure, rounding leaves no positive definite sketch.
            self.events.append("the sketch of the curvature is lost in rounding; solved without a preconditioner")
            return None
        return found.to(self.data.dtype)

    def newton(self, guess: Tensor | None) -> Float[Tensor, " d"]:
        """Each system to a tenth."""

        def direction(w: Tensor, F: Tensor, slope: Tensor) -> Tensor:
            curvatures = [batch.loss_curvature(F[rows][:, 0]) for rows, batch in self.data.in_order()]
            kernel = WeightKernel(self.data, self.prior, curvatures)
            found = self.prior.root(self.solve(kernel, self.prior.root(slope), None, 0.1))
            self.kernel.columns += kernel.columns + 2
            return found

        steps, tolerance = self.settings.newton_steps, self.settings.newton_tolerance
        minimum = newton(self.data, self.prior, guess, direction, steps=steps, tolerance=tolerance)
        self.trace += minimum.trace
        self.events += minimum.events
        return minimum.weights
