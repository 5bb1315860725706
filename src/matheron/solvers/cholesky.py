"""The exact reference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.operators import Operator
from matheron.operators.memory import SAFE, free_memory, gibibytes
from matheron.seeds import own_source
from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.iteration import Monitor, require_targets
from matheron.solvers.result import Result
from matheron.solvers.system import System


@dataclass(frozen=True)
class Cholesky:
    """``α = L⁻ᵀ L⁻¹ z`` with ``L Lᵀ = K + N`` in float64; refuses when ``n²`` numbers do not fit.

    ``guess``, ``progress`` and ``checkpoint`` are accepted like everywhere and not needed. Should the factorization
    fail, ``jitter`` times the mean diagonal is added once and recorded in the trace.

    >>> import torch
    >>> import matheron as mt
    >>> system = mt.operators.Dense(torch.ones(2, 2)) + mt.operators.Diagonal(1.0)
    >>> Cholesky().solve(system, torch.tensor([1.0, 0.0])).solution
    tensor([ 0.6667, -0.3333])
    """

    tolerance: float = 0.01
    jitter: float = 1e-10

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
        """Solve ``(K + N) α = Z`` for all columns of ``Z`` at once, ``(n,)`` or ``(n, s)``."""
        parts = System(system)
        targets = require_targets("Z", Z, parts)
        began = time.perf_counter()
        with torch.no_grad():
            factor, events = self._factor(parts)
            solution = substitute(factor, targets.to(torch.float64)).to(parts.dtype)
            scale = targets.norm(dim=0)
            source = own_source(generator)
            residual, rows = parts.residual(solution, targets, source)
        record = {"epochs": parts.epochs, "seconds": time.perf_counter() - began, **events}
        return Result(
            solution=solution.reshape(Z.shape),
            residual=residual / torch.where(scale > 0, scale, 1.0),
            residual_rows=rows,
            tolerance=self.tolerance,
            epochs=parts.epochs,
            seconds=time.perf_counter() - began,
            solver=repr(self),
            trace=[record | ({} if monitor is None else dict(monitor(solution.reshape(Z.shape))))],
            exact=True,
        ).warn()

    def factor(self, system: Operator) -> Float[Tensor, "n n"]:
        """``L`` with ``L Lᵀ = K + N``, lower triangular, in float64."""
        with torch.no_grad():
            return self._factor(System(system))[0]

    def _factor(self, system: System) -> tuple[Float[Tensor, "n n"], dict[str, str]]:
        needed, free = 8 * system.n**2, free_memory(system.device)
        if needed > SAFE * free:
            raise MemoryError(
                f"Cholesky of {system.n} rows needs {gibibytes(needed)} in float64 and {gibibytes(free)} are free; "
                "use CG, SDD or SketchAndProject"
            )
        factor, failed = factor_in_place(_assemble(system, 0.0))
        if not failed:
            return factor, {}
        shift = self.jitter * system.kernel.diagonal().mean().item()
        del factor
        factor, failed = factor_in_place(_assemble(system, shift))
        if failed:
            raise ValueError(
                f"the system is not positive definite at row {failed}, also with {shift:.2g} added to its diagonal; "
                "raise the noise"
            )
        return factor, {"event": f"added {shift:.2g} to the diagonal"}


def _assemble(system: System, shift: float) -> Float[Tensor, "n n"]:
    """``K + N`` in float64."""
    system.entries += system.n**2
    matrix = system.kernel.upper()
    matrix.diagonal().add_(system.noise.to(torch.float64) + shift)
    return matrix


def factor_in_place(matrix: Float[Tensor, "n n"]) -> tuple[Float[Tensor, "n n"], int]:
    """Over the matrix itself, of which the upper triangle is read.

    LAPACK's order of columns is that of the transpose, which here is the same matrix.
    """
    factor = matrix.mT
    info = torch.empty((), dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(factor, out=(factor, info))
    return factor, int(info)


def substitute(factor: Float[Tensor, "n n"], Z: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
    """``L⁻ᵀ L⁻¹ Z``, without the copy of ``L`` that ``torch.cholesky_solve`` makes."""
    return torch.linalg.solve_triangular(factor.mT, torch.linalg.solve_triangular(factor, Z, upper=False), upper=True)
