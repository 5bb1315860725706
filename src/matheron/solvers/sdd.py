"""Stochastic dual descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.solvers.descent import Descent
from matheron.solvers.iteration import Iteration, IterativeSolver, Problem
from matheron.solvers.spectrum import largest_block_eigenvalue
from matheron.solvers.windows import windows


@dataclass(frozen=True)
class SDD(IterativeSolver):
    """``min_α ½ αᵀ(K + N)α − αᵀz`` by random coordinates, Nesterov momentum and geometric averaging.

    The step per coordinate is ``step / λ`` with ``λ`` the largest eigenvalue of a few random blocks ``K_BB + N_BB``: no
    tuning per data set. Should it diverge all the same, it goes back, halves the step and says so in the trace.
    Thesis, section 4.2.3.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 10, 200)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.RBF(), X) + mt.operators.Diagonal(0.1)
    >>> g = torch.Generator().manual_seed(0)
    >>> SDD(epochs=200, batch=32).solve(system, X.sin(), generator=g).converged
    True
    """

    batch: int = 512
    momentum: float = 0.9
    step: float = 0.9
    averaging: float = 100.0
    """``χ = averaging / steps``: the share of the newest iterate in the average."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("batch", self.batch)
        require_between("momentum", self.momentum, -1e-9, 0.9999)
        require_between("step", self.step, 0.0, 2.0)
        require_between("averaging", self.averaging, 0.0, 1e9)

    def start(self, problem: Problem) -> Iteration:
        """Measure the step."""
        return _DualDescent(self, problem)


class _DualDescent(Descent):
    def __init__(self, solver: SDD, problem: Problem) -> None:
        system, self.batch = problem.system, min(solver.batch, problem.system.n)
        largest = problem.once("largest", lambda: largest_block_eigenvalue(system, self.batch, problem.generator))
        # Momentum carries a coordinate on for 1 / (1 − ρ) steps before it is seen again.
        alone = (system.kernel.diagonal() + system.noise).max() / (1.0 - solver.momentum)
        step = torch.minimum(solver.step / largest, 1.3 / alone)
        super().__init__(problem, step, solver.momentum, solver.averaging * self.batch / (problem.epochs * system.n))

    def advance(self) -> Float[Tensor, " s"]:
        """One sweep over all coordinates."""
        start = self.alpha.clone(), self.average.clone()
        squares = torch.zeros_like(self.targets[0])
        for rows in windows(self.system.n, self.batch, self.problem.generator):
            gradient = self.system.rows_product(rows, self.lookahead()) - self.targets[rows]
            if self.blown_up(gradient):
                return self.restart()
            self.velocity *= self.momentum
            self.velocity[rows] -= self.step * gradient
            self.move()
            squares += gradient.square().sum(0)
        return self.remember(start, squares)
