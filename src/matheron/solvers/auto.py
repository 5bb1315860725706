"""A solver that picks a solver, and says which and why."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from matheron.arguments import require_between
from matheron.operators import Dense, KernelOperator, Operator
from matheron.operators.memory import free_memory, gibibytes
from matheron.solvers.cg import CG
from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.cholesky import Cholesky
from matheron.solvers.iteration import IterativeSolver, Monitor
from matheron.solvers.preconditioners import NystromBlocks
from matheron.solvers.result import ConvergenceWarning, Result
from matheron.solvers.sketch_and_project import SketchAndProject
from matheron.solvers.system import System

EXACT_ROWS = 5_000
"""Up to here a factorization takes about a second, less than the sweeps it would replace."""

PATIENCE = 12
"""Iterations without a smaller residual after which conjugate gradients are given up."""

ENDED = "end of the first attempt"
"""A note in the checkpoint of the second."""

FEW = 2.0
"""Epochs too few for another attempt."""

LEAST_RANK = 1000
"""Where a preconditioner of the usual rank would not fit, one of this rank is better than none."""

PRECONDITIONER = 0.4
"""The share of free memory a preconditioner may take, what is needed while it is built included."""


@dataclass(frozen=True)
class Auto:
    """The quickest solver for the size, the noise and the memory at hand; ``result.solver`` says which and why.

    Exact to ``EXACT_ROWS`` rows. Beyond, conjugate gradients with :class:`NystromBlocks`, which reached a residual of
    0.01 in the fewest epochs on all sets and noises of the experiment ``solvers-uci`` but one; sketch-and-project where
    it stalls, as on that one, or its blocks would not fit; conjugate gradients alone without cheap rows or noise.

    >>> import torch
    >>> import matheron as mt
    >>> system = mt.operators.Dense(torch.eye(3)) + mt.operators.Diagonal(1.0)
    >>> Auto().solve(system, torch.ones(3)).solver
    'Cholesky(tolerance=0.01, jitter=1e-10), chosen by Auto: 3 rows are few enough to solve exactly'
    """

    epochs: float = 60.0
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        require_between("epochs", self.epochs, 0.0, 1e9)
        require_between("tolerance", self.tolerance, 0.0, 1.0)

    def choose(self, system: Operator) -> tuple[Cholesky | IterativeSolver, str]:
        """The solver, and the reason."""
        parts = System(system)
        fits = 8 * parts.n**2 <= 0.5 * free_memory(parts.device)
        if parts.n <= EXACT_ROWS and fits:
            return Cholesky(tolerance=self.tolerance), f"{parts.n} rows are few enough to solve exactly"
        if not isinstance(parts.kernel, KernelOperator | Dense):
            return CG(self.epochs, self.tolerance), f"{parts.kernel!r} offers whole products only"
        if not bool((parts.noise > 0).all()):
            return CG(self.epochs, self.tolerance), "the system has no noise to precondition with"
        free = free_memory(parts.device)
        for preconditioner in (NystromBlocks(), NystromBlocks(rank=LEAST_RANK)):
            needed = 2 * preconditioner.bytes(parts.n)
            if needed <= PRECONDITIONER * free:
                return (
                    CG(self.epochs, self.tolerance, preconditioner, patience=PATIENCE),
                    f"{parts.n} rows, with {gibibytes(needed)} for a preconditioner that takes few epochs",
                )
        return (
            SketchAndProject(self.epochs, self.tolerance),
            f"{parts.n} rows, too many for a preconditioner of {gibibytes(needed)} in {gibibytes(free)}",
        )

    def solve(
        self,
        system: Operator,
        Z: Tensor,
        *,
        guess: Tensor | None = None,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
        monitor: Monitor | None = None,
    ) -> Result:
        """Solve ``(K + N) α = Z`` with what :meth:`choose` picks."""
        solver, reason = self.choose(system)
        checkpoint = Checkpoint.of(checkpoint)
        second = None if checkpoint is None else checkpoint.second
        options: dict[str, Any] = {"generator": generator, "progress": progress, "monitor": monitor}
        if not isinstance(solver, CG) or solver.patience is None:
            result = solver.solve(system, Z, guess=guess, checkpoint=checkpoint, **options)
            return replace(result, solver=f"{result.solver}, chosen by Auto: {reason}")
        before: list[dict[str, Any]] = []
        if second is not None and Path(second.path).exists():
            ended = second.recall(ENDED)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = solver.solve(system, Z, guess=guess, checkpoint=checkpoint, **options)
            found = replace(found, solver=f"{found.solver}, chosen by Auto: {reason}")
            if found.converged or self.epochs - found.epochs < FEW:
                return found.warn()
            guess = found.solution if float(found.residual.max()) < 1.0 else None
            before, ended = (
                found.trace,
                {"epochs": found.epochs, "seconds": found.seconds, "event": f"ended {found.solver}"},
            )
        if second is not None:
            second.notes[ENDED] = ended
        left = SketchAndProject(self.epochs - ended["epochs"], self.tolerance)
        result = left.solve(system, Z, guess=guess, checkpoint=second, **options)
        reason = "conjugate gradients stalled, as they do where noise drowns in rounding errors"
        return _joined(before, ended, replace(result, solver=f"{result.solver}, chosen by Auto: {reason}"))


def _joined(before: list[dict[str, Any]], ended: dict[str, Any], second: Result) -> Result:
    """The second answer at the cost of both; ``before`` is the trace of the first, and ``ended`` what it cost."""
    later = [
        record | {"epochs": record["epochs"] + ended["epochs"], "seconds": record["seconds"] + ended["seconds"]}
        for record in second.trace
    ]
    return replace(
        second,
        epochs=ended["epochs"] + second.epochs,
        seconds=ended["seconds"] + second.seconds,
        trace=[*before, (before[-1] if before else {}) | ended, *later],
    )
