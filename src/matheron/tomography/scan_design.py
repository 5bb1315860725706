"""Which angle to scan next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_count, require_finite, require_float, require_positive, require_positive_number
from matheron.linear.design import require_criterion, scores
from matheron.linear.sequential import SequentialPosterior
from matheron.operators.base import Operator
from matheron.seeds import own_source
from matheron.tomography.counts import LineIntegrals
from matheron.tomography.fourier import Fourier
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.measurements import Weighed
from matheron.tomography.views import Views

Candidates = Sequence[float] | Sequence[int] | Tensor


class ScanDesign:
    """``argmax_β tr(Tᵝ K_{x|y} Tᵝᵀ)`` or ``½ logdet(I + b Tᵝ K_{x|y} Tᵝᵀ)``, one view after the other (§ 7.4).

    For the control loop of a scanner: :meth:`ask` names the next angle, :meth:`tell` takes its measurement. ``Tᵝ`` are
    the rows of one candidate angle (of one line, for :class:`Fourier`) and ``K_{x|y}`` the covariance of the image
    given all that was scanned, pilot included. All candidates are scored at once from ``num_samples`` images drawn from
    the prior of ``posterior``, a fitted :class:`GaussianImage` or :class:`LinearizedDIP`, and conditioned pathwise.
    Scores are in units of the noise; ``"ese"`` leaves out the noise's own part, which is the same for all. A third
    criterion, ``"evr"``, is the variance that a view would take from all views that may yet be scanned.

    ``weights`` are the precisions of new rays in units of the posterior's ``b``: a number, one for each detector, or
    one for each candidate and detector. Without them a detector is as good as it was on average in the pilot scan.

    ``level`` is how large the prior is beside the noise: the prior variance of a ray of the pilot scan, in noise
    variances, on average; without it both are as learnt. It is all that scaling one of them changes. The lower it is,
    the less a view says of others, and views crowd where the prior varies most; the higher, the farther they spread.

    A prior that follows the scan, the g-prior, is brought up to date after every ``rescale_every`` angles. Measured
    values change nothing else, unless the model is fitted anew to all of them, after every ``refit_every`` angles.

    >>> import math, torch
    >>> from matheron.tomography import GaussianImage, ParallelBeam
    >>> g = torch.Generator().manual_seed(0)
    >>> scan = ParallelBeam(12, torch.arange(3) * math.pi / 3, 17)
    >>> image = torch.zeros(12, 12)
    >>> image[3:8, 4:9] = 1.0
    >>> A = scan.operator()
    >>> y = A @ scan.flatten(image) + 0.1 * torch.randn(A.shape[0], generator=g)
    >>> post = GaussianImage(A, "matern12").fit(y, generator=g)
    >>> design = ScanDesign(post, candidates=torch.arange(30) * math.pi / 30, generator=g)
    >>> for _ in range(4):
    ...     angle = design.ask()  # move the source there
    ...     design.tell()  # without a measurement: this model's plan does not depend on them
    >>> design.angles.shape, len(set(design.indices.tolist()))
    (torch.Size([4]), 4)
    """

    def __init__(
        self,
        posterior: ImagePosterior,
        candidates: Candidates,
        *,
        criterion: str = "ese",
        weights: float | Float[Tensor, "..."] | None = None,
        level: float | None = None,
        num_samples: int = 1000,
        rescale_every: int | None = 5,
        refit_every: int | None = None,
        generator: torch.Generator | int | None = None,
    ) -> None:
        if not isinstance(posterior, ImagePosterior) or type(posterior).image_prior is ImagePosterior.image_prior:
            raise TypeError(f"posterior must be a GaussianImage or LinearizedDIP, got {type(posterior).__name__}")
        _ = posterior.mean  # refuses one that has not been fitted
        self.criterion = require_criterion(criterion)
        self.level = None if level is None else require_positive_number("level", level)
        self.num_samples = require_count("num_samples", num_samples, least=2)
        self.rescale_every = None if rescale_every is None else require_count("rescale_every", rescale_every)
        self.refit_every = None if refit_every is None else require_count("refit_every", refit_every)
        self.posterior = posterior
        """The model of what was measured: refitted to all of it from time to time, if that was asked for."""
        self._pilot = Views.of(posterior.A)
        self._names = self._pilot.require_names(candidates)
        self._free = ~self._pilot.measured(self._names)
        # All that was or may be measured: the pilot, then these candidates.
        self._open = self._free.nonzero()[:, 0].tolist()
        self._views = self._pilot.joined(self._names[self._open])
        self._weights = self._all_weights(weights)
        """Of all rays of these views, if they have any."""
        self._measured = [posterior.y]
        self._source = own_source(generator)
        self._indices: list[int] = []
        self._scores: list[float] = []
        self._pending: int | None = None
        self.candidate_scores: list[Float64[Tensor, " k"]] = []
        """For every choice, the scores of all candidates; NaN where one had been measured."""
        self._state: SequentialPosterior | None = None
        """Left out until it is asked for, and whenever the prior has changed."""
        self._scaled = False

    @property
    def indices(self) -> Int[Tensor, " num"]:
        """Which candidates were chosen and scanned, in this order."""
        return torch.tensor(self._indices, dtype=torch.int64)

    @property
    def angles(self) -> Float64[Tensor, " num"]:
        """The angles, or lines, that were chosen."""
        return self._names[self.indices]

    @property
    def scores(self) -> Float64[Tensor, " num"]:
        """The score each had when it was chosen."""
        return torch.tensor(self._scores, dtype=torch.float64)

    @property
    def left(self) -> int:
        """How many candidates have not been scanned."""
        return int(self._free.sum())

    def ask(self) -> float:
        """The angle, or line, that is worth most now; the same until it is told."""
        if self._pending is None:
            if not self.left:
                raise RuntimeError(f"all {len(self._free)} candidates have been scanned; give more candidates")
            found = torch.full((len(self._free),), torch.nan, dtype=torch.float64)
            found[self._open] = self._score()
            found[~self._free] = torch.nan
            lost = (self._free & found.isnan()).nonzero()[:, 0].tolist()
            if lost:
                assert self._state is not None
                b = self._state.precision
                raise FloatingPointError(
                    f"the scores of {len(lost)} candidates are not numbers, that of {self._names[lost[0]]:g} the "
                    f"first: what would be measured is not finite in units of the noise, of precision {b:g}; fit the "
                    "posterior with a larger noise, or in float64"
                )
            self.candidate_scores.append(found)
            self._pending = int(found.nan_to_num(-torch.inf).argmax())
        return float(self._names[self._pending])

    def tell(
        self,
        measurement: Float[Tensor, "..."] | None = None,
        weights: float | Float[Tensor, "..."] | None = None,
    ) -> None:
        """What was measured at the angle that :meth:`ask` named; without it, that it will be.

        ``weights`` are the precisions of its rays in units of the posterior's ``b``, where they are not as expected.
        """
        if self._pending is None:
            raise RuntimeError("nothing was asked for; call ask(), measure there, then tell(measurement)")
        taken = [] if measurement is None else [self._require_view(measurement)]
        if not taken and self.refit_every is not None:
            raise ValueError("measurement is missing, and refit_every fits the model to it; tell(measurement)")
        if weights is not None:
            self._weigh(self._place(self._pending), self._require_weights(weights, 1)[0])
        self._measured += taken
        chosen, self._pending = self._pending, None
        self._scores.append(float(self.candidate_scores[-1][chosen]))
        self._indices.append(chosen)
        self._free[chosen] = False
        if self._due(self.refit_every):
            A, y = self._pilot.joined(self.angles).operator, torch.cat(self._measured)
            self.posterior = self.posterior.refitted(A, y, weights=self._scanned(), generator=self._source)
            self._state, self._scaled = None, False
        elif self.posterior.follows_scan and self._due(self.rescale_every):
            self._state, self._scaled = None, True
        elif self._state is not None:
            self._observe(self._state, chosen)

    def _due(self, every: int | None) -> bool:
        return every is not None and len(self._indices) % every == 0

    def _conditioned(self) -> SequentialPosterior:
        """Samples of the prior as it is now, read out in all views, given those so far."""
        everything, pilots = self._readout(), len(self._pilot.names)
        A, weights = (self._pilot.joined(self.angles).operator, self._scanned()) if self._scaled else (None, None)
        prior = self.posterior.image_prior(A, self._source, weights=weights)
        drawn = (everything @ prior.draw(self.num_samples, self._source).mT).mT.contiguous()
        rows, precision = self._views.place(0, pilots), self.posterior.noise_precision
        if self.level is not None:
            precision = self.level / float(drawn[:, rows].square().mean())
        state = SequentialPosterior(prior.covariance, drawn, precision, readout=everything, generator=self._source)
        state.observe(everything.rows(rows), rows=rows)
        for chosen in self._indices:
            self._observe(state, chosen)
        return state

    def _observe(self, state: SequentialPosterior, chosen: int) -> None:
        assert state.readout is not None
        rows = self._place(chosen)
        state.observe(state.readout.rows(rows), rows=rows)

    def _place(self, chosen: int) -> slice:
        """Where the rows of a candidate stand among those of all views."""
        place = len(self._pilot.names) + self._open.index(chosen)
        return self._views.place(place, place + 1)

    def _readout(self) -> Operator:
        """``√w T`` of all views: what noise of one precision is added to."""
        return self._views.operator if self._weights is None else Weighed(self._views.operator, self._weights)

    def _scanned(self) -> Float[Tensor, " m"] | None:
        """The weights of what was measured, pilot included."""
        if self._weights is None:
            return None
        places = [self._views.place(0, len(self._pilot.names)), *(self._place(chosen) for chosen in self._indices)]
        return torch.cat([self._weights[rows] for rows in places])

    def _weigh(self, rows: slice, weights: Float[Tensor, " width"]) -> None:
        """Take the weights of one view for others; samples of its rows are in their units."""
        if self._weights is None:
            self._weights = torch.ones(self._views.operator.shape[0]).to(self._measured[0])
        before = self._weights[rows].clone()
        if torch.equal(before, weights):
            return
        self._weights[rows] = weights
        if self._state is not None and bool((before > 0).all()):
            self._state.samples[:, rows] *= (weights / before).sqrt()
            self._state.readout = self._readout()
        else:
            self._state = None

    def _all_weights(self, weights: float | Tensor | None) -> Float[Tensor, " n"] | None:
        """Of the pilot's rays, then of those of the open candidates."""
        known, width = self.posterior.weights, self._views.width
        if known is None and weights is None:
            return None
        pilot = torch.ones_like(self.posterior.y) if known is None else known
        usual = pilot.reshape(-1, width).mean(0)
        new = self._require_weights(usual if weights is None else weights, len(self._names))
        return torch.cat([pilot, new[self._open].flatten()])

    def _require_weights(self, weights: float | Tensor, views: int) -> Float[Tensor, "views width"]:
        values = require_positive("weights", weights, zero=True).to(self.posterior.y)
        shape, width = self._views.shape, self._views.width
        if tuple(values.shape) in ((views, width), (views, *shape)):
            return values.reshape(views, width)
        if tuple(values.shape) not in ((), (width,), shape):
            raise ValueError(
                f"weights has shape {tuple(values.shape)}; give a number, one for each detector, {shape}, or "
                f"{(views, *shape)} for all views"
            )
        return values.flatten().expand(views, width)

    @torch.no_grad()
    def _score(self) -> Float64[Tensor, " open"]:
        """Of every candidate that was open at first."""
        self._state = self._state or self._conditioned()
        F = self._state.samples[:, len(self._pilot.names) * self._views.width :]
        F = F.reshape(len(F), len(self._open), self._views.width)
        return scores(F, self.criterion, unit=self._state.precision**-0.5).double().cpu()

    def _require_view(self, measurement: Any) -> Float[Tensor, " width"]:
        shape, width = self._views.shape, self._views.width
        if isinstance(measurement, Tensor) and measurement.is_complex() and isinstance(self.posterior.A, Fourier):
            raise TypeError(
                f"measurement is complex, and lines of frequencies are real numbers here, {shape}: first the real "
                "parts, then the imaginary ones, torch.view_as_real(measurement).mT for one line"
            )
        measurement = require_float("measurement", measurement)
        if tuple(measurement.shape) not in (shape, (1, *shape), (width,)):
            raise ValueError(f"measurement has shape {tuple(measurement.shape)}; one view is {shape}, or flattened")
        return require_finite("measurement", measurement).reshape(-1).to(self._measured[0])

    def __repr__(self) -> str:
        return f"ScanDesign({self.posterior!r}, {self.criterion!r}, {len(self._indices)} chosen, {self.left} left)"


def design_scan(
    posterior: ImagePosterior,
    candidates: Candidates,
    num: int,
    criterion: str = "ese",
    *,
    measure: Callable[[float], Tensor | LineIntegrals] | None = None,
    weights: float | Float[Tensor, "..."] | None = None,
    refit_every: int | None = None,
    level: float | None = None,
    num_samples: int = 1000,
    rescale_every: int | None = 5,
    generator: torch.Generator | int | None = None,
    progress: bool = False,
) -> ScanDesign:
    """The ``num`` angles (or Fourier lines) of ``candidates`` that tell most of the image, one after the other.

    A loop over :class:`ScanDesign`, which is returned: ``.angles``, ``.indices``, ``.scores``. ``measure(angle)`` gives
    the measurement at an angle, or what :func:`from_counts` makes of it, the weights of its rays included; with it,
    ``refit_every`` fits the model anew to all data after every so many.

    >>> import math, torch
    >>> from matheron.tomography import Fourier, GaussianImage
    >>> g = torch.Generator().manual_seed(0)
    >>> image = torch.rand(8, 8, generator=g)
    >>> A = Fourier(8, lines=[0, 1])
    >>> post = GaussianImage(A, "matern12", lengthscale=3.0, noise=0.01).fit(A @ image.flatten(), generator=g)
    >>> design_scan(post, candidates=range(5), num=2, criterion="eig", generator=g).angles  # low frequencies first
    tensor([2., 3.], dtype=torch.float64)
    """
    require_count("num", num)
    if measure is not None and not callable(measure):
        raise TypeError(f"measure must be a function of an angle that gives its view, got {type(measure).__name__}")
    if refit_every is not None and measure is None:
        raise ValueError("refit_every is given but measure is not, so there is nothing to fit to; give measure=")
    design = ScanDesign(
        posterior, candidates, criterion=criterion, weights=weights, level=level, num_samples=num_samples,
        rescale_every=rescale_every, refit_every=refit_every, generator=generator,
    )  # fmt: skip
    if num > design.left:
        raise ValueError(
            f"num is {num} but {design.left} candidates are left that have not been scanned; ask for fewer, or give "
            "more candidates"
        )
    for _ in tqdm(range(num), disable=not progress, unit="view", desc="design"):
        angle = design.ask()
        found = None if measure is None else measure(angle)
        design.tell(*(found if isinstance(found, LineIntegrals) else (found,)))
    return design
