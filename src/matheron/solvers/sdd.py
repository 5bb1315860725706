"""Stochastic dual descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
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
        return _Descent(self, problem)


class _Descent(Iteration):
    state = ("alpha", "velocity", "average", "step", "safe_alpha", "safe_average", "least")

    def __init__(self, solver: SDD, problem: Problem) -> None:
        super().__init__(problem)
        self.batch, self.momentum = min(solver.batch, self.system.n), solver.momentum
        self.chi = min(1.0, solver.averaging * self.batch / (problem.epochs * self.system.n))
        largest = problem.once("largest", lambda: largest_block_eigenvalue(self.system, self.batch, problem.generator))
        self.step = solver.step / largest
        self.alpha = problem.guess.clone()
        self.velocity = torch.zeros_like(self.alpha)
        self.average = self.alpha.clone()
        # Where a restart goes back to: the start of the last sweep could be on its way up already.
        self.safe_alpha, self.safe_average = self.alpha.clone(), self.average.clone()
        self.least = torch.full_like(self.step, torch.inf)

    @property
    def solution(self) -> Float[Tensor, "n s"]:
        """``ᾱ``."""
        return self.average

    def advance(self) -> Float[Tensor, " s"]:
        """One sweep over all coordinates."""
        start = self.alpha.clone(), self.average.clone()
        squares = torch.zeros_like(self.targets[0])
        for rows in windows(self.system.n, self.batch, self.problem.generator):
            lookahead = torch.add(self.alpha, self.velocity, alpha=self.momentum)
            gradient = self.system.rows_product(rows, lookahead) - self.targets[rows]
            if self.blown_up(gradient):
                return self.restart()
            self.velocity *= self.momentum
            self.velocity[rows] -= self.step * gradient
            self.alpha += self.velocity
            self.average.lerp_(self.alpha, self.chi)
            squares += gradient.square().sum(0)
        if squares.max() < self.least:
            self.least = squares.max()
            self.safe_alpha, self.safe_average = start
        return squares.sqrt()

    def restart(self) -> Float[Tensor, " s"]:
        """Back to the start of the best sweep, with half the step."""
        self.alpha, self.average = self.safe_alpha.clone(), self.safe_average.clone()
        self.velocity = torch.zeros_like(self.alpha)
        self.step = self.step / 2.0
        self.events.append(f"diverged: step halved to {float(self.step):.3g}")
        return torch.full_like(self.targets[0], torch.inf)
