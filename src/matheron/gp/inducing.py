"""Inducing points: the posterior of Titsias, its bound, and functions of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.gp.conditioning import Conditioning
from matheron.gp.covariance import Factors
from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.observations import Observations, require_rows
from matheron.gp.selection import eliminate_neighbors, k_means, random_rows
from matheron.kernels import Kernel
from matheron.kernels.rows import copy_rows, take_rows
from matheron.operators.memory import SAFE, free_memory, gibibytes
from matheron.seeds import normals
from matheron.solvers import Auto, Cholesky, Result

BLOCK = 4096
"""Data rows whose kernel with the inducing points exists at once."""

DIRECT = 6_000
"""Inducing points up to which a factorization is quicker than descent."""

JITTERS = (1e-10, 1e-7)
"""Of the mean diagonal; the second where distances far beyond the lengthscale have left the matrix fewer digits."""


class InducingConditioning(Conditioning):
    """``(K_ZZ + K_ZX B K_XZ) [v_y | v_f] = K_ZX B [y − m | f_Z(X) + ε]``, ``f_Z = K_(·)Z K_ZZ⁻¹ f(Z)`` (thesis §4.3).

    Mean ``K_(·)Z v_y`` and functions ``f + K_(·)Z (v_y − v_f)`` are those of the KL-optimal posterior. Up to
    ``DIRECT`` points the system is factorized, with ``A = L⁻¹ K_ZX B^½`` and ``K_ZZ = L Lᵀ``; beyond, it is left to
    stochastic descent, with ``f`` in place of ``f_Z``. ``targets`` are ``[y − m | ε]`` here.
    """

    Z: Float[Tensor, "m d"]

    has_factors = True

    def __init__(self, Z: Tensor, **parts: Any) -> None:
        super().__init__(**parts)
        self.register_buffer("Z", Z)
        self._whitened: tuple[Tensor, Tensor] | None = None

    @property
    def support(self) -> Tensor:
        """``Z``."""
        return self.Z

    def new_targets(
        self, X: Tensor, residual: Tensor, row_noise: Tensor, generator: torch.Generator
    ) -> Float[Tensor, "r k"]:
        """``[y − m | ε]``."""
        if self.prior is None:
            return residual
        noise = row_noise.sqrt()[:, None] * normals((X.shape[0], self.prior.num), X, generator)
        return torch.cat([residual, noise], dim=1)

    def solve(self, targets: Float[Tensor, "n k"], **options: Any) -> Result:
        """By factorization, or by descent."""
        # Rows may have joined since a factorization that an exact variance asked for.
        self._whitened, self.bound = None, None
        solver = self.chosen()
        if isinstance(solver, InducingSGD):
            if self.prior is not None:
                targets = targets.clone()
                targets[:, self.outputs :] += self.prior(self.X)
            return solver.solve(self.kernel, self.X, self.Z, self.row_noise, targets, **options)
        return self._direct(targets)

    def chosen(self) -> Cholesky | InducingSGD:
        """What the solver asked for comes to."""
        if isinstance(self.solver, InducingSGD | Cholesky):
            return self.solver
        assert isinstance(self.solver, Auto)
        return Cholesky() if self.Z.shape[0] <= DIRECT else InducingSGD(tolerance=self.solver.tolerance)

    @torch.no_grad()
    def _direct(self, targets: Float[Tensor, "n k"]) -> Result:
        began = time.perf_counter()
        c, m, n = self.outputs, self.Z.shape[0], self.X.shape[0]
        needed, free = 3 * 8 * m**2, free_memory(self.X.device)
        if needed > SAFE * free:
            raise MemoryError(
                f"{m} inducing points need {gibibytes(needed)} for their factors and {gibibytes(free)} are free; "
                "use fewer, or InducingSGD() and the variance of its samples"
            )
        L, jitter = self.prior_factor()
        gram, right, trace = torch.zeros_like(L), L.new_zeros(m, targets.shape[1]), 0.0
        for A, scale, rows in self.whitened_rows(L):
            gram.addmm_(A, A.mT)
            right.addmm_(A, targets[rows].double() * scale[:, None])
            trace += float((self.kernel.diagonal(take_rows(self.X, rows)).double() * scale.square()).sum())
        trace -= float(gram.diagonal().sum())
        C, failed = torch.linalg.cholesky_ex(gram + torch.eye(m, dtype=L.dtype, device=L.device))
        if int(failed):
            raise ValueError(
                f"the system of {m} inducing points is singular to working precision, as the noise is so small beside "
                "the kernel's variance; raise the noise"
            )
        self._whitened = L, C
        half = torch.linalg.solve_triangular(C, right[:, :c], upper=False)
        self.bound = self._bound(targets[:, :c].double(), half, C, trace)
        if self.prior is not None:
            prior = self.prior(self.Z).double()
            right[:, c:] += gram @ torch.linalg.solve_triangular(L, prior, upper=False)
        weights = torch.cholesky_solve(right, C)
        solution = torch.linalg.solve_triangular(L.mT, weights, upper=True)
        # In whitened coordinates, where the factors could have lost digits to the conditioning of K_ZZ.
        left = L.mT @ solution
        residual = (left + gram @ left - right).norm(dim=0) / right.norm(dim=0).clamp_min(1e-300)
        return Result(
            solution=solution.to(targets.dtype),
            residual=residual,
            residual_rows=m,
            tolerance=0.01,
            epochs=(n * m + m * m) / n**2,
            seconds=time.perf_counter() - began,
            solver=f"Cholesky of {m} inducing points",
            trace=[] if jitter == JITTERS[0] else [{"event": f"added {jitter:g} of the mean to the diagonal of K_ZZ"}],
            exact=True,
        ).warn()

    def _bound(self, Y: Tensor, half: Tensor, C: Tensor, trace: float) -> float:
        """``log N(y; m, Q + N) − ½ tr(B (K − Q))``, summed over outputs (thesis §3.1.2)."""
        noise = self.row_noise.double()
        fit = (Y.square() / noise[:, None]).sum() - half.square().sum()
        constant = noise.log().sum() + len(noise) * math.log(2 * math.pi) + 2 * C.diagonal().log().sum() + trace
        return float(-0.5 * (fit + Y.shape[1] * constant) - len(noise) * self.units.y_scale.log().sum())

    def prior_factor(self) -> tuple[Float[Tensor, "m m"], float]:
        """``L Lᵀ = K_ZZ``, with a relative jitter that keeps coincident points apart, and that jitter."""
        matrix = self.kernel(self.Z.double())
        diagonal, scale = matrix.diagonal().clone(), matrix.diagonal().mean()
        for jitter in JITTERS:
            matrix.diagonal().copy_(diagonal + jitter * scale)
            factor, failed = torch.linalg.cholesky_ex(matrix)
            if not int(failed):
                return factor, jitter
        raise ValueError(
            f"the kernel matrix of the {self.Z.shape[0]} inducing points is singular to working precision; "
            "use fewer, or locations further apart"
        )

    def whitened_rows(self, L: Float[Tensor, "m m"]) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """``A = L⁻¹ K_ZX B^½`` some data rows at a time, with ``B^½`` and the rows."""
        Z = self.Z.double()
        for start in range(0, self.X.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            scale = self.row_noise[rows].double().rsqrt()
            across = self.kernel(Z, take_rows(self.X, rows).double()) * scale
            yield torch.linalg.solve_triangular(L, across, upper=False), scale, rows

    def factorize(self) -> Factors:
        """``L`` of ``K_ZZ`` and ``L C`` of ``K_ZZ + K_ZX B K_XZ``."""
        if self._whitened is None:
            self._direct(self.targets)
        assert self._whitened is not None
        L, C = self._whitened
        return L, L @ C

    def padded(self, weights: Float[Tensor, "m k"]) -> tuple[Float[Tensor, "m k"], int]:
        """The unknowns are those of the inducing points: as many as before."""
        return weights, 0

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        self._whitened = None
        return super()._apply(fn, recurse)


@torch.no_grad()
def locations(
    kernel: Kernel, inducing: int | Tensor, data: Observations, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """The locations given, in standard units, or so many chosen ones: k-means, beyond ``DIRECT`` rows spread out."""
    if isinstance(inducing, Tensor):
        Z = require_rows(kernel, inducing, name="inducing", least=1)
        if Z.shape[1] != data.X.shape[1]:
            raise ValueError(f"inducing has {Z.shape[1]} columns but X has {data.X.shape[1]}; give the same columns")
        if Z.dtype != dtype:
            raise TypeError(f"inducing is {Z.dtype} but X is {dtype}; convert it, for example inducing.to({dtype})")
        return copy_rows(data.units.inputs(Z.to(data.X.dtype)))
    if data.X.layout != torch.strided:
        return random_rows(data.X, inducing, generator)
    return k_means(data.X, inducing, generator) if inducing <= DIRECT else eliminate_neighbors(data.X, inducing)
