"""Alternating projections: block coordinate descent with exact blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.solvers.iteration import Iteration, IterativeSolver, Problem
from matheron.solvers.windows import partition

REFRESH = 20
"""Sweeps after which the residual is computed afresh, so that rounding cannot part the two."""


@dataclass(frozen=True)
class AlternatingProjections(IterativeSolver):
    """``α_I ← α_I + (K + N)_II⁻¹ r_I``, ``r = z − (K + N) α``, each time for the block ``I`` of the largest ``‖r_I‖``.

    The error falls with every block in the norm of the system: nothing to tune, nothing to diverge. From a good guess
    it mends most with the fewest epochs, which suits systems that change a little from solve to solve; from zero, or
    far down, accelerated solvers are faster. Rows stay in their order and are cut into blocks of ``block``, whose
    factors take ``8 n · block`` bytes.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 10, 2000)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.Matern32(), X) + mt.operators.Diagonal(0.1)
    >>> AlternatingProjections(block=500).solve(system, X.sin()).converged
    True
    """

    block: int = 1000

    shuffles: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("block", self.block)

    def start(self, problem: Problem) -> Iteration:
        """Factor every block."""
        return _Projections(self, problem)


class _Projections(Iteration):
    state = ("x", "residual", "sweep")

    def __init__(self, solver: AlternatingProjections, problem: Problem) -> None:
        super().__init__(problem)
        # Blocks of equal size: a short last one would hold its rows back.
        count = -(-self.system.n // solver.block)
        self.blocks = partition(self.system.n, -(-self.system.n // count), 0)
        self.x = problem.guess.clone()
        # From zero too: a matrix that can be kept is then filled before a block is read, the same way every time.
        self.residual = self.targets - self.system.product(self.x)
        self.factors = [self.factor(rows) for rows in self.blocks]
        self.sweep = torch.zeros((), dtype=torch.int64)

    def factor(self, rows: slice) -> Float[Tensor, "b b"]:
        """``L Lᵀ = (K + N)_II``; a shift that rounding may ask for only shortens the step."""
        block = self.system.block(rows).to(torch.float64) + self.system.noise[rows].to(torch.float64).diag()
        diagonal = block.diagonal().clone()
        for shift in (0.0, 1e-7, 1e-6, 1e-5):
            block.diagonal().copy_(diagonal + shift * diagonal.mean())
            factor, failed = torch.linalg.cholesky_ex(block)
            if not int(failed):
                return factor
        raise ValueError("a block of the kernel matrix is far from positive definite; check the kernel")

    @property
    def solution(self) -> Float[Tensor, "n s"]:
        """``α``."""
        return self.x

    def advance(self) -> Float[Tensor, " s"]:
        """As many blocks as there are, each time the one with the largest residual."""
        self.sweep = self.sweep + 1
        if int(self.sweep) % REFRESH == 0:
            self.residual = self.targets - self.system.product(self.x)
        for _ in self.blocks:
            squares = torch.stack([self.residual[rows].square().sum() for rows in self.blocks])
            place = int(squares.argmax())
            rows = self.blocks[place]
            delta = torch.cholesky_solve(self.residual[rows].to(torch.float64), self.factors[place])
            delta = delta.to(self.x.dtype)
            self.x[rows] += delta
            self.residual -= self.system.kernel_columns(rows, delta)
            self.residual[rows] -= self.system.noise[rows, None] * delta
        return self.residual.norm(dim=0)
