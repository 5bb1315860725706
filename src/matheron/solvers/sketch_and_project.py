"""Accelerated sketch-and-project: block coordinate descent with a preconditioner for every block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.solvers.blocks import BlockInverse, nystrom_block
from matheron.solvers.iteration import Iteration, IterativeSolver, Problem
from matheron.solvers.windows import windows


@dataclass(frozen=True)
class SketchAndProject(IterativeSolver):
    """todo"""

    block: int | None = None
    rank: int = 100
    exact: bool = False
    fixed: bool = True
    mu: float = 1.0

    def start(self, problem: Problem) -> Iteration:
        return _Projection(self, problem)


class _Projection(Iteration):
    state = ("w", "v", "z")

    def __init__(self, solver: SketchAndProject, problem: Problem) -> None:
        super().__init__(problem)
        self.solver = solver
        n = self.system.n
        self.size = min(n, solver.block or max(512, n // 100))
        self.unit = float((self.system.kernel.diagonal() + self.system.noise).mean())
        self.noise = self.system.noise / self.unit
        nu = n / self.size
        mu = min(float(self.noise.mean()) * solver.mu, 1 / nu)
        self.beta = 1 - math.sqrt(mu / nu)
        self.gamma = 1 / math.sqrt(mu * nu)
        self.a = 1 / (1 + self.gamma * nu)
        self.damping = 1.0
        self.w = problem.guess * self.unit
        self.v, self.z = self.w.clone(), self.w.clone()
        gen = problem.generator
        self.test = torch.linalg.qr(
            torch.randn(self.size, min(solver.rank, self.size), dtype=torch.float64, generator=gen)
        )[0]
        self.blocks = {}

    def inverse(self, rows: slice) -> BlockInverse:
        key = rows.start
        if key not in self.blocks or not self.solver.fixed:
            A = self.system.block(rows).double() / self.unit
            s2 = self.noise[rows].double()
            if self.solver.exact:
                L = torch.linalg.cholesky(A + torch.diag(s2))
                inv = torch.cholesky_inverse(L).to(self.system.dtype)
                f = lambda g: inv @ g
            else:
                inv = nystrom_block(A, s2, self.test[: A.shape[0]], self.problem.generator)
                f = inv
            self.blocks[key] = f
        return self.blocks[key]

    @property
    def solution(self) -> Float[Tensor, "n s"]:
        return self.w / self.unit

    def advance(self) -> Float[Tensor, " s"]:
        squares = torch.zeros_like(self.targets[0])
        n = self.system.n
        if self.solver.fixed:
            k = math.ceil(n / self.size)
            order = (
                torch.randint(k, (k,), generator=self.problem.generator).tolist()
                if self.solver.fixed == "iid"
                else torch.randperm(k, generator=self.problem.generator).tolist()
            )
            it = [slice(i * self.size, min(n, (i + 1) * self.size)) for i in order]
        else:
            it = windows(n, self.size, self.problem.generator)
        for rows in it:
            gradient = self.system.rows_product(rows, self.z) / self.unit - self.targets[rows]
            squares += gradient.square().sum(0)
            delta = self.inverse(rows)(gradient)
            self.w.copy_(self.z)
            self.w[rows] -= delta
            self.v.mul_(self.beta).add_(self.z, alpha=1 - self.beta)
            self.v[rows] -= self.gamma * delta
            torch.lerp(self.w, self.v, self.a, out=self.z)
        return squares.sqrt()
