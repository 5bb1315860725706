"""Posterior samples and the mode through the rows of the data: for fewer of them than weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.linear.curvature import Curvature
from matheron.linear.data import Data
from matheron.linear.newton import below_rounding, step_length, total_loss
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers, regularizers_of
from matheron.linear.samples import Samples, Warm, measure
from matheron.operators import Diagonal, Operator
from matheron.operators.base import Index
from matheron.seeds import own_source
from matheron.solvers import CG, Result

ENTRIES = 2**25
"""Of a matrix that are in float64 at a time."""


@runtime_checkable
class Solver(Protocol):
    """What solves ``(I + LᵀKL) β = Z``: any of :mod:`matheron.solvers` that needs no kernel, such as CG or Cholesky."""

    def solve(
        self, system: Operator, Z: Tensor, *, guess: Tensor | None = ..., generator: torch.Generator | int | None = ...
    ) -> Result:
        """Solve for all columns at once."""


class RowKernel(Operator):
    """``LᵀKL`` with ``K = ΦA⁻¹Φᵀ`` over the rows of all data: a pass of products with ``Φᵀ``, then one with ``Φ``.

    ``L`` comes from ``curvatures``, one per batch, or from the batches themselves. ``epochs`` counts passes. One made
    ``like`` another, for the same data and prior, shares its ``K`` where that was made explicit.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(3, 2)), GaussianCurvature(4.0, size=3))
    >>> RowKernel(data, DiagonalPrior(1.0, num_weights=2)).dense()[0]
    tensor([8., 8., 8.])
    """

    def __init__(
        self,
        data: Data,
        prior: Prior,
        curvatures: Sequence[Curvature] | None = None,
        *,
        like: RowKernel | None = None,
    ) -> None:
        self.data, self.prior, self.curvatures, self.epochs = data, prior, curvatures, 0.0
        self._like, self._gram = like, None
        super().__init__((data.num_rows,) * 2, data.dtype, data.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """All rows."""
        return self.predict(self.weights(V))

    def transpose(self) -> Operator:
        """Itself."""
        return self

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """From the batches that hold these rows and no others."""
        picked = torch.arange(self.shape[0], device=self.device)[index]
        parts, places = [], []
        for place, (rows, batch) in enumerate(self.data.in_order()):
            here = ((picked >= rows.start) & (picked < rows.stop)).nonzero()[:, 0]
            if len(here):
                unit = torch.zeros(batch.rows, len(here), dtype=self.dtype, device=self.device)
                unit[picked[here] - rows.start, torch.arange(len(here), device=self.device)] = 1.0
                parts.append(batch.features.T @ (self.root(place, batch.curvature) @ unit))
                places.append(here)
                self.epochs += 0.5 * batch.rows / self.shape[0]
        if not parts:
            return torch.zeros(0, 0, dtype=self.dtype, device=self.device)
        columns = torch.cat(parts, dim=1)[:, torch.argsort(torch.cat(places))]
        return columns.mT @ self.prior.covariance(columns)

    _gram: Tensor | None

    def gram(self) -> Float64[Tensor, "m m"]:
        """``K = (ΦR)(ΦR)ᵀ``, ``RR = A⁻¹``, the product in float64: no rounding makes it indefinite."""
        if self._like is not None:
            return self._like.gram()
        if self._gram is None:
            G = self._rooted_rows()
            self._gram = torch.zeros(self.shape, dtype=torch.float64, device=self.device)
            for some in G.split(max(1, ENTRIES // len(G)), dim=1):
                some = some.double()
                self._gram.addmm_(some, some.mT)
        return self._gram

    def _rooted_rows(self) -> Float[Tensor, "m d"]:
        """``ΦR``: the rows are there once more, and no third time."""
        G = torch.empty(self.shape[0], self.data.num_weights, dtype=self.dtype, device=self.device)
        size = max(1, ENTRIES // self.data.num_weights)
        for rows, batch in self.data.in_order():
            for into, some in zip(G[rows].split(size), batch.features.dense().split(size), strict=True):
                into.copy_(self.prior.root(some.mT).mT)
        self.epochs += 1.0
        return G

    def upper(self) -> Float64[Tensor, "m m"]:
        """``LᵀKL`` in float64, batch by batch."""
        K = self.gram().clone()
        for place, (rows, batch) in enumerate(self.data.in_order()):
            L = self.root(place, batch.curvature).dense().double()
            K[:, rows] = K[:, rows] @ L
            K[rows] = L.mT @ K[rows]
        return K

    def weights(self, V: Float[Tensor, "m s"], *, rooted: bool = True) -> Float[Tensor, "d s"]:
        """``A⁻¹ΦᵀL V``, without ``L`` unless ``rooted``; half an epoch."""
        total = torch.zeros(V.shape[1], self.data.num_weights, dtype=self.dtype, device=self.device).mT
        for place, (rows, batch) in enumerate(self.data.in_order()):
            part = V[rows]
            total += batch.features.T @ (self.root(place, batch.curvature) @ part if rooted else part)
        self.epochs += 0.5
        return self.prior.covariance(total)

    def predict(self, W: Float[Tensor, "d s"], *, rooted: bool = True) -> Float[Tensor, "m s"]:
        """``LᵀΦ W``, without ``Lᵀ`` unless ``rooted``; half an epoch."""
        parts = []
        for place, batch in enumerate(self.data.batches()):
            F = batch.features @ W
            parts.append(self.root(place, batch.curvature).T @ F if rooted else F)
        self.epochs += 0.5
        return torch.cat(parts)

    def root(self, place: int, curvature: Curvature) -> Operator:
        """``L`` of a batch."""
        return curvature.root if self.curvatures is None else self.curvatures[place].root


@dataclass(frozen=True)
class DualSolve:
    """The E-step through rows: ``solver`` for every linear system, Newton's steps for a loss that is not quadratic.

    They end within ``newton_tolerance`` posterior standard deviations of the mode.

    >>> DualSolve().newton_steps
    20
    """

    solver: Solver = field(default_factory=lambda: CG(tolerance=1e-4))
    tolerance: float = 0.1
    newton_steps: int = 20
    newton_tolerance: float = 1e-2

    keep_noise: ClassVar[bool] = True
    """Regularizers must keep their noise row by row."""

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_count("newton_steps", self.newton_steps)
        require_between("newton_tolerance", self.newton_tolerance, 0.0, 1.0)

    def posterior(
        self,
        data: Data,
        prior: Prior,
        regularizers: Regularizers,
        *,
        mode: bool = True,
        warm: Warm | None = None,
        generator: torch.Generator,
        progress: bool = False,
    ) -> Samples:
        """Samples and mode, started from those of ``warm``."""
        return solve_dual(data, prior, regularizers, mode=mode, warm=warm, settings=self, generator=generator)


@torch.no_grad()
def solve_dual(
    data: Data,
    prior: Prior,
    num: int | Regularizers,
    *,
    solver: Solver | None = None,
    mode: bool = True,
    warm: Warm | None = None,
    settings: DualSolve | None = None,
    generator: torch.Generator | int | None = None,
) -> Samples:
    """``ζ = w₀ + A⁻¹ΦᵀL (I + LᵀKL)⁻¹ (u − LᵀΦw₀) ~ N(0, H⁻¹)`` with ``B = LLᵀ``, ``w₀ ~ N(0, A⁻¹)``, ``u ~ N(0, I)``.

    From the same regularizers it is the optimum of :func:`~matheron.linear.sample_then_optimize`. The mode is
    ``A⁻¹Φᵀα`` with ``α = (I + BK)⁻¹ BY``, in the same solve; for a loss that is not quadratic by Newton's steps, each
    one such solve. ``B`` is never inverted. Memory is ``O((m + d) s)``. Thesis, sections 2.3 and 7.3.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> solve_dual(data, DiagonalPrior(1.0, num_weights=1), 2, generator=g).mode
    tensor([4.])
    """
    settings = settings or (DualSolve() if solver is None else DualSolve(solver=solver))
    source = own_source(generator)
    drawn = regularizers_of(num, data, prior, source, mode=mode, keep_noise=True)
    if drawn.noise is None:
        raise ValueError("regularizers has no noise row by row; draw them with keep_noise=True")
    run = _DualRun(settings, data, prior, drawn, source)
    if num is not drawn:
        run.kernel.epochs += drawn.epochs
    return run.finish(mode, warm).warn()


class _DualRun:
    def __init__(
        self, settings: DualSolve, data: Data, prior: Prior, regularizers: Regularizers, generator: torch.Generator
    ) -> None:
        self.settings, self.data, self.prior, self.generator = settings, data, prior, generator
        self.regularizers, self.kernel = regularizers, RowKernel(data, prior)
        self.trace: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.began = time.perf_counter()

    def finish(self, with_mode: bool, warm: Warm | None) -> Samples:
        """Solve for all columns at once, then measure."""
        assert self.regularizers.noise is not None
        start = self.regularizers.start(self.prior)
        columns = self.regularizers.noise.mT - self.kernel.predict(start.mT)
        joint = with_mode and self.data.quadratic
        if joint:
            zero = torch.zeros(self.data.num_rows, 1, dtype=self.data.dtype, device=self.data.device)
            columns = torch.cat([columns, self.root_solve(-self.slopes(zero))], dim=1)
        guess = None if warm is None or warm.dual is None or len(warm.dual) != columns.shape[1] else warm.dual.mT
        dual = self.solve(self.kernel, columns, guess)
        weights = self.kernel.weights(dual).mT
        samples, mode = start + weights[: len(start)], weights[-1] if joint else None
        if with_mode and not joint:
            mode = self.newton(warm)
        measured = measure(self.data, self.prior, self.regularizers, samples, mode, self.generator)
        return Samples(
            samples=samples,
            mode=mode,
            measured=measured,
            prior=self.prior,
            tolerance=self.settings.tolerance,
            epochs=self.kernel.epochs + 1.0,
            seconds=time.perf_counter() - self.began,
            method=repr(self.settings),
            trace=self.trace,
            events=self.events,
            dual=dual.mT,
        )

    def solve(self, kernel: RowKernel, columns: Float[Tensor, "m s"], guess: Tensor | None) -> Float[Tensor, "m s"]:
        """``(I + LᵀKL)⁻¹`` on columns."""
        result = self.settings.solver.solve(kernel + Diagonal(1.0), columns, guess=guess, generator=self.generator)
        record = {"epochs": kernel.epochs, "residual": float(result.residual.max()), "solver": result.solver}
        self.trace.append(record | {"seconds": time.perf_counter() - self.began})
        return result.solution

    def newton(self, warm: Warm | None) -> Float[Tensor, " d"]:
        """``w = A⁻¹Φᵀα`` with ``α ← (I + BK)⁻¹(BF − ∂ℓ)``, ``B`` and ``∂ℓ`` at the predictions ``F = Kα``.

        The step is shortened until the objective falls.
        """
        alpha = torch.zeros(self.data.num_rows, 1, dtype=self.data.dtype, device=self.data.device)
        F = torch.zeros_like(alpha)
        if warm is not None and warm.mode is not None:
            # The optimality condition gives α for any weights near it.
            F = self.kernel.predict(warm.mode[:, None], rooted=False)
            alpha = -self.slopes(F)
            F = self.kernel.predict(self.kernel.weights(alpha, rooted=False), rooted=False)
        value = self.objective(alpha, F)
        for step in range(self.settings.newton_steps):
            target = self.newton_target(F)
            direction = target - alpha
            ahead = self.kernel.predict(self.kernel.weights(target, rooted=False), rooted=False) - F
            # ‖w − w⋆‖_H to second order: posterior standard deviations.
            distance = max(-float((ahead * (alpha + self.slopes(F))).sum()), 0.0) ** 0.5

            def along(t: float, here: tuple[Tensor, ...] = (alpha, F, direction, ahead)) -> float:
                return self.objective(here[0] + t * here[2], here[1] + t * here[3])

            size, found = step_length(along, value)
            if not found <= value:
                self.events.append(f"Newton's step {step} found no smaller objective")
                break
            alpha, F, value = alpha + size * direction, F + size * ahead, found
            self.trace.append(
                {"newton": step, "objective": value, "size": size, "distance": distance, "epochs": self.kernel.epochs}
            )
            if distance <= self.settings.newton_tolerance or below_rounding(distance, value, F.dtype):
                break
        else:
            self.events.append(f"Newton's method used all {self.settings.newton_steps} steps")
        return self.kernel.weights(alpha, rooted=False)[:, 0]

    def newton_target(self, F: Float[Tensor, "m 1"]) -> Float[Tensor, "m 1"]:
        """``(I + BK)⁻¹ v`` with ``v = BF − ∂ℓ``: ``q + L (I + LᵀKL)⁻¹ (r − LᵀKq)`` where ``v = Lr + q``."""
        curvatures, rest, inner = [], [], []
        for rows, batch in self.data.in_order():
            part = F[rows]
            B = batch.loss_curvature(part[:, 0])
            v = B @ part - batch.loss_gradient(part)
            r = B.root_solve(v)
            curvatures.append(B)
            inner.append(r)
            rest.append(v - B.root @ r)
        kernel = RowKernel(self.data, self.prior, curvatures, like=self.kernel)
        q, r = torch.cat(rest), torch.cat(inner)
        if bool((q.abs() > torch.finfo(q.dtype).eps * r.abs().max()).any()):
            r = r - kernel.predict(kernel.weights(q, rooted=False))
        beta = self.solve(kernel, r, None)
        self.kernel.epochs += kernel.epochs
        parts = beta.split([B.shape[0] for B in curvatures])
        return q + torch.cat([B.root @ part for B, part in zip(curvatures, parts, strict=True)])

    def objective(self, alpha: Float[Tensor, "m 1"], F: Float[Tensor, "m 1"]) -> float:
        """``ℓ(F) + ½ αᵀKα``, which takes no product with ``Φ``."""
        return total_loss(self.data, F) + 0.5 * float((alpha.double() * F).sum())

    def slopes(self, F: Float[Tensor, "m 1"]) -> Float[Tensor, "m 1"]:
        """``∂ℓ/∂F``."""
        return torch.cat([batch.loss_gradient(F[rows]) for rows, batch in self.data.in_order()])

    def root_solve(self, V: Float[Tensor, "m 1"]) -> Float[Tensor, "m 1"]:
        """``L⁺ V``."""
        return torch.cat([batch.curvature.root_solve(V[rows]) for rows, batch in self.data.in_order()])
