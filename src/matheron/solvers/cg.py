"""Conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.operators import Operator
from matheron.solvers.iteration import Iteration, IterativeSolver, Problem
from matheron.solvers.preconditioners import Nystrom, Preconditioner

WATCH = 4
"""Iterations between looks at a few rows of the true residual."""

WATCHED = 1024
"""Rows of such a look: less than a tenth of an epoch where rounding matters."""

DRIFT = 0.1
"""The share of the residual by which the recurrence may be off."""


@dataclass(frozen=True)
class CG(IterativeSolver):
    """``(K + N) α = z`` by conjugate directions, all columns at once; one epoch per iteration.

    At low noise residuals rise and fall: the answer is the combination of all iterates that has the smallest, which
    falls throughout. Safe in float32: every ``refresh`` iterations the residual is computed afresh, and every fourth
    some of its rows; where it has drifted from the recurrence, directions start anew from the better of the last
    iterate and the answer. With ``patience`` it ends after so many iterations that brought no column's residual down
    by a hundredth, or when it starts anew and the residual has not halved since the last time. Without a guess and with
    a Nyström preconditioner it sets out from the posterior through the rows of that as inducing points. Thesis,
    section 3.3.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 10, 200)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.RBF(), X) + mt.operators.Diagonal(0.1)
    >>> result = CG(preconditioner=mt.solvers.Nystrom(20)).solve(system, X.sin())
    >>> result.converged, result.epochs < 10
    (True, True)
    """

    epochs: float = 200.0
    preconditioner: Preconditioner | None = None
    refresh: int = 20
    patience: int | None = None

    shuffles: ClassVar[bool] = False
    needs_noise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("refresh", self.refresh)
        if self.patience is not None:
            require_count("patience", self.patience)
        if self.preconditioner is not None and not isinstance(self.preconditioner, Preconditioner):
            raise TypeError(
                "preconditioner must be NystromBlocks, Nystrom, PivotedCholesky or RandomizedSVD, "
                f"got {self.preconditioner!r}"
            )

    def start(self, problem: Problem) -> Iteration:
        """Build the preconditioner."""
        return _Conjugate(self, problem)


class _Conjugate(Iteration):
    state = ("x", "residual", "direction", "energy", "answer", "smoothed", "reached", "count", "idle", "mark")

    def __init__(self, solver: CG, problem: Problem) -> None:
        super().__init__(problem)
        self.refresh, self.patience = solver.refresh, solver.patience
        self.x = problem.guess.clone()
        warm = bool((self.x != 0).any())
        self.residual = self.targets - self.system.product(self.x) if warm else self.targets.clone()
        self.inverse: Operator | None = None
        if warm and bool((self.residual.norm(dim=0) <= solver.tolerance).all()):
            self.known, self.finished = self.residual.norm(dim=0), True
        elif isinstance(solver.preconditioner, Nystrom):
            self.set_out(solver.preconditioner, warm)
        elif solver.preconditioner is not None:
            how = solver.preconditioner
            factor = problem.once("factor", lambda: how.factor(self.system, problem.generator))
            self.inverse = how.invert(factor, self.system)
        self.answer, self.smoothed = self.x.clone(), self.residual.clone()
        self.reached = self.residual.norm(dim=0)
        self.count = torch.zeros((), dtype=torch.int64)
        self.idle = torch.zeros((), dtype=torch.int64)
        self.mark = self.reached.max()
        self.direction = torch.zeros_like(self.x)
        self.energy = torch.ones_like(self.reached)

    def set_out(self, how: Nystrom, warm: bool) -> None:
        """Build the preconditioner and, without a guess, begin at the posterior through its rows as inducing points.

        Directions from there on lower the residual as fast as from zero, and what is missing until then is what
        inducing points miss: a solve that ends early errs towards smooth functions and wide error bars.
        """
        problem, system = self.problem, self.system
        rows = problem.once("landmarks", lambda: how.landmarks(system, problem.generator))
        factor = problem.once("factor", lambda: how.spanned(system, rows))
        self.inverse = how.invert(factor, system)
        if warm:
            return
        weights = how.first_weights(factor, rows, self.inverse, self.targets).to(self.x.dtype)
        x = self.x.index_copy(0, rows, weights)
        residual = self.targets - system.kernel_columns(rows, weights) - system.noise[:, None] * x
        better = residual.norm(dim=0) < self.residual.norm(dim=0)
        self.x, self.residual = torch.where(better, x, self.x), torch.where(better, residual, self.residual)

    @property
    def solution(self) -> Float[Tensor, "n s"]:
        """The combination of iterates with the smallest residual."""
        return self.answer

    def advance(self) -> Float[Tensor, " s"]:
        """One iteration."""
        if int(self.count) % self.refresh == self.refresh - 1 or self.looks_off():
            self.renew()
        preconditioned = self.residual if self.inverse is None else self.inverse.product(self.residual)
        energy = (self.residual * preconditioned).sum(0)
        momentum = torch.where(self.energy > 0, energy / self.energy, 0.0)
        self.direction = preconditioned + momentum * self.direction
        product = self.system.product(self.direction)
        curvature = (self.direction * product).sum(0)
        step = torch.where(curvature > 0, energy / curvature, 0.0)
        self.x = self.x + step * self.direction
        self.residual = self.residual - step * product
        self.energy = energy
        self.count += 1
        found = self.smooth()
        lower = found < 0.99 * self.reached
        self.reached = torch.where(lower, found, self.reached)
        self.idle = torch.where(lower.any().cpu(), 0, self.idle + 1)
        if self.patience is not None and int(self.idle) >= self.patience:
            self.events.append(f"stalled: no smaller residual in {int(self.idle)} iterations")
            self.finished = True
        return found

    def smooth(self) -> Float[Tensor, " s"]:
        """Move the answer towards the iterate, to where the residual between the two is smallest."""
        way = self.residual - self.smoothed
        length = way.square().sum(0)
        sound = length.isfinite() & (length > 0)
        share = -(self.smoothed * way).sum(0) / length
        self.answer = torch.where(sound, torch.lerp(self.answer, self.x, share), self.answer)
        self.smoothed = torch.where(sound, self.smoothed + share * way, self.smoothed)
        return self.smoothed.norm(dim=0)

    def looks_off(self) -> bool:
        """Whether some rows of the true residual are not what the recurrence says, at every ``WATCH``-th iteration."""
        if int(self.count) % WATCH != WATCH - 1 or self.system.n < 2 * WATCHED:
            return False
        implied = self.targets - self.residual
        off, _ = self.system.sampled_residual(self.x, implied, WATCHED, self.problem.generator)
        return bool((off > DRIFT * self.residual.norm(dim=0)).any())

    def renew(self) -> None:
        """Replace the recurrence by the residual itself; start over in columns where the two differ."""
        true = self.targets - self.system.product(self.x)
        drifted = (true - self.residual).norm(dim=0) > DRIFT * true.norm(dim=0)
        self.residual = true
        self.count += 1
        if bool(drifted.any()):
            self.events.append(f"restarted {int(drifted.sum())} columns: rounding had moved the residual")
            self.start_over(drifted)
            found = self.residual.norm(dim=0).max()
            self.finished = self.patience is not None and bool(found > 0.5 * self.mark)
            self.mark = found
        self.smooth()

    def start_over(self, drifted: Bool[Tensor, " s"]) -> None:
        """Anew from the better of the last iterate and the answer, by their true residuals."""
        of_answer = self.targets - self.system.product(self.answer)
        back = drifted & (of_answer.norm(dim=0) < self.residual.norm(dim=0))
        self.x = torch.where(back, self.answer, self.x)
        self.residual = torch.where(back, of_answer, self.residual)
        self.answer = torch.where(drifted, self.x, self.answer)
        self.smoothed = torch.where(drifted, self.residual, self.smoothed)
        self.direction = torch.where(drifted, 0.0, self.direction)
