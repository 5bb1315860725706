"""The systems behind a posterior: one solve for the mean and all samples."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.gp.covariance import Factors
from matheron.gp.draws import PriorFunctions
from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.neighbors import neighbors
from matheron.gp.observations import known_noise, require_rows, require_targets
from matheron.gp.paths import Paths, spoken
from matheron.gp.posterior import Posterior
from matheron.gp.report import Report
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel
from matheron.kernels.rows import join_rows, take_rows
from matheron.operators import Diagonal, KernelOperator, Operator
from matheron.seeds import draw_seed, normals
from matheron.solvers import SGD, Auto, Cholesky, Result
from matheron.solvers.iteration import IterativeSolver

Solver = Auto | Cholesky | IterativeSolver | InducingSGD


class Conditioning(nn.Module):
    """``(K + N) [α_y | α_f] = [y − m | f(X) + ε]``: the systems behind a posterior (thesis §4.1).

    Everything is in standard units, and in float64 where it is small enough to be factorized or where rounding to
    float32 would drown the noise, whatever ``dtype`` the data came in and answers go out in. The kernel is a copy, so
    that a posterior stays what it is while the process it came from is fitted to something else.
    """

    X: Float[Tensor, "n d"]
    row_noise: Float[Tensor, " n"]
    targets: Float[Tensor, "n k"]
    center: Float[Tensor, " c"]
    noise: Float[Tensor, ""] | None
    prior: PriorFunctions | None
    bound: float | None = None
    reused: int = 0
    """Functions that learning left behind."""

    has_factors: ClassVar[bool] = False
    """Whether exact covariances are read from factors, whichever solver found the answer."""

    def __init__(
        self,
        kernel: Kernel,
        prior: PriorFunctions | None,
        X: Tensor,
        row_noise: Float[Tensor, " n"],
        targets: Float[Tensor, "n k"],
        center: Float[Tensor, " c"],
        noise: Float[Tensor, ""] | None,
        units: Standardization,
        solver: Solver,
        *,
        single: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.kernel, self.prior, self.units, self.solver, self.single = kernel, prior, units, solver, single
        self.dtype = dtype
        self.register_buffer("X", X)
        self.register_buffer("row_noise", row_noise)
        self.register_buffer("targets", targets)
        self.register_buffer("center", center)
        self.register_buffer("noise", noise)

    @property
    def support(self) -> Tensor:
        """The inputs whose kernel functions make up the answer."""
        return self.X

    @property
    def outputs(self) -> int:
        """``c``."""
        return len(self.center)

    def system(self) -> Operator:
        """``K + N``."""
        return KernelOperator(self.kernel, self.X) + Diagonal(self.row_noise)

    def solve(self, targets: Float[Tensor, "n k"], **options: Any) -> Result:
        """``(K + N)⁻¹`` times the targets."""
        assert not isinstance(self.solver, InducingSGD)
        return self.solver.solve(self.system(), targets, **options)

    def factorizes(self) -> bool:
        """Whether the answer will come from a factorization."""
        solver = self.solver.choose(self.system())[0] if isinstance(self.solver, Auto) else self.solver
        return isinstance(solver, Cholesky)

    def factorize(self) -> Factors:
        """The factor exact covariances are read from."""
        solver = self.solver if isinstance(self.solver, Cholesky) else Cholesky()
        return solver.factor(self.system()), None

    def new_targets(
        self, X: Tensor, residual: Float[Tensor, "r c"], row_noise: Float[Tensor, " r"], generator: torch.Generator
    ) -> Float[Tensor, "r k"]:
        """``[y − m | f(X) + ε]`` for rows yet unseen."""
        if self.prior is None:
            return residual
        noise = row_noise.sqrt()[:, None] * normals((X.shape[0], self.prior.num), X, generator)
        return torch.cat([residual, self.prior(X) + noise], dim=1)

    def posterior(
        self, *, guess: Tensor | None, generator: torch.Generator, seed: int, entries: int = 0, **options: Any
    ) -> Posterior:
        """Solve, and put the posterior together; ``entries`` of the kernel matrix were spent on the guess."""
        if isinstance(self.solver, SGD) and self.prior is not None:
            options["noise"] = self.drawn_noise(self.prior)
        result = self.solve(self.targets, guess=guess, generator=generator, **options)
        result = replace(result, epochs=result.epochs + entries / self.X.shape[0] ** 2)
        c = self.outputs
        mean, samples = result.solution[:, :c].contiguous(), result.solution[:, c:].contiguous()
        paths = Paths(
            self.kernel, self.support, mean, samples, self.prior, self.center, self.units, single=self.single,
            dtype=self.dtype,
        )  # fmt: skip
        report = Report.of(
            result,
            rows=self.X.shape[0],
            outputs=c,
            num_samples=len(paths),
            num_features=0 if self.prior is None else self.prior.features.num,
            inducing=None if self.support is self.X else self.support.shape[0],
            evidence_bound=self.bound,
            variance="exact" if result.exact else f"mean square of {len(paths) * c} zero-mean functions",
            seed=seed,
            precision=str(self.X.dtype).removeprefix("torch."),
            reused=self.reused,
        )
        return Posterior(paths, self, report, exact_variance=result.exact)

    @torch.no_grad()
    def drawn_noise(self, prior: PriorFunctions) -> Float[Tensor, "n k"]:
        """``[0 | ε]``: what primal descent moves from the targets to its regularizer for less variance."""
        noise = torch.zeros_like(self.targets)
        noise[:, self.outputs :] = self.targets[:, self.outputs :] - prior(self.X)
        return noise

    @torch.inference_mode(False)
    @torch.no_grad()
    def extend(
        self,
        weights: Float[Tensor, "n k"],
        X: Tensor,
        y: Tensor,
        *,
        noise: float | Tensor | None,
        generator: torch.Generator | int | None,
        progress: bool,
    ) -> Posterior:
        """Condition on more rows, from the solution ``weights`` of those before."""
        X = _require_more(self, X)
        X, Y = X.to(self.X.dtype), require_targets(y, X).to(self.X.dtype)
        X = self.units.inputs(X)
        if Y.shape[1] != self.outputs:
            raise ValueError(f"y has {Y.shape[1]} columns but the posterior has {self.outputs} outputs; give as many")
        row_noise = self._more_noise(noise, X)
        seed = draw_seed(generator)
        source = torch.Generator().manual_seed(seed)
        new = self.new_targets(X, self.units.targets(Y) - self.center.to(Y.dtype), row_noise, source)
        longer = copy.copy(self)
        longer._buffers = dict(self._buffers)
        longer.X = join_rows(self.X, X)
        longer.row_noise = torch.cat([self.row_noise, row_noise])
        longer.targets = torch.cat([self.targets, new])
        guess, entries = longer.padded(weights)
        return longer.posterior(guess=guess, generator=source, seed=seed, entries=entries, progress=progress)

    def padded(self, weights: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "N k"] | None, int]:
        """The old solution, changed where new rows and their neighbors then solve their own equations.

        All else is held fixed. What is left of the residual lies on rows that the new ones hardly touch, where it is
        small. With the guess comes how many kernel entries it took; a factorization needs none.
        """
        if self.factorizes():
            return None, 0
        old, rows = weights.shape[0], self.X.shape[0] - weights.shape[0]
        guess = torch.cat([weights, weights.new_zeros(rows, weights.shape[1])])
        if rows > MOST_PADDED:
            return guess, 0
        before, new = take_rows(self.X, slice(0, old)), take_rows(self.X, slice(old, None))
        each = min(MOST_NEIGHBORS, max(0, min(MOST_PADDED, old // 4) // rows - 1))
        near = neighbors(self.kernel, new, before, each)
        block = torch.cat([near, torch.arange(old, old + rows, device=near.device)])
        # What the old rows lack of their own equations is little beside what the new ones do.
        left = weights.new_zeros(len(block), weights.shape[1])
        left[len(near) :] = self.targets[old:] - KernelOperator(self.kernel, new, before, memory=0) @ weights
        own = KernelOperator(self.kernel, take_rows(self.X, block)) + Diagonal(self.row_noise[block])
        guess[block] += Cholesky().solve(own, left).solution
        return guess, rows * old * (2 if each else 1) + len(block) ** 2

    def _more_noise(self, noise: float | Tensor | None, X: Tensor) -> Float[Tensor, " r"]:
        if noise is not None:
            return known_noise(noise, X, self.units)
        if self.noise is None:
            raise ValueError("noise is missing: the training rows had one variance each; give those of the new rows")
        return self.noise.to(X.dtype).expand(X.shape[0])

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        moved = super()._apply(lambda t: t.to(fn(t).device), recurse)
        moved.units, moved.dtype = self.units.to(moved.center.device), spoken(fn, self.dtype)
        return moved


MOST_PADDED = 4_000
"""Rows whose equations are solved beforehand, in less than a second; more new rows than that start at zero."""

MOST_NEIGHBORS = 32
"""Old rows beside each new one that join them."""


def _require_more(conditioning: Conditioning, X: Tensor) -> Tensor:
    """Rows to add; one is enough."""
    X = require_rows(conditioning.kernel, X, least=1)
    if X.shape[1] != conditioning.X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but the training inputs had {conditioning.X.shape[1]}; give the same columns"
        )
    if X.dtype != conditioning.dtype:
        raise TypeError(
            f"X is {X.dtype} but the training inputs were {conditioning.dtype}; "
            f"convert it, for example X.to({conditioning.dtype})"
        )
    return X
