"""Filter-wise priors learnt with their noise: the evidence of a scan, and what is known of lengthscales."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between, require_count
from matheron.gp.fitting.adam import Adam
from matheron.linear.filter_prior import FilterPrior, Held
from matheron.linear.slopes import SlopesOf
from matheron.solvers import ConvergenceWarning
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography.predcp import PredCP

SHORTEST, LONGEST = 0.1, 100.0
"""Lengthscales in pixels: below, the weights of a filter are independent; above, all alike."""

LEAST, MOST = 1e-8, 1e4
"""How much less and more of the measurements than its equal share a block may explain a priori: with less it is out of
the model, as automatic relevance determination leaves many; with more, the system is singular in float32."""

QUIETEST = 1e-7
"""Noise variance, in units of the mean square of the measurements."""


@dataclass(frozen=True)
class TypeTwoMAP:
    """``max 𝓖(w⋆; a, ψ, b) + log p(ψ; a)`` over logarithms, in at most ``steps`` gradients (thesis, § 7.3.1).

    ``𝓖(w⋆; ·) = −½ b ‖y − Φw⋆‖² − ½‖w⋆‖²_A − ½ logdet(K + b⁻¹I)`` holds the mode of the prior it starts from; it is
    found anew ``em_steps`` times, once in the thesis. With ``em_steps=None`` the mode follows every gradient, and ``𝓖``
    is the evidence: features that were fitted to the scan explain it from the network's last block alone, so that its
    maximum tends to leave out all others and error bars become too narrow.

    Where the evidence is factorized, by L-BFGS within bounds until a step gains less than ``gain`` nats per
    measurement. Where its gradient is sampled with ``probes``, by Adam with ``learning_rate``, until no logarithm has
    moved by more than ``tolerance`` in ``window`` steps; linear systems are solved to a relative ``residual``.

    >>> TypeTwoMAP(steps=50).window
    10
    """

    steps: int = 200
    em_steps: int | None = 1
    gain: float = 1e-6
    probes: int = 8
    residual: float = 1e-2
    learning_rate: float = 0.1
    tolerance: float = 0.05
    window: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "probes", "window", *(() if self.em_steps is None else ("em_steps",))):
            require_count(name, getattr(self, name))
        for name in ("gain", "residual", "learning_rate", "tolerance"):
            require_between(name, getattr(self, name), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class LearntFilters:
    """The prior and noise precision at the best point seen, and a record of every gradient."""

    prior: FilterPrior
    noise_precision: float
    converged: bool
    seconds: float
    history: list[dict[str, Any]] = field(repr=False)


class TypeTwo:
    """The objective as a function of ``θ = (log a, log ψ of blocks with filters, log b⁻¹)``, with its bounds.

    With the precisions ``equal``, every block explains an equal share of ``power``, the mean square of the
    measurements. ``noise_precision`` stays where ``learn_noise`` is false. ``held`` are weights in place of the mode of
    every ``θ``, and ``‖y − Φw‖²`` of them; ``slopes`` are then those without targets.

    >>> import torch
    >>> from matheron.linear import FactorizedSlopes, Filters, Part
    >>> g = torch.Generator().manual_seed(0)
    >>> start = FilterPrior(torch.ones(1), torch.ones(1), Filters([Part(18, (3, 3), 0)]))
    >>> slopes = FactorizedSlopes(start.filters, torch.randn(9, 18, generator=g), torch.randn(9, generator=g))
    >>> objective = TypeTwo(
    ...     start, slopes, None, equal=start.values, noise_precision=1.0, learn_noise=True, power=1.0, rows=9
    ... )
    >>> learnt = learn_filters(objective, TypeTwoMAP(), exact=True)
    >>> learnt.converged, learnt.history[-1]["objective"] > learnt.history[0]["objective"]
    (True, True)
    """

    def __init__(
        self,
        start: FilterPrior,
        slopes: SlopesOf,
        predcp: PredCP | None,
        *,
        equal: Float64[Tensor, " k"],
        held: tuple[Held, float] | None = None,
        noise_precision: float,
        learn_noise: bool,
        power: float,
        rows: int,
    ) -> None:
        self.start, self.slopes, self.predcp, self.held, self.rows = start, slopes, predcp, held, rows
        self.noise_precision, self.learn_noise = noise_precision, learn_noise
        self.smooth, blocks = start.filters.smooth, start.filters.num_blocks
        most, noise = equal.log(), torch.full((int(learn_noise),), math.log(power), dtype=torch.float64)
        scales = torch.ones(int(self.smooth.sum()), dtype=torch.float64)
        self.low = torch.cat([most - math.log(MOST), math.log(SHORTEST) * scales, noise + math.log(QUIETEST)])
        self.high = torch.cat([most - math.log(LEAST), math.log(LONGEST) * scales, noise])
        self.parts = [blocks, len(scales), len(noise)]

    def vector(self) -> Float64[Tensor, " p"]:
        """Where it starts, within the bounds."""
        noise = torch.full((self.parts[2],), -math.log(self.noise_precision), dtype=torch.float64)
        theta = torch.cat([self.start.values.log(), self.start.lengthscales[self.smooth].log(), noise])
        return torch.minimum(torch.maximum(theta, self.low), self.high)

    def prior(self, theta: Float64[Tensor, " p"]) -> tuple[FilterPrior, float]:
        """The prior and the noise precision at ``θ``."""
        precision, lengthscales, noise = self._split(theta)
        start = self.start
        prior = FilterPrior(precision, lengthscales, start.filters, dtype=start.dtype, device=start.device)
        return prior, self.noise_precision if noise is None else float(1.0 / noise)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with, the start aside, for its gradients to be those of this objective."""
        return {
            "rows": self.rows,
            "noise precision": "learnt" if self.learn_noise else self.noise_precision,
            "predcp": None if self.predcp is None else self.predcp.identity(),
        }

    @torch.enable_grad()
    def __call__(self, theta: Float64[Tensor, " p"]) -> tuple[dict[str, Any], Float64[Tensor, " p"]]:
        """A record and the gradient."""
        prior, b = self.prior(theta)
        found = self.slopes(prior, b)
        leaf = theta.detach().clone().requires_grad_()
        precision, lengthscales, noise = self._split(leaf)
        slope = (found.coefficients * prior.filters.coefficients(precision, lengthscales)).sum()
        slope = slope if noise is None else slope + found.noise * noise
        record: dict[str, Any] = {
            "precision": prior.values.tolist(), "lengthscales": prior.lengthscales.tolist(), "noise_precision": b,
        }  # fmt: skip
        rest = torch.zeros((), dtype=torch.float64)
        if self.held is not None:
            weights, square = self.held
            rest = weights.penalty(precision, lengthscales) - 0.5 * square * (b if noise is None else 1.0 / noise)
        record["evidence"] = None if found.value is None else found.value + float(rest.detach())
        if self.predcp is not None:
            rest = rest + self.predcp.log_prob(precision, lengthscales)
            record["expected_variation"] = self.predcp.expected_variation(prior.values, prior.lengthscales).tolist()
        record["objective"] = None if found.value is None else found.value + float(rest.detach())
        return record, torch.autograd.grad(slope + rest, leaf)[0]

    def _split(self, theta: Float64[Tensor, " p"]) -> tuple[Tensor, Tensor, Tensor | None]:
        logs, scales, noise = theta.exp().split(self.parts)
        lengthscales = self.start.lengthscales.clone()
        lengthscales[self.smooth] = scales
        return logs, lengthscales, noise[0] if self.learn_noise else None


class Seen:
    """Gradients in the order they were asked for; those in the checkpoint of an interrupted run are not taken again.

    With the last of them comes the state of what takes the next. A point that is not the recorded one ends the record:
    what follows it was of another ascent.
    """

    def __init__(self, objective: TypeTwo, checkpoint: Checkpoint | None, identity: dict[str, Any]) -> None:
        self.objective, self.checkpoint, self.identity = objective, checkpoint, identity
        self.points: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.history: list[dict[str, Any]] = []
        self.asked, self.saved, self.began = 0, 0, time.perf_counter()
        self.state: dict[str, Tensor] | None = None
        saved = checkpoint.load(identity) if checkpoint else None
        if saved:
            tensors, header = saved
            self.points, self.gradients = list(tensors["points"]), list(tensors["gradients"])
            self.history, self.saved = header["history"], len(header["history"])
            self.state = {name[6:]: value for name, value in tensors.items() if name.startswith("state.")}
            self.began -= self.history[-1]["seconds"]

    def __call__(self, theta: Float64[Tensor, " p"]) -> tuple[dict[str, Any], Float64[Tensor, " p"]]:
        """From the record, or anew."""
        place, self.asked = self.asked, self.asked + 1
        if place < len(self.points) and torch.equal(self.points[place], theta):
            if place == len(self.points) - 1 and self.state is not None:
                self.objective.slopes.restore(self.state)
            return self.history[place], self.gradients[place]
        for kept in (self.points, self.gradients, self.history):
            del kept[place:]
        self.saved, self.state = min(self.saved, place), None
        record, gradient = self.objective(theta)
        record |= {"step": place, "seconds": time.perf_counter() - self.began}
        self.points.append(theta.clone())
        self.gradients.append(gradient)
        self.history.append(record)
        if self.checkpoint is not None and self.checkpoint.due:
            self.save()
        return record, gradient

    def save(self) -> None:
        """All of them, if the checkpoint has not got them."""
        if self.checkpoint is None or self.saved == len(self.history):
            return
        tensors = {"points": torch.stack(self.points), "gradients": torch.stack(self.gradients)}
        tensors |= {f"state.{name}": value for name, value in self.objective.slopes.state().items()}
        self.checkpoint.save(tensors, {"identity": self.identity, "history": self.history})
        self.saved = len(self.history)


def learn_filters(
    objective: TypeTwo,
    settings: TypeTwoMAP,
    *,
    exact: bool,
    progress: bool = False,
    checkpoint: Checkpoint | Path | str | None = None,
) -> LearntFilters:
    """Ascend from the start; ``exact`` says that the objective has values, not only gradients.

    The checkpoint stays, so that what follows may be interrupted too; it is the caller's to remove.
    """
    identity = {"settings": repr(settings), "start": objective.vector().tolist()} | objective.identity()
    seen = Seen(objective, Checkpoint.of(checkpoint), identity)
    with tqdm(total=settings.steps, disable=not progress, unit="step", desc="Type-II MAP") as bar:
        ascend = _quasi_newton if exact else _adam
        theta, converged = ascend(objective, settings, seen, bar)
    if not converged:
        warnings.warn(
            f"the prior was still moving after {len(seen.history)} gradients; allow more steps in TypeTwoMAP",
            ConvergenceWarning,
            stacklevel=3,
        )
    seen.save()
    prior, noise_precision = objective.prior(theta)
    return LearntFilters(prior, noise_precision, converged, time.perf_counter() - seen.began, seen.history)


def _quasi_newton(objective: TypeTwo, settings: TypeTwoMAP, seen: Seen, bar: Any) -> tuple[Tensor, bool]:
    def descend(x: np.ndarray) -> tuple[float, np.ndarray]:
        record, gradient = seen(torch.from_numpy(np.array(x)))
        bar.update()
        return -record["objective"] / objective.rows, -gradient.numpy() / objective.rows

    options = {"maxfun": settings.steps, "maxiter": settings.steps, "ftol": settings.gain, "gtol": 1e-7}
    bounds = list(zip(objective.low.tolist(), objective.high.tolist(), strict=True))
    found = minimize(
        descend, objective.vector().numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )  # fmt: skip
    best = max(range(len(seen.history)), key=lambda i: seen.history[i]["objective"])
    return seen.points[best], found.status == 0


def _adam(objective: TypeTwo, settings: TypeTwoMAP, seen: Seen, bar: Any) -> tuple[Tensor, bool]:
    theta, path = objective.vector(), []
    adam = Adam(theta, settings.learning_rate)
    for _ in range(settings.steps):
        record, gradient = seen(theta)
        bar.update()
        path.append(theta)
        # Held at a bound, a gradient outward would only fill the running means.
        outward = ((theta <= objective.low) & (gradient < 0)) | ((theta >= objective.high) & (gradient > 0))
        step = adam.step(torch.where(outward, 0.0, gradient))
        theta = torch.minimum(torch.maximum(theta + step, objective.low), objective.high)
        before = path[-settings.window] if len(path) >= settings.window else None
        record["moved"] = None if before is None else float((theta - before).abs().max())
        if record["moved"] is not None and record["moved"] <= settings.tolerance:
            return theta, True
    return theta, False
