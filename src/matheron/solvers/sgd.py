"""Stochastic gradient descent on the primal objective."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.operators import Operator
from matheron.operators.layout import multiply
from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.descent import Descent
from matheron.solvers.iteration import Iteration, IterativeSolver, Monitor, Problem, require_targets
from matheron.solvers.result import Result
from matheron.solvers.system import System
from matheron.solvers.windows import windows


@dataclass(frozen=True)
class SGD(IterativeSolver):
    """``min_α ½‖z − Kα‖² + ½ σ² ‖α‖²_K``: minibatches for the fit, fresh random features for the regularizer.

    The gradient estimate is ``(n/r) K_·I (K_I· α − z_I) + σ² Φ_s Φ_sᵀ α``. With ``noise=ε`` given to :meth:`solve`,
    where ``Z = f + ε`` and ``ε ~ N(0, N)``, the low-variance form: ``ε`` leaves the targets and enters the regularizer,
    ``σ² Φ_s Φ_sᵀ (α − N⁻¹ε)``. The step is ``step / λ``, with ``λ`` the largest eigenvalue of ``(n/r) K_·I K_I·``
    measured on a few batches; one step costs twice the entries of a step of SDD. Thesis, sections 4.2.1 and 4.2.2.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 5, 100)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.RBF(torch.ones(1)), X) + mt.operators.Diagonal(1.0)
    >>> g = torch.Generator().manual_seed(0)
    >>> result = SGD(epochs=400, batch=32, tolerance=0.2).solve(system, X.sin(), generator=g)
    >>> result.converged
    True
    """

    batch: int = 512
    features: int = 100
    momentum: float = 0.9
    step: float = 0.5
    averaging: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("batch", self.batch)
        require_count("features", self.features)
        require_between("momentum", self.momentum, -1e-9, 0.9999)
        require_between("step", self.step, 0.0, 2.0)
        require_between("averaging", self.averaging, 0.0, 1e9)

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
        noise: Tensor | None = None,
    ) -> Result:
        """Solve ``(K + N) α = Z``; ``noise`` is the part of ``Z`` drawn from ``N(0, N)``, shaped like ``Z``."""
        extra = {} if noise is None else {"noise": require_targets("noise", noise, System(system))}
        return self._solve(system, Z, guess, generator, progress, checkpoint, monitor, extra)

    def start(self, problem: Problem) -> Iteration:
        """Measure the step."""
        return _PrimalDescent(self, problem)


class _PrimalDescent(Descent):
    def __init__(self, solver: SGD, problem: Problem) -> None:
        self.operator = problem.system.kernel_operator("SGD")
        self.batch, self.num_features = min(solver.batch, problem.system.n), solver.features
        curvature = problem.once("curvature", lambda: _curvature(problem, self.batch))
        steps = problem.epochs * problem.system.n / (2 * self.batch)
        super().__init__(problem, solver.step / curvature, solver.momentum, solver.averaging / steps)
        noise = problem.extra.get("noise", torch.zeros_like(self.targets))
        self.fit_targets, self.center = self.targets - noise, noise / self.system.noise[:, None]

    def advance(self) -> Float[Tensor, " s"]:
        """One sweep of minibatches; each costs its rows twice."""
        start = self.alpha.clone(), self.average.clone()
        squares = torch.zeros_like(self.targets[0])
        for rows in windows(self.system.n, self.batch, self.problem.generator):
            lookahead = self.lookahead()
            error = self.system.kernel_rows(rows, lookahead) - self.fit_targets[rows]
            if self.blown_up(error):
                return self.restart()
            gradient = self.system.kernel_columns(rows, error) * (self.system.n / len(error))
            gradient += self.regularizer(lookahead - self.center)
            self.velocity = self.momentum * self.velocity - self.step * gradient
            self.move()
            dual = error + self.system.noise[rows, None] * (lookahead - self.center)[rows]
            squares += dual.square().sum(0)
        return self.remember(start, squares)

    def regularizer(self, alpha: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
        """``σ² Φ_s Φ_sᵀ α`` with features drawn anew: unbiased for ``σ² K α``."""
        X = self.operator.X
        features = self.operator.kernel.features(
            self.num_features, dimension=X.shape[1], generator=self.problem.generator
        )(X)
        return multiply(features, multiply(features.mT, self.system.noise[:, None] * alpha))


def _curvature(problem: Problem, batch: int) -> Float[Tensor, ""]:
    """``λ_max((n/r) K_·I K_I·)`` over three random windows, by power iteration on their rows."""
    system = problem.system
    largest = torch.zeros((), dtype=system.dtype, device=system.device)
    for _ in range(3):
        start = int(torch.randint(system.n - batch + 1, (), generator=problem.generator))
        rows = slice(start, start + batch)
        vector = torch.ones(batch, 1, dtype=system.dtype, device=system.device)
        for _ in range(4):
            vector = system.kernel_rows(rows, system.kernel_columns(rows, vector / vector.norm()))
        largest = torch.maximum(largest, vector.norm() * (system.n / batch))
    return largest
