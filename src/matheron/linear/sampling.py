"""Posterior samples and the mode by stochastic gradient descent on the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between
from matheron.linear.data import Batch, Data
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers, regularizers_of
from matheron.linear.samples import Samples, Warm, measure, units
from matheron.linear.starting import set_out
from matheron.linear.steepness import steepness
from matheron.seeds import own_source
from matheron.solvers.iteration import LIMIT

Objective = Literal["low-variance", "plain"]
Monitor = Callable[[Tensor, Tensor | None], Mapping[str, float]]
"""Called with samples ``(s, d)`` and mode ``(d,)`` after each sweep; what it returns joins the trace, untimed."""

GROWTH = 3.0
"""A sweep whose mean gradient is this many times that of the first one diverges."""


@dataclass(frozen=True)
class Descent:
    """Nesterov's momentum, a geometric average and a measured step; at most ``epochs`` passes or until ``tolerance``.

    The step is ``step / (λ + (λ_b − λ) / (2 − 2ρ))``, with ``λ`` the largest eigenvalue of the objective's curvature
    over several batches and ``λ_b`` over one at a time: what momentum ``ρ`` carries is used up where all batches
    agree and overshoots where each has directions of its own. ``averaging`` over the number of steps is the weight of
    the newest iterate in the average. Over the last part, ``cooling``, of the steps they shrink to zero, unless all
    data are one batch: each datum pulls once a pass, so that iterates drift between its visits by an amount in
    proportion to the step, which no average removes. Gradients beyond ``clip`` times the first are shortened, sample
    by sample.

    >>> Descent(epochs=10.0).momentum
    0.9
    """

    epochs: float = 40.0
    tolerance: float = 0.05
    momentum: float = 0.9
    step: float = 0.5
    averaging: float = 20.0
    cooling: float = 0.5
    clip: float = 5.0

    keep_noise: ClassVar[bool] = False
    """Regularizers need not keep their noise row by row."""

    def __post_init__(self) -> None:
        require_between("epochs", self.epochs, 0.0, 1e9)
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("momentum", self.momentum, -1e-9, 0.9999)
        require_between("step", self.step, 0.0, 2.0)
        require_between("averaging", self.averaging, 0.0, 1e9)
        require_between("cooling", self.cooling, -1e-9, 1.0)
        require_between("clip", self.clip, 0.0, 1e9)

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
        monitor: Monitor | None = None,
    ) -> Samples:
        """Samples and mode, started from those of ``warm``."""
        return sample_then_optimize(
            data, prior, regularizers, warm=warm, mode=mode, settings=self, generator=generator,
            progress=progress, monitor=monitor,
        )  # fmt: skip


@torch.no_grad()
def sample_then_optimize(
    data: Data,
    prior: Prior,
    num: int | Regularizers,
    *,
    guess: Float[Tensor, "s d"] | None = None,
    mode_guess: Float[Tensor, " d"] | None = None,
    warm: Warm | None = None,
    mode: bool = True,
    objective: Objective = "low-variance",
    settings: Descent | None = None,
    generator: torch.Generator | int | None = None,
    progress: bool = False,
    monitor: Monitor | None = None,
) -> Samples:
    """``ζ = argmin ½‖Φz‖²_B + ½‖z − w₀′‖²_A ~ N(0, H⁻¹)`` and ``w⋆ = argmin ℓ(Φw) + ½‖w‖²_A``, all at once.

    Samples and mode are columns of the same products with ``Φ`` and ``Φᵀ``. The plain objective, ``½‖Φz − ε‖²_B + ½‖z
    − w₀‖²_A``, has the same optimum. Each step is multiplied by ``A⁻¹``, which is descent in coordinates where the
    prior is white: there the curvature is at least 1, directions that no datum sees start at their solution, the
    prior sample, and a scale of the features that the prior follows changes nothing. ``warm`` gives guesses and steps
    from an earlier prior, a multiple of this one by group. Thesis, sections 4.2.2, 4.3.3 and 6.2.4.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> Phi, w = torch.randn(200, 10, generator=g), torch.ones(10)
    >>> data = StoredData(Dense(Phi), GaussianCurvature(1.0, size=200), Phi @ w, batch_size=50)
    >>> result = sample_then_optimize(data, DiagonalPrior(1.0, num_weights=10), 4, generator=g)
    >>> result.converged, result.samples.shape
    (True, torch.Size([4, 10]))
    """
    settings = settings or Descent()
    if objective not in ("low-variance", "plain"):
        raise ValueError(f"objective must be 'low-variance' or 'plain', got {objective!r}")
    plain = objective == "plain"
    source = own_source(generator)
    drawn = regularizers_of(num, data, prior, source, mode=mode, keep_noise=plain)
    if plain and drawn.noise is None:
        raise ValueError("the plain objective needs its noise row by row; draw regularizers with keep_noise=True")
    run = _Run(settings, data, prior, drawn, mode, plain, source)
    run.start(guess, mode_guess, warm)
    if num is not drawn:
        run.epochs += drawn.epochs
    return run.finish(progress, monitor).warn()


class _Run:
    """One descent: samples in the first rows, the mode in the last."""

    def __init__(
        self,
        settings: Descent,
        data: Data,
        prior: Prior,
        regularizers: Regularizers,
        mode: bool,
        plain: bool,
        generator: torch.Generator,
    ) -> None:
        self.settings, self.data, self.prior, self.generator = settings, data, prior, generator
        self.regularizers, self.mode, self.num = regularizers, mode, len(regularizers)
        self.began, self.epochs, self.steps = time.perf_counter(), 0.0, 0
        self.trace: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.units = units(prior, regularizers, mode)[:, None]
        self.noise = regularizers.noise if plain else None
        center = regularizers.start(prior) if plain else regularizers.center(prior)
        self.center = torch.cat([center, torch.zeros_like(center[:1])]) if mode else center
        # The mode of a loss that is not quadratic has no use for averages: its step goes to zero instead.
        self.decays = torch.zeros(len(self.center), 1, dtype=torch.bool, device=data.device)
        if mode and not data.quadratic:
            self.decays[-1] = True

    def start(self, guess: Tensor | None, mode_guess: Tensor | None, warm: Warm | None) -> None:
        """Guesses and steps."""
        if warm is not None:
            guess = self.rescaled(warm) if guess is None else guess
            mode_guess = warm.mode if mode_guess is None else mode_guess
        rows = self.regularizers.start(self.prior) if guess is None else guess.clone()
        if rows.shape != self.regularizers.unit.shape:
            raise ValueError(f"guess has shape {tuple(rows.shape)}; give {tuple(self.regularizers.unit.shape)}")
        if self.mode:
            if mode_guess is None:
                mode_guess = set_out(self.data, self.prior, self.data.guess)[0][:, 0]
                self.epochs += 0.0 if self.data.guess is None else 0.5
            rows = torch.cat([rows, mode_guess[None]])
        self.weights = rows
        self.velocity = torch.zeros_like(rows)
        self.average = rows.clone()
        self.safe = rows.clone(), rows.clone()
        self.least = torch.full((len(rows), 1), torch.inf, dtype=rows.dtype, device=rows.device)
        self.reference, self.first = torch.zeros_like(self.least), self.least
        if warm is not None and warm.steepness is not None and len(warm.steepness) == 1 + int(self.decays.any()):
            # Curvature without the prior grows at most by the largest ratio of the two priors' variances.
            ratio = float((warm.prior.values / self.prior.values).max())
            self.steepness = (warm.steepness - 1.0) * max(ratio, 1e-6) + 1.0
        else:
            self.steepness = self.measure_steepness()
        whole, each = self.steepness[:, 0], self.steepness[:, 1]
        slowest = whole + (each - whole).clamp(min=0.0) / (2.0 - 2.0 * self.settings.momentum)
        size = (self.settings.step / slowest).to(rows)
        self.step = size[0].expand(len(rows), 1).clone()
        if bool(self.decays.any()):
            self.step[-1] = size[1]

    def rescaled(self, warm: Warm) -> Float[Tensor, "s d"]:
        """Earlier samples in this prior's units: those directions that no datum sees are solved by that."""
        if len(warm.samples) != self.num:
            raise ValueError(f"warm has {len(warm.samples)} samples but {self.num} are drawn; keep the regularizers")
        half = warm.prior.scaled((self.prior.values / warm.prior.values).sqrt())
        return half.covariance(warm.prior.precision(warm.samples.mT)).mT

    def measure_steepness(self) -> Float[Tensor, "t 2"]:
        """Of the samples' objective and, where the mode's is another, of that one where it starts."""
        at = self.weights[-1] if bool(self.decays.any()) else None
        found, passes = steepness(self.data, self.prior, self.regularizers.pull[0], at, self.generator)
        self.epochs += passes
        return found

    def finish(self, progress: bool, monitor: Monitor | None) -> Samples:
        """Sweep until the tolerance or the epochs are reached, then measure."""
        settings, trust, measured = self.settings, 1.0, None
        sweeps = max(1.0, settings.epochs - self.epochs - 1.0)
        self.total_steps = max(1.0, sweeps * self.data.num_batches)
        chi = torch.full_like(self.step, min(1.0, settings.averaging / self.total_steps))
        self.chi = torch.where(self.decays, 1.0, chi)
        bar = tqdm(total=settings.epochs, disable=not progress, unit="epoch", desc="sample-then-optimize")
        first = True
        while first or self.epochs + 2.0 <= settings.epochs:
            first, seen = False, len(self.events)
            estimate = float((self.sweep() / self.units).max())
            measured = None
            record: dict[str, Any] = {"epochs": self.epochs, "seconds": self.seconds, "estimate": estimate}
            self.trace.append(record)
            if self.events[seen:]:
                record["event"] = "; ".join(self.events[seen:])
            if monitor is not None:
                paused = time.perf_counter()
                record.update(monitor(self.average[: self.num], self.average[-1] if self.mode else None))
                self.began += time.perf_counter() - paused
            bar.update(1)
            bar.set_postfix(residual=f"{estimate:.2g}")
            if estimate * trust <= settings.tolerance and self.epochs + 1.0 <= settings.epochs:
                measured = self.measure()
                if bool((measured.residual <= settings.tolerance).all()):
                    break
                # Ask again only when the estimate has fallen by what it was off this time, so that checks stay few.
                trust = 1.2 * float(measured.residual.max()) / max(estimate, 1e-30)
        bar.close()
        measured = self.measure() if measured is None else measured
        return Samples(
            samples=self.average[: self.num],
            mode=self.average[-1] if self.mode else None,
            measured=measured,
            prior=self.prior,
            tolerance=settings.tolerance,
            epochs=self.epochs,
            seconds=self.seconds,
            method=repr(settings),
            trace=self.trace,
            events=self.events,
            steepness=self.steepness,
        )

    def sweep(self) -> Float[Tensor, "k 1"]:
        """One pass; returns the norm of the mean gradient on the way, an estimate that costs nothing."""
        begin = self.weights.clone(), self.average.clone()
        total = torch.zeros_like(self.weights)
        for batch in self.data.batches(self.generator):
            lookahead = torch.add(self.weights, self.velocity, alpha=self.settings.momentum)
            gradient = self.gradient(batch, lookahead)
            self.epochs += batch.rows / self.data.num_rows
            size = self.norm(gradient)
            unset = (self.reference == 0) & size.isfinite()
            # What a poor guess begins with is no sign of divergence.
            self.reference = torch.where(unset, torch.maximum(size, self.units), self.reference)
            lost = ~(size < LIMIT * self.reference)
            if bool(lost.any()):
                self.mend(lost)
                gradient, size = torch.where(lost, 0.0, gradient), torch.where(lost, self.reference, size)
            total += gradient
            allowed = (self.settings.clip * self.reference / size.clamp(min=1e-30)).clamp(max=1.0)
            step = self.step * allowed * self.cooled()
            self.velocity.mul_(self.settings.momentum).addcmul_(step, gradient, value=-1.0)
            self.weights += self.velocity
            self.average.lerp_(self.weights, self.chi)
            self.steps += 1
        size = self.norm(total / self.data.num_batches)
        if not self.trace:
            self.first = size
        lost = size > torch.maximum(GROWTH * self.first, self.units)
        if bool(lost.any()):
            self.mend(lost)
        better = (size < self.least) & ~lost
        self.least = torch.where(better, size, self.least)
        self.safe = torch.where(better, begin[0], self.safe[0]), torch.where(better, begin[1], self.safe[1])
        return size

    def gradient(self, batch: Batch, weights: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
        """``A⁻¹ ∂L``, unbiased: a batch stands for all of them, also where the last is smaller."""
        F = batch.features @ weights.mT
        fits = F[:, : self.num]
        if self.noise is None:
            slopes = batch.curvature @ fits
        else:
            slopes = batch.curvature @ fits - batch.curvature.root @ self.noise[:, self.rows(batch)].mT
        if self.mode:
            slopes = torch.cat([slopes, batch.loss_gradient(F[:, self.num :])], dim=1)
        pulled = self.prior.covariance(batch.features.T @ slopes).mT * self.data.num_batches
        return pulled.add_(weights).sub_(self.center)

    def rows(self, batch: Batch) -> Tensor:
        """Where the rows of a batch stand in the order of the data."""
        if batch.index is None:
            raise ValueError("the plain objective needs to know which data a batch holds; give batches their index")
        outputs = batch.curvature.outputs
        return (batch.index[:, None] * outputs + torch.arange(outputs, device=batch.index.device)).flatten()

    def norm(self, gradient: Float[Tensor, "k d"]) -> Float[Tensor, "k 1"]:
        """``‖A⁻¹∂L‖_A``, which is ``‖∂L‖`` where the prior is white."""
        return (gradient * self.prior.precision(gradient.mT).mT).sum(1, keepdim=True).clamp(min=0.0).sqrt()

    def mend(self, lost: Bool[Tensor, "k 1"]) -> None:
        """Bring columns that diverge back to where their best sweep began, with half the step."""
        self.weights = torch.where(lost, self.safe[0], self.weights)
        self.average = torch.where(lost, self.safe[1], self.average)
        self.velocity = torch.where(lost, 0.0, self.velocity)
        self.step = torch.where(lost, self.step / 2.0, self.step)
        self.events.append(f"diverged: step of {int(lost.sum())} columns halved to {float(self.step[lost].min()):.3g}")

    def cooled(self) -> Float[Tensor, "k 1"]:
        """How much of the step is left at this point: it falls to zero over the last part, for some over all."""
        left = max(0.0, 1.0 - self.steps / self.total_steps)
        cooling = self.settings.cooling if self.data.num_batches > 1 else 0.0
        return torch.where(self.decays, left, min(1.0, left / cooling) if cooling > 0.0 else 1.0)

    def measure(self) -> Any:
        """A full pass at the averages."""
        self.epochs += 1.0
        mode = self.average[-1] if self.mode else None
        return measure(self.data, self.prior, self.regularizers, self.average[: self.num], mode, self.generator)

    @property
    def seconds(self) -> float:
        """Time in the descent."""
        return time.perf_counter() - self.began
