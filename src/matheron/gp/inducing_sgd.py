"""Stochastic gradient descent for many inducing points."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between, require_count
from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows
from matheron.operators import KernelOperator
from matheron.operators.layout import multiply
from matheron.seeds import normals, own_source, permutation
from matheron.solvers.iteration import Monitor
from matheron.solvers.result import Result
from matheron.solvers.windows import windows

PASSES = 30.0
"""Over the data, where no number of epochs is given."""

RESIDUAL_ROWS = 4096
LIMIT = 1e3
"""Targets have unit mean square; a batch whose error has this much has blown up."""

WORSE = 2.0
"""Zero has a root mean square error of one; a pass with this much has gone astray."""

SAMPLE = 8
"""Rows per direction from which the directions of largest curvature are found."""

NOISE = 10.0
"""Curvature of the last leading direction, at least, in units of what the regularizer's noise has in any."""

BLOCK = 4096
"""Inducing points whose kernel with that sample exists at once."""

WHOLE = slice(None)


@dataclass(frozen=True)
class InducingSGD:
    """``min_v ½ Σ_i B_i (t_i − K_{x_i Z} v)² + ½ ‖v‖²_{K_ZZ}`` by minibatches of data and fresh random features.

    The gradient estimate is ``g = (n/r) K_ZI B_I (K_IZ v − t_I) + Φ_Z Φ_Zᵀ v``, with ``n`` the number of data rows
    (thesis §4.3). Steps go along ``P g``: ``P = I − U diag(max(0, 1 − ℓ/λ_i)) Uᵀ``, with ``rank`` top eigenvectors of
    ``K_ZX B K_XZ`` from a sample of rows, evens out the largest curvatures, so that steps can be as much longer in all
    other directions; ``rank=0`` is the thesis' method. They are ``step / λ`` long, with ``λ`` the largest curvature of
    some batches, or more where single rows or the noise of batches ask for it, and halve when errors blow up. The
    answer is an average over about the last ``1/averaging`` of the steps made. An epoch is ``n²`` kernel entries, as
    everywhere, so that one pass over the data costs ``m / n`` of it, as does measuring the step; ``epochs=None`` stands
    for 30 passes, about the thesis' number. All of them are made: the residual, that of ``K_ZX B (K_XZ v − t)``, is
    small long before ``v`` is right in directions of little curvature, and only says whether the descent went astray.

    >>> InducingSGD(epochs=2.0).batch
    512
    """

    epochs: float | None = None
    tolerance: float = 0.01
    batch: int = 512
    features: int = 100
    momentum: float = 0.9
    step: float = 0.5
    averaging: float = 10.0
    rank: int = 100

    def __post_init__(self) -> None:
        if self.epochs is not None:
            require_between("epochs", self.epochs, 0.0, 1e9)
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_count("batch", self.batch)
        require_count("features", self.features)
        require_between("momentum", self.momentum, -1e-9, 0.9999)
        require_between("step", self.step, 0.0, 2.0)
        require_between("averaging", self.averaging, 0.0, 1e9)
        require_count("rank", self.rank, least=0)

    @torch.no_grad()
    def solve(
        self,
        kernel: Kernel,
        X: Float[Tensor, "n d"],
        Z: Float[Tensor, "m d"],
        noise: Float[Tensor, " n"],
        targets: Float[Tensor, "n k"],
        *,
        guess: Float[Tensor, "m k"] | None = None,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Any = None,
        monitor: Monitor | None = None,
    ) -> Result:
        """Descend for all columns of ``targets`` at once."""
        if checkpoint is not None:
            raise ValueError("checkpoint is not offered with InducingSGD; leave it out")
        began = time.perf_counter()
        source = own_source(generator)
        order = permutation(X.shape[0], source, X.device)
        run = _Descent(self, kernel, take_rows(X, order), Z, noise[order], targets[order], guess, source)
        trace: list[dict[str, Any]] = []
        most = PASSES * run.m / run.n if self.epochs is None else self.epochs
        with tqdm(total=most, disable=not progress, unit="epoch", desc="InducingSGD") as bar:
            while run.epochs < most:
                before = run.epochs
                record = {"estimate": run.sweep(most), "epochs": run.epochs}
                trace.append(record | {"seconds": time.perf_counter() - began})
                if monitor is not None:
                    paused = time.perf_counter()
                    trace[-1].update(monitor(run.average * run.scale))
                    began += time.perf_counter() - paused
                bar.update(round(run.epochs - before, 2))
        if run.events:
            trace.append({"event": "; ".join(run.events)})
        residual, rows = run.residual()
        return Result(
            solution=run.average * run.scale,
            residual=residual,
            residual_rows=rows,
            tolerance=self.tolerance,
            epochs=run.epochs,
            seconds=time.perf_counter() - began,
            solver=repr(self),
            trace=trace,
        ).warn()


class _Descent:
    """The state: weights ``v``, velocity and geometric average, on targets scaled to unit variance."""

    def __init__(
        self,
        solver: InducingSGD,
        kernel: Kernel,
        X: Tensor,
        Z: Tensor,
        noise: Tensor,
        targets: Tensor,
        guess: Tensor | None,
        generator: torch.Generator,
    ) -> None:
        self.solver, self.kernel, self.X, self.Z, self.generator = solver, kernel, X, Z, generator
        self.n, self.m, self.batch = X.shape[0], Z.shape[0], min(solver.batch, X.shape[0])
        self.across = KernelOperator(kernel, X, Z, memory=0)
        self.noise = noise[:, None]
        size = targets.square().mean(0).sqrt()
        self.scale = torch.where(size > 0, size, 1.0)
        self.targets = targets / self.scale
        start = torch.zeros(self.m, targets.shape[1], dtype=X.dtype, device=X.device) if guess is None else guess
        self.v = start / self.scale
        self.velocity, self.average, self.safe = torch.zeros_like(self.v), self.v.clone(), self.v.clone()
        self.entries, self.events = 0, list[str]()
        self.directions, self.curvatures = self.leading(min(solver.rank, self.n, self.m))
        self.step = solver.step / self.curvature()
        self.steps = 0

    @property
    def epochs(self) -> float:
        """Kernel entries in units of ``n²``."""
        return self.entries / self.n**2

    def leading(self, rank: int) -> tuple[Float[Tensor, "m q"], Float[Tensor, " q"]]:
        """Top eigenvectors of ``K_ZX B K_XZ`` and their curvatures, from a sample of rows.

        The rows are in random order, so that the first ones are a sample. Their Gram matrix gives the vectors.
        """
        if rank == 0:
            return self.v.new_zeros(self.m, 0), self.v.new_zeros(0)
        rows = slice(0, min(self.n, SAMPLE * rank))
        sample, scale = take_rows(self.X, rows), self.noise[rows].rsqrt().double()
        gram = torch.zeros(len(scale), len(scale), dtype=torch.float64, device=self.X.device)
        for start in range(0, self.m, BLOCK):
            part = self.kernel(take_rows(self.Z, slice(start, start + BLOCK)), sample).double()
            gram.addmm_(part.mT, part)
        values, vectors = torch.linalg.eigh(scale * gram * scale.mT * (self.n / len(scale)))
        values, vectors = values.flip(0)[:rank], vectors.flip(1)[:, :rank]
        # Beyond rounding, and so steep that the noise of the regularizer, a matrix of few features, is little to it.
        noise = float(self.kernel.diagonal(self.Z).sum()) / self.solver.features
        kept = values > max(1e-6 * float(values[0]), NOISE * noise)
        if not bool(kept.any()):
            return self.v.new_zeros(self.m, 0), self.v.new_zeros(0)
        values, vectors = values[kept], scale * vectors[:, kept] * (self.n / len(scale) / values[kept]).sqrt()
        self.entries += 2 * self.m * len(scale)
        directions = KernelOperator(self.kernel, self.Z, sample, memory=0) @ vectors.to(self.v.dtype)
        return directions, values.to(self.v.dtype)

    def preconditioned(self, gradient: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
        """``P g``: shorter along the top directions."""
        if self.directions.shape[1] == 0:
            return gradient
        return gradient - multiply(self.directions, self.shortening[:, None] * multiply(self.directions.mT, gradient))

    def curvature(self) -> float:
        """What a step is measured by: the largest of ``λ_max(Ĥ)`` of three random batches and of what rows allow.

        ``Ĥ = (n/r) P K_ZI B_I K_IZ``. Leading curvatures are evened out to what the other directions of some row have,
        and no further, as that limits the step anyhow.
        """
        rest, along = self.row_sizes()
        self.shortening = (1.0 - self.allowed(rest) / self.curvatures).clamp_min(0.0)
        largest = 0.0
        for _ in range(3):
            start = int(torch.randint(self.n - self.batch + 1, (), generator=self.generator))
            rows = slice(start, start + self.batch)
            block, scale = self.rows(rows), self.noise[rows].sqrt()
            vector = normals((self.batch, 1), self.X, self.generator)
            for _ in range(16):
                pulled = block.rows(WHOLE).T @ (vector / vector.norm() / scale)
                vector = (block @ self.preconditioned(pulled)) / scale
            largest = max(largest, float(vector.norm()) * self.n / self.batch)
        return max(largest, self.allowed(rest + along @ (1.0 - self.shortening)))

    def allowed(self, sizes: Float[Tensor, " n"]) -> float:
        """The curvature that steps must reckon with where row ``i`` has ``ν_i = B_i K_iZ P K_Zi`` of it.

        At least ``(n/r) max_i ν_i``: a row that is unlike the others is in few batches, and blows up there. And
        ``E Ĥ² ≤ H² + ρ H``, ``ρ = (n/r) Σ_i ν_i² / Σ_i ν_i``: with momentum ``β`` steps sum up to ``1/(1 − β)`` of
        their length, and the noise of batches grows where they are longer than ``2(1 − β)/ρ``.
        """
        spread = float(sizes.square().sum() / sizes.sum()) / (2.0 * (1.0 - self.solver.momentum))
        return max(float(sizes.max()), spread) * self.n / self.batch

    def row_sizes(self) -> tuple[Float[Tensor, " n"], Float[Tensor, "n q"]]:
        """``B_i ‖K_iZ‖²`` of every row: outside the leading directions, and along each of them."""
        sizes, along = [], []
        for start in range(0, self.n, BLOCK):
            x = take_rows(self.X, slice(start, start + BLOCK))
            size, pushed = self.v.new_zeros(x.shape[0]), self.v.new_zeros(x.shape[0], self.directions.shape[1])
            for left in range(0, self.m, BLOCK):
                points = slice(left, left + BLOCK)
                tile = self.kernel(x, take_rows(self.Z, points))
                size += tile.square().sum(1)
                pushed += tile @ self.directions[points]
            sizes.append(size)
            along.append(pushed.square())
        self.entries += self.n * self.m
        squares = torch.cat(along) / self.noise
        return (torch.cat(sizes) / self.noise[:, 0] - squares.sum(1)).clamp_min(0.0), squares

    def sweep(self, most: float) -> float:
        """All data once; returns the root mean square error relative to the targets."""
        squares, seen = 0.0, 0
        for rows in windows(self.n, self.batch, self.generator):
            ahead = torch.add(self.v, self.velocity, alpha=self.solver.momentum)
            block = self.rows(rows)
            error = block @ ahead - self.targets[rows]
            size = float(error.square().mean())
            if not math.isfinite(size) or size > LIMIT:
                return self.restart()
            pulled = block.rows(WHOLE).T @ (error / self.noise[rows])
            # Windows at the ends are shorter: by their own length their few rows would make steps far too long.
            gradient = pulled * (self.n / self.batch) + self.regularizer(ahead)
            self.velocity.mul_(self.solver.momentum).sub_(self.preconditioned(gradient), alpha=self.step)
            self.v += self.velocity
            self.steps += 1
            self.average.lerp_(self.v, min(1.0, self.solver.averaging / self.steps))
            squares, seen = squares + size * len(error), seen + len(error)
            if self.epochs >= most:
                break
        found = math.sqrt(squares / max(seen, 1))
        if found > WORSE:
            return self.restart()
        self.safe = self.average.clone()
        return found

    def rows(self, rows: slice) -> KernelOperator:
        """``K_IZ``, kept for the product with its transpose that follows."""
        block = KernelOperator(self.kernel, take_rows(self.X, rows), self.Z)
        self.entries += block.shape[0] * block.shape[1]
        return block

    def regularizer(self, v: Tensor) -> Tensor:
        """``Φ_Z Φ_Zᵀ v`` with features drawn anew: unbiased for ``K_ZZ v``."""
        phi = self.kernel.features(self.solver.features, dimension=self.Z.shape[1], generator=self.generator)(self.Z)
        return multiply(phi, multiply(phi.mT, v))

    def restart(self) -> float:
        """Back to where the last good pass ended, with half the step; the error of the pass is that of none."""
        self.v, self.average, self.velocity = self.safe.clone(), self.safe.clone(), torch.zeros_like(self.v)
        self.step, self.steps = self.step / 2.0, 0
        self.events.append(f"diverged: step halved to {self.step:.3g}")
        return math.inf

    def residual(self) -> tuple[Float[Tensor, " k"], int]:
        """``‖(K_ZX B K_XZ + K_ZZ) v − K_ZX B t‖ / ‖K_ZX B t‖`` on some random inducing points."""
        rows = min(self.m, RESIDUAL_ROWS)
        chosen = take_rows(self.Z, permutation(self.m, self.generator, self.Z.device)[:rows])
        back = KernelOperator(self.kernel, chosen, self.X, memory=0)
        right = back @ (self.targets / self.noise)
        left = back @ ((self.across @ self.average) / self.noise)
        left = left + KernelOperator(self.kernel, chosen, self.Z, memory=0) @ self.average
        self.entries += self.n * self.m + 2 * rows * self.n + rows * self.m
        return (left - right).norm(dim=0) / right.norm(dim=0).clamp_min(1e-30), rows
