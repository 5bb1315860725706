"""Precisions learned from posterior samples: MacKay's update inside expectation maximization."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between, require_count
from matheron.linear.data import Data
from matheron.linear.em_state import EMState, identity_of
from matheron.linear.prior import Prior, require_prior
from matheron.linear.regularizers import Regularizers, draw_regularizers
from matheron.linear.samples import Measurement, Samples, Warm, WarmStart
from matheron.linear.sampling import Descent
from matheron.seeds import draw_seed, own_source
from matheron.solvers import ConvergenceWarning
from matheron.solvers.checkpoint import Checkpoint

Estimator = Literal["function", "weight", "pull"]

MOST = 1e4
"""No update changes a precision by more than this factor."""

LEAST = 1e-6
"""An effective dimension is not taken for less."""

LEAST_NOISE = 1e-8
"""Of the mean square of what the weights have to explain: less cannot be told from rounding."""

FAINT = 1e-3
"""A group of less effective dimension keeps its precision: nothing would come of a larger one."""


@runtime_checkable
class EStep(Protocol):
    """Samples and mode for a given prior: ``Descent``, ``DualSolve``, ``DenseSolve`` or one's own.

    >>> from matheron.linear import Descent
    >>> isinstance(Descent(), EStep)
    True
    """

    @property
    def keep_noise(self) -> bool:
        """Whether regularizers must keep their noise row by row."""

    def posterior(
        self,
        data: Data,
        prior: Prior,
        regularizers: Regularizers,
        *,
        mode: bool = ...,
        warm: Warm | None = ...,
        generator: torch.Generator,
        progress: bool = ...,
    ) -> Samples:
        """Solve, starting from ``warm``."""


@dataclass(frozen=True, eq=False)
class EffectiveDimension:
    """``γ_g`` of each group, within ``(0, min(d_g, nc))``, and what clipping did.

    >>> found = EffectiveDimension(torch.tensor([2.0, 3.0]), torch.tensor([2.0, 5.5]), most=10.0)
    >>> found.total, found.clipped  # of three weights in the second group
    (7.5, 1)
    """

    by_group: Float[Tensor, " g"]
    raw: Float[Tensor, " g"]
    """Before it was clipped."""
    most: float
    """What all groups together can have, ``min(d, nc)``."""

    @property
    def total(self) -> float:
        """``γ``: clipped as a whole, as errors of groups that stand in for each other cancel."""
        return min(max(float(self.raw.sum()), LEAST), self.most)

    @property
    def clipped(self) -> int:
        """How many groups were clipped."""
        return int((self.by_group != self.raw).sum())


def effective_dimension(
    measured: Measurement, prior: Prior, num_rows: int, estimator: Estimator = "function"
) -> EffectiveDimension:
    """``γ = tr(H⁻¹M)`` from samples, by group.

    ``"function"``: ``mean_j ζ_gᵀ(Mζ)_g``, in all ``mean_j Σ_i ‖Φ_iζ_j‖²_{B_i}``, which is never negative but can
    exceed its bound. ``"weight"``: ``d_g − mean_j ‖ζ_g‖²_A``, which varies more where ``γ`` is far below ``d`` and
    can be negative. ``"pull"``: ``mean_j ‖(w₀ − ζ)_g‖²_A``, how far the data pulled a prior sample: never negative and
    steady where groups stand in for each other, but only for samples that have converged. Thesis, sections 2.4.4 and
    6.2.1.
    """
    sizes = prior.group_sizes
    if estimator == "function":
        raw = measured.fits.mean()[None] if len(sizes) == 1 else measured.curvature_forms.mean(1)
    elif estimator == "weight":
        raw = sizes - measured.prior_forms.mean(1)
    elif estimator == "pull":
        raw = measured.pulled_forms.mean(1)
    else:
        raise ValueError(f"estimator must be 'function', 'weight' or 'pull', got {estimator!r}")
    most = sizes.clamp(max=float(num_rows))
    # A group without effective dimension would have a precision of zero, an improper prior.
    return EffectiveDimension(torch.minimum(raw.clamp(min=LEAST), most), raw, min(float(sizes.sum()), float(num_rows)))


def precision_factors(
    measured: Measurement, dimension: EffectiveDimension
) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
    """``γ_g / ‖w⋆_g‖²_A``, what MacKay's update multiplies each precision by, within 10⁴ either way; and unlimited."""
    if measured.mode_forms is None:
        raise ValueError("the update needs the mode; measure it with the samples")
    raw = dimension.by_group / measured.mode_forms.clamp(min=torch.finfo(torch.float64).tiny)
    return raw.clamp(min=1.0 / MOST, max=MOST), raw


def noise_factor(measured: Measurement, dimension: EffectiveDimension, num_rows: int) -> float:
    """``(nc − γ) / (b ‖Y − Φw⋆‖²)``, what the update multiplies a Gaussian noise precision ``b`` by.

    The noise keeps a variance of 10⁻⁸ of the mean square of the targets ``Y``: data that the weights fit to the last
    digit would have it vanish, and the posterior with it.
    """
    if measured.loss is None or measured.loss_at_zero is None:
        raise ValueError("the update needs the mode; measure it with the samples")
    if measured.loss_at_zero == 0.0:  # nothing to explain, and nothing to learn from
        return 1.0
    freedom = max(num_rows - dimension.total, 1e-6 * num_rows)
    factor = min(max(freedom / max(2.0 * measured.loss, 1e-300), 1.0 / MOST), MOST)
    return min(factor, num_rows / (2.0 * LEAST_NOISE * measured.loss_at_zero))


@dataclass(frozen=True, eq=False)
class Learned:
    """The learned prior, with the data's learned noise, and the samples of the last E-step, under the prior before it.

    ``history`` has a record per step: ``precision``, ``effective_dimension`` (``"function"`` and ``"weight"``),
    ``mode_norm``, ``sample_norm``, ``residual``, ``mode_residual`` (none where the mode is given), ``loss``,
    ``epochs``, ``seconds``, and ``noise_precision`` where learned.

    >>> from matheron.linear import DenseSolve, DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(4, 1)), GaussianCurvature(1.0, size=4), torch.full((4,), 5.0))
    >>> learned = learn_prior(data, DiagonalPrior(1.0, num_weights=1), settings=DenseSolve(), generator=0)
    >>> learned.converged, learned.samples.mode is not None, "precision" in learned.history[0]
    (True, True, True)
    """

    prior: Prior
    data: Data
    samples: Samples
    regularizers: Regularizers
    converged: bool
    epochs: float
    seconds: float
    history: list[dict[str, Any]] = field(repr=False)


@torch.no_grad()
def learn_prior(
    data: Data,
    prior: Prior,
    *,
    em_steps: int = 8,
    num_samples: int = 6,
    settings: EStep | None = None,
    estimator: Estimator = "function",
    tolerance: float = 0.05,
    learn_noise: bool = False,
    regularizers: Regularizers | None = None,
    generator: torch.Generator | int | None = None,
    progress: bool = False,
    checkpoint: Checkpoint | Path | str | None = None,
    keep_checkpoint: bool = False,
) -> Learned:
    """``a_g ← γ_g / ‖w⋆_g‖²`` until no ``log a`` moves by more than ``tolerance``, or ``em_steps`` times.

    The E-step draws ``num_samples`` posterior samples and finds the mode by ``settings``; regularizers are drawn once
    and follow the precision in closed form, and each E-step starts from the last one's result. ``learn_noise`` also
    updates the noise precision of ``data``, ``b ← (nc − γ) / ‖Y − Φw⋆‖²``. Where the curvature of the data follows the
    mode, regularizers are drawn anew from the same random numbers. With a ``checkpoint`` an interrupted run
    goes on from its last E-step to the same result; it is removed at the end unless it is to be kept for what follows.
    Thesis, section 6.2.

    >>> import torch
    >>> from matheron.linear import DenseSolve, DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> Phi, w = torch.randn(300, 40, generator=g), 0.5 * torch.randn(40, generator=g)
    >>> Y = Phi @ w + torch.randn(300, generator=g)
    >>> data = StoredData(Dense(Phi), GaussianCurvature(1.0, size=300), Y)
    >>> learned = learn_prior(data, DiagonalPrior(100.0, num_weights=40), settings=DenseSolve(), generator=g)
    >>> learned.converged, bool(2.0 < learned.prior.values < 8.0)  # the weights were drawn with a precision of 4
    (True, True)
    """
    require_count("em_steps", em_steps)
    require_between("tolerance", tolerance, 0.0, 1e9)
    require_prior(prior, data)
    if estimator not in get_args(Estimator):
        raise ValueError(f"estimator must be one of {', '.join(get_args(Estimator))}, got {estimator!r}")
    settings = settings if settings is not None else Descent()
    if not isinstance(settings, EStep):
        raise TypeError(f"settings must be an E-step such as Descent() or DenseSolve(), got {settings!r}")
    if learn_noise:
        _ = data.noise_precision
    source = own_source(generator)
    began, place = time.perf_counter(), Checkpoint.of(checkpoint)
    identity = identity_of(data, prior, num_samples, settings, estimator, learn_noise) if place else {}
    state = EMState.load(place, identity, data, prior, source) if place else None
    if state is None:
        seed, drawn = draw_seed(source), regularizers
        if drawn is None:
            drawn = _draw(data, num_samples, settings, seed)
        state = EMState(prior, data, drawn, None, [], drawn.epochs if regularizers is None else 0.0, 0.0, seed)
    before, done = state.seconds, len(state.history)
    for _ in tqdm(range(done, max(em_steps, done + 1)), disable=not progress, unit="step", desc="EM"):
        if place is not None:
            state.save(place, identity, source, learn_noise)
        found = settings.posterior(
            state.data, state.prior, state.regularizers, mode=True, warm=state.warm, generator=source, progress=progress
        )
        seconds = before + time.perf_counter() - began
        state = maximized(state, found, estimator=estimator, learn_noise=learn_noise, seconds=seconds)
        state = followed(state, settings)
        moved = state.history[-1]["moved"]
        if moved <= tolerance:
            break
    else:
        warnings.warn(
            f"the prior precision still moved by {moved:.2g} in its logarithm at EM step {len(state.history)}, above "
            f"the tolerance {tolerance:g}; allow more em_steps, or loosen the tolerance",
            ConvergenceWarning,
            stacklevel=3,
        )
    if place is not None and not keep_checkpoint:
        place.remove()
    return Learned(
        state.prior, state.data, found, state.regularizers, moved <= tolerance, state.epochs, state.seconds,
        state.history,
    )  # fmt: skip


def maximized(state: EMState, found: Samples, *, estimator: Estimator, learn_noise: bool, seconds: float) -> EMState:
    """The M-step: precisions and, where it is learnt, the noise follow the samples; the step joins the history."""
    data, prior, regularizers, warm = state.data, state.prior, state.regularizers, WarmStart.of(found)
    both = {name: effective_dimension(found.measured, prior, data.num_rows, name) for name in get_args(Estimator)}
    factors, raw = precision_factors(found.measured, both[estimator])
    epochs = state.epochs + found.epochs
    record = _record(len(state.history), data, prior, found, both, epochs, seconds)
    events = list(found.events)
    if both[estimator].clipped:
        events.append(f"effective dimension of {both[estimator].clipped} groups clipped to its bounds")
    if bool((factors != raw).any()):
        events.append(f"{int((factors != raw).sum())} precisions held to a change of {MOST:g}")
    # The evidence rises forever with the precision of weights that the data can do without, and by next to nothing.
    faint = (both[estimator].by_group < FAINT) & (factors > 1.0)
    if bool(faint.any()):
        events.append(f"{int(faint.sum())} precisions kept: the data say nothing of their weights")
        factors = torch.where(faint, 1.0, factors)
    moved = float(factors.log().abs().max())
    factors = settling(factors, prior, state.history)
    if learn_noise:
        change = noise_factor(found.measured, both["function"], data.num_rows)
        record["noise_precision"] = data.noise_precision
        if 2.0 * LEAST_NOISE * (found.measured.loss_at_zero or 0.0) * change >= (1.0 - 1e-9) * data.num_rows:
            events.append(f"noise held at {LEAST_NOISE:g} of the mean square of the targets: nothing is left over")
        data = data.with_noise_precision(change * data.noise_precision)
        regularizers = regularizers.with_noise_scaled(change)
        # Steps and sketches were measured under the noise before.
        steepness = None if warm.steepness is None else (warm.steepness - 1.0) * change + 1.0
        sketch = None if warm.sketch is None else change**0.5 * warm.sketch
        warm = replace(warm, steepness=steepness, sketch=sketch)
        moved = max(moved, abs(math.log(change)))
    history = [*state.history, record | {"moved": moved, "events": events}]
    return EMState(prior.scaled(factors), data, regularizers, warm, history, epochs, seconds, state.seed)


def settling(factors: Float[Tensor, " g"], prior: Prior, history: list[dict[str, Any]]) -> Float[Tensor, " g"]:
    """Half of the step, in its logarithm, for each precision that would turn back: those that swing come to rest.

    They do where the curvature follows the mode, which a small precision lets fit all data, and where samples are few.

    >>> from matheron.linear import DiagonalPrior
    >>> settling(torch.tensor([4.0]), DiagonalPrior(1.0, num_weights=2), [{"precision": [10.0]}])
    tensor([2.])
    """
    if not history:
        return factors
    last = prior.values.log() - torch.tensor(history[-1]["precision"]).to(prior.values).log()
    return torch.where(factors.log() * last.to(factors) < 0.0, factors.sqrt(), factors)


def followed(state: EMState, settings: EStep) -> EMState:
    """Curvature and regularizers at the mode of the last E-step, where the data's curvature follows it."""
    assert state.warm is not None
    mode = state.warm.mode
    assert mode is not None
    data = state.data.following(mode)
    if data is state.data:
        return state
    # A precision can rest while the curvature still moves, and the loss with it; after the first step it always has.
    history, losses = state.history, [record["loss"] for record in state.history[-2:]]
    moved = math.inf if len(losses) == 1 else 0.0
    if len(losses) == 2 and min(losses) > 0.0:
        moved = abs(math.log(losses[-1] / losses[0]))
    history = [*history[:-1], history[-1] | {"moved": max(moved, history[-1]["moved"])}]
    # The same random numbers, so that a step moves the prior by what it learnt and not by chance.
    drawn = _draw(data, len(state.regularizers), settings, state.seed)
    # Solutions of the dual system are in the coordinates of the former root of B.
    warm = replace(state.warm, dual=None, steepness=None)
    epochs = state.epochs + drawn.epochs
    return replace(state, data=data, regularizers=drawn, warm=warm, history=history, epochs=epochs)


def _draw(data: Data, num_samples: int, settings: EStep, seed: int) -> Regularizers:
    source = torch.Generator().manual_seed(seed)
    return draw_regularizers(data, num_samples, source, mode=True, keep_noise=settings.keep_noise)


def _record(
    step: int,
    data: Data,
    prior: Prior,
    found: Samples,
    dimensions: dict[str, EffectiveDimension],
    epochs: float,
    seconds: float,
) -> dict[str, Any]:
    assert found.mode is not None
    return {
        "step": step,
        "precision": prior.values.tolist(),
        "effective_dimension": {name: dimension.total for name, dimension in dimensions.items()},
        "effective_dimension_by_group": {name: dimension.raw.tolist() for name, dimension in dimensions.items()},
        "mode_norm": float(found.mode.norm()),
        "sample_norm": float(found.samples.norm(dim=1).mean()),
        "residual": float(found.residual[: len(found.samples)].max()),
        "mode_residual": found.mode_residual,
        "loss": found.measured.loss,
        "low_variance_preferred": found.low_variance_preferred,
        "epochs": epochs,
        "seconds": seconds,
    }
