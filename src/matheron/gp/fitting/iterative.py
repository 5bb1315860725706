"""Climbing the evidence by gradients from posterior samples."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from tqdm import tqdm

from matheron.archive import digest
from matheron.arguments import require_between, require_count
from matheron.gp.draws import PriorDraws
from matheron.gp.fitting.adam import Adam
from matheron.gp.fitting.bounds import LEAST_NOISE
from matheron.gp.fitting.mackay import amplitudes, fixed_point
from matheron.gp.fitting.subset import maximize_on, restricted
from matheron.gp.fitting.task import Task
from matheron.gp.fitting.warm import WarmStart
from matheron.gp.rounding import MUCH, rounding
from matheron.kernels.contraction import contract, low_rank
from matheron.kernels.feature_map import NoFeaturesError
from matheron.operators import Diagonal, KernelOperator
from matheron.seeds import permutation
from matheron.solvers import AlternatingProjections, ConvergenceWarning, Result
from matheron.solvers.iteration import IterativeSolver

SOLVER = AlternatingProjections(epochs=4.0, tolerance=0.01)
"""One epoch for the residual of the guess, two sweeps, one to measure: on pol, conjugate gradients took eight epochs
and a preconditioner for the same evidence, stochastic dual descent did not reach it."""

PATIENCE = 10
"""Steps over which the expected gain is averaged."""

FIRST_STEPS = 40
"""Exact evidences on the first rows, by when L-BFGS has come near."""

FIRST_SPREAD = 0.7
"""Of a prior around the start there: what a few rows say nothing of, the noise among short lengthscales or an input
that hardly matters, would run so far that all rows could not bring it back in time."""


@dataclass(frozen=True)
class Iterative:
    """``∂ log p = ½ v_yᵀ ∂H v_y − (1/2s) Σ_j z_jᵀ ∂H z_j``, ``v_y = H⁻¹(y − m)``, ``z_j = H⁻¹ ξ_j``, by Adam.

    For large ``n``. ``H = K + N``, and ``ξ_j ~ N(0, H)`` is a prior function plus noise whose random numbers stay
    the same throughout: every solve starts from the last one's answer, and ``solver`` is cut off after a few epochs.
    The ``z_j`` give posterior functions in the end, which ``gp.warm`` hands on. Where rounding errors come near the
    noise, it goes on in float64. Thesis §3.2.1, signs put right.

    Where it begins at values read off the data, L-BFGS first climbs the exact evidence of ``first_rows`` random rows:
    seconds, which save most of the steps on all rows. From a start of your own take more ``steps``. With ``rows`` it
    learns from so many random rows at most, in place of all.

    Ends after ``steps``, or when steps promise less than ``tolerance`` of log evidence per row. With
    ``amplitude="mackay"`` noise and variances take MacKay's fixed-point steps instead of Adam's. Fifteen samples and
    one target make sixteen columns, which products of matrices take best.

    >>> import torch
    >>> import matheron as mt
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(500, 1, generator=g)
    >>> y = (6 * X[:, 0]).sin() + 0.1 * torch.randn(500, generator=g)
    >>> gp = mt.GaussianProcess(mt.kernels.RBF()).fit(X, y, Iterative(steps=60), generator=g)
    >>> 0.05 < gp.noise.sqrt().item() < 0.15, gp.warm.solution.shape
    (True, torch.Size([500, 16]))
    """

    steps: int = 40
    learning_rate: float = 0.1
    num_samples: int = 15
    num_features: int = 2000
    first_rows: int = 2000
    rows: int | None = None
    tolerance: float = 1e-5
    amplitude: str = "gradient"
    solver: IterativeSolver = SOLVER
    least_noise: ClassVar[float] = LEAST_NOISE

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_between("learning_rate", self.learning_rate, 0.0, 10.0)
        require_count("num_samples", self.num_samples)
        require_count("num_features", self.num_features, least=2)
        require_count("first_rows", self.first_rows, least=0)
        if self.rows is not None:
            require_count("rows", self.rows, least=2)
        require_between("tolerance", self.tolerance, -1e-300, 1.0)
        if self.amplitude not in ("gradient", "mackay"):
            raise ValueError(f"amplitude must be 'gradient' or 'mackay', got {self.amplitude!r}")
        if not isinstance(self.solver, IterativeSolver):
            raise TypeError(f"solver must be one of matheron.solvers that iterate, got {self.solver!r}")

    def learn(self, task: Task) -> None:
        """Set the parameters of ``task.gp``, and its warm start."""
        climb = Climb(self, task)
        with tqdm(total=self.steps, disable=not task.progress, unit="step", desc="Iterative") as bar:
            bar.update(climb.count)
            while not climb.finished:
                climb.step()
                bar.update()
                bar.set_postfix(gain=f"{climb.gains[-1]:.2g}" if climb.gains else "")
                if task.checkpoint is not None and task.checkpoint.due:
                    climb.save()
        # A solve of some rows is no start for one of all.
        task.gp.warm = climb.warm_start() if climb.data.rows == task.data.rows else None
        task.finish(climb.vector, climb.event)


class Climb:
    """The state of one run."""

    def __init__(self, method: Iterative, task: Task) -> None:
        self.method, self.task = method, task
        self.identity = task.identity(method)
        saved = task.checkpoint.load(self.identity) if task.checkpoint else None
        tensors, header = saved if saved else ({}, {})
        self.seed = header.get("seed", task.seed)
        generator = torch.Generator().manual_seed(self.seed)
        # Shuffled once, so that blocks of rows are random ones.
        self.order = permutation(task.data.rows, generator, task.data.X.device)[: method.rows]
        self.data = restricted(task.data, self.order)
        functions = self.data.outputs * math.ceil(method.num_samples / self.data.outputs)
        try:
            self.draws = PriorDraws.draw(
                task.gp.kernel, self.data.X, functions, num_features=method.num_features, generator=generator
            )
        except NoFeaturesError as reason:
            raise NoFeaturesError(f"method='iterative' samples prior functions, but {reason}; use 'subset'") from reason
        self.kernel = KernelOperator(task.gp.kernel, self.data.X)
        self.amplitudes = amplitudes(task) if method.amplitude == "mackay" else []
        self.vector = task.bounds.clamp(task.parameters.vector())
        if task.rough and not saved and 0 < method.first_rows < self.data.rows:
            self.vector = self.nearer()
        self.adam = Adam(self.vector, method.learning_rate)
        self.solution = self.data.Y.new_zeros(self.data.rows, self.data.outputs + functions)
        # The last values with a gradient.
        self.good = self.vector
        self.gains: list[float] = []
        self.event: str | None = None
        if saved:
            self.resume(tensors, header)

    def nearer(self) -> Float64[Tensor, " p"]:
        """The values of most evidence on the first rows, or those at hand where these have none."""
        rows = self.order[: self.method.first_rows]
        vector, event = maximize_on(self.task, rows, FIRST_STEPS, {}, spread=FIRST_SPREAD)
        return self.vector if event is not None else self.task.bounds.clamp(vector)

    @property
    def count(self) -> int:
        """Steps taken."""
        return len(self.gains)

    @property
    def finished(self) -> bool:
        """Whether to stop here."""
        recent = self.gains[-PATIENCE:]
        settled = len(recent) == PATIENCE and sum(recent) < PATIENCE * self.method.tolerance
        return self.count >= self.method.steps or settled or self.event is not None

    def step(self) -> None:
        """Solve, take the gradient, move."""
        task, before = self.task, self.vector
        task.parameters.assign(before)
        result = self.solve()
        data_part, sample_part = self.gradients(result.solution)
        gradient = (data_part - sample_part + task.prior.log_density(before)[1]) / (self.data.rows * self.data.outputs)
        if not bool(torch.isfinite(gradient).all()):
            self.event, self.vector = "the gradient is not finite", self.good
            return
        self.good = before
        self.solution = result.solution
        self.move(gradient, data_part, sample_part)
        # In absolute values: momentum that overshoots is no sign of having arrived.
        self.gains.append(float(gradient.abs() @ (self.vector - before).abs()))
        task.record(
            before,
            gradient_norm=float(gradient.norm()),
            gain=self.gains[-1],
            effective_dimension=self.effective_dimension(),
            residual=float(result.residual.max()),
            epochs=result.epochs,
            solve_seconds=result.seconds,
            precision=str(self.data.X.dtype).removeprefix("torch."),
        )

    def move(self, gradient: Tensor, data_part: Tensor, sample_part: Tensor) -> None:
        """Adam's step, MacKay's where it was asked for, and back within the bounds."""
        step = self.adam.step(gradient)
        step[self.amplitudes] = fixed_point(data_part, sample_part)[self.amplitudes]
        self.vector = self.task.bounds.clamp(self.vector + step)

    @torch.no_grad()
    def solve(self) -> Result:
        """``H [v_y | z] = [y − m | ξ]`` from the last answer."""
        gp, noise = self.task.gp, self.noise()
        if rounding(gp.kernel, replace(self.data, noise=noise)) > MUCH:
            self.widen()
            noise = self.noise()
        data = self.data
        targets = torch.cat([data.Y - gp.mean.to(data.Y.dtype), self.draws.noisy(data.X, noise)], dim=1)
        generator = torch.Generator().manual_seed(self.seed + 1 + self.count)
        with warnings.catch_warnings():
            # Cut off on purpose; the residual is in the history.
            warnings.simplefilter("ignore", ConvergenceWarning)
            system = self.kernel + Diagonal(noise)
            return self.method.solver.solve(system, targets, guess=self.solution, generator=generator)

    def widen(self) -> None:
        """To float64, for good."""
        self.data, self.solution = self.data.double(), self.solution.double()
        self.draws = self.draws.cast(torch.float64)
        self.kernel = KernelOperator(self.task.gp.kernel, self.data.X)

    @torch.no_grad()
    def gradients(self, solution: Float[Tensor, "n s"]) -> tuple[Float64[Tensor, " p"], Float64[Tensor, " p"]]:
        """``½ v_yᵀ ∂H v_y`` and ``(c/2k) Σ_j z_jᵀ ∂H z_j``, or their difference and zero where that is enough."""
        c, k = self.data.outputs, solution.shape[1] - self.data.outputs
        weight = torch.full_like(solution[0], 0.5 * c / k)
        weight[:c] = 0.5
        if self.amplitudes:
            parts = [self.contracted(solution[:, s], weight[s]) for s in (slice(0, c), slice(c, c + k))]
            parts[0] += self.by_mean(solution)
            return parts[0], parts[1]
        weight[c:] *= -1.0
        total = self.contracted(solution, weight) + self.by_mean(solution)
        return total, torch.zeros_like(total)

    def contracted(self, columns: Float[Tensor, "n s"], weight: Float[Tensor, " s"]) -> Float64[Tensor, " p"]:
        """``Σ_j weight_j u_jᵀ ∂H u_j``."""
        kernel = contract(self.task.gp.kernel, self.data.X, low_rank(columns, columns * weight))
        by_noise = (columns.to(torch.float64).square() * weight.to(torch.float64)).sum(1)
        return self.task.parameters.gradient(kernel, by_noise, by_noise.new_zeros(self.data.outputs))

    def by_mean(self, solution: Float[Tensor, "n s"]) -> Float64[Tensor, " p"]:
        """``1ᵀ v_y``."""
        gp, sums = self.task.gp, solution[:, : self.data.outputs].to(torch.float64).sum(0)
        nothing = [torch.zeros_like(p) for p in gp.kernel.parameters()]
        return self.task.parameters.gradient(nothing, sums.new_zeros(1), sums)

    def effective_dimension(self) -> float:
        """``tr(K H⁻¹) ≈ n − mean_j Σ_i N_ii z_ij²``, clipped to what is possible."""
        squares = self.solution[:, self.data.outputs :].to(torch.float64).square().mean(1)
        return min(max(0.0, self.data.rows - float(self.noise().to(torch.float64) @ squares)), float(self.data.rows))

    def noise(self) -> Float[Tensor, " n"]:
        """One variance per row, as it stands."""
        gp, data = self.task.gp, self.data
        return gp.noise.detach().to(data.Y.dtype).expand(data.rows) if gp.log_noise.ndim == 0 else data.noise

    def warm_start(self) -> WarmStart:
        """Draws and solution in the caller's order of rows."""

        def back(rows: Tensor) -> Tensor:
            return torch.empty_like(rows).index_copy_(0, self.order, rows)

        draws = PriorDraws(self.draws.functions, back(self.draws.normals))
        return WarmStart(draws, back(self.solution), digest(self.task.data.X, self.task.data.Y))

    def save(self) -> None:
        """Write a checkpoint; the draws come back from the seed."""
        assert self.task.checkpoint is not None
        tensors = {
            "vector": self.vector,
            "good": self.good,
            "solution": self.solution,
            "mean": self.adam.mean,
            "square": self.adam.square,
        }
        header = {
            "identity": self.identity,
            "seed": self.seed,
            "gains": self.gains,
            "history": self.task.history,
            "seconds": self.task.seconds,
        }
        self.task.checkpoint.save(tensors, header)

    def resume(self, tensors: dict[str, Tensor], header: dict) -> None:
        """Go on where a checkpoint was written."""
        self.vector, self.good, self.gains = tensors["vector"], tensors["good"], header["gains"]
        self.adam.mean, self.adam.square, self.adam.count = tensors["mean"], tensors["square"], self.count
        if tensors["solution"].dtype != self.solution.dtype:
            self.widen()
        self.solution = tensors["solution"].to(self.solution.device)
        self.task.history.extend(header["history"])
        self.task.began -= header["seconds"]
