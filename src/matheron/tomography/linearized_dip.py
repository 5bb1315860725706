"""Error bars of a deep image prior: the posterior of its tangent model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_positive_number, require_same
from matheron.linear import (
    Descent,
    DiagonalPrior,
    FilterPrior,
    GaussianCurvature,
    Prior,
    StoredData,
    fit_posterior,
)
from matheron.linear.fitting import require_counts
from matheron.networks import JacobianOperator, TangentModel
from matheron.networks.inference import require_method
from matheron.networks.priors import estimator_of, require_draws, starting_prior
from matheron.networks.report import LaplaceReport
from matheron.operators.base import Operator
from matheron.seeds import draw_seed, own_source
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography.dip import DeepImagePrior
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.image_prior import TangentImages
from matheron.tomography.inference import AtOwnWeights, ImageModel, kept
from matheron.tomography.measurements import (
    Weighed,
    Whitened,
    require_operator,
    require_shape,
    require_sinogram,
    require_weights,
)
from matheron.tomography.predcp import PredCP
from matheron.tomography.tv_prior import block_groups, forget_tv, learn_tv, learning_method, starting_filters
from matheron.tomography.type_two import LearntFilters, TypeTwoMAP

PRIORS = ("g", "isotropic", "blockwise", "tv")

EVIDENCES = ("tangent", "network")

DRAWS = 128
"""Of the curvature's diagonal, for the scale of the g-prior."""


class LinearizedDIP(ImagePosterior):
    """``y = T h(w) + ε``, ``h(w) = g(ṽ) + φ (w − ṽ)``, ``w ~ N(0, A⁻¹)``: images ``N(g(ṽ), φ H⁻¹ φᵀ)`` (§ 7.2).

    ``φ`` is the Jacobian of the fitted network and ``H = b φᵀTᵀTφ + A``; neither is stored where they are large. The
    mean is the reconstruction ``g(ṽ)`` itself. ``prior`` is ``"g"``, ``A = a diag(φᵀTᵀTφ)``; ``"isotropic"``, ``aI``;
    or ``"blockwise"``, one ``a`` for each block of the network, that is for each of its submodules. They are learnt by
    MacKay's update, and the noise precision ``b = (m − γ) / ‖y − T h(w⋆)‖²`` with them unless ``noise``, the
    variance, is given. Features that were fitted to the scan explain it from the last block alone: many updates of a
    blockwise prior leave out all others and make error bars too narrow, one or two do not.

    ``prior="tv"`` is :class:`~matheron.linear.FilterPrior`, smooth filters with a variance and a lengthscale for each
    block, learnt with the noise by :class:`TypeTwoMAP`; :class:`PredCP` holds lengthscales to images of little total
    variation unless ``predcp=False``; a number is the rate at which they are held to it, one in the thesis, for an
    image whose brightest pixel is one. ``evidence="network"`` learns from the weights ``ṽ`` in place of the tangent
    model's optimum, for comparison (§ 5.2).

    >>> import math, torch
    >>> from matheron.tomography import DeepImagePrior, ParallelBeam, UNet
    >>> g = torch.Generator().manual_seed(0)
    >>> A = ParallelBeam(12, torch.arange(6) * math.pi / 6, 17).operator()
    >>> truth = torch.zeros(12, 12)
    >>> truth[3:8, 4:9] = 1.0
    >>> y = A @ truth.flatten()
    >>> y = y + 0.1 * torch.randn(len(y), generator=g)
    >>> dip = DeepImagePrior(A, UNet(scales=2, channels=4, skip_channels=2, generator=g)).fit(y, steps=200, generator=g)
    >>> post = LinearizedDIP(dip, prior="g").fit(y, generator=g)
    >>> post.mean.shape, post.std.shape, post.sample(5).shape
    (torch.Size([12, 12]), torch.Size([12, 12]), torch.Size([5, 12, 12]))
    """

    def __init__(
        self,
        dip: DeepImagePrior,
        prior: str = "g",
        *,
        noise: float | None = None,
        predcp: bool | float | None = None,
        evidence: str = "tangent",
    ) -> None:
        if prior not in PRIORS:
            raise ValueError(f"prior must be one of {', '.join(PRIORS)}, got {prior!r}")
        if predcp is not None and prior != "tv":
            raise ValueError(f"predcp is for lengthscales, and prior={prior!r} has none; leave it out or take 'tv'")
        if evidence not in EVIDENCES:
            raise ValueError(f"evidence must be one of {', '.join(EVIDENCES)}, got {evidence!r}")
        if evidence == "network" and prior == "tv":
            raise ValueError("evidence='network' is for priors learnt by MacKay's update, which 'tv' is not")
        if not isinstance(dip, DeepImagePrior):
            raise TypeError(f"dip must be a fitted DeepImagePrior, got {type(dip).__name__}")
        _ = dip.image
        self.dip, self.prior_name, self.evidence, self.follows_scan = dip, prior, evidence, prior == "g"
        self.predcp = require_positive_number("predcp", prior == "tv" if predcp is None else predcp, zero=True)
        """The rate of the expected total variation, zero without it."""
        self.noise = None if noise is None else require_positive_number("noise", noise)
        self.history: list[dict[str, Any]] = []
        self.report: LaplaceReport | None = None
        self.prior: Prior | None = None
        """``N(0, A⁻¹)`` as it was learnt."""
        self.mode: Tensor | None = None
        """``w⋆``, the optimum of the tangent model."""
        self.effective_dimension = 0.0
        self._features: Operator
        self._scaled_at = math.nan
        """``b`` under which the g-prior's scale was measured; what is learnt afterwards is a multiple of it."""
        self._again: dict[str, Any] = {}

    def fit(
        self,
        y: Float[Tensor, " m"],
        *,
        A: Operator | None = None,
        weights: Float[Tensor, " m"] | None = None,
        em_steps: int = 8,
        num_samples: int = 8,
        final_samples: int = 64,
        method: str = "auto",
        descent: Descent | None = None,
        ascent: TypeTwoMAP | None = None,
        scale_draws: int = DRAWS,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> LinearizedDIP:
        """Learn prior and noise in ``em_steps`` from ``num_samples`` samples each, then draw ``final_samples``.

        ``A`` is the scan of ``y`` where it is not the one that the network was fitted to. ``weights`` ``w`` are the
        precisions of its rays up to one factor, such as those of :func:`from_counts`: the noise of a ray has precision
        ``b w``, and ``TᵀT`` is ``TᵀWT`` throughout; left out, those of the network's own fit are taken, unless ``A`` is
        another scan. ``em_steps=0`` keeps what the prior starts from. ``method`` is
        ``"exact"`` (``T φ`` in memory), ``"cg"`` over measurements or weights with a randomized preconditioner,
        ``"sgd"`` over weights, set by ``descent``, or ``"auto"``, by the sizes; the report says which. A ``"tv"`` prior
        is learnt in the steps of ``ascent`` instead, unless ``em_steps=0``.
        """
        require_counts(em_steps, num_samples, final_samples)
        require_method(method, descent)
        require_draws(self.prior_name, scale_draws)
        if ascent is not None and self.prior_name != "tv":
            raise ValueError(f"ascent is for prior='tv', and this is {self.prior_name!r}; set em_steps instead")
        self._again = {
            "em_steps": em_steps, "num_samples": num_samples, "final_samples": final_samples, "method": method,
            "descent": descent, "ascent": ascent, "scale_draws": scale_draws,
        }  # fmt: skip
        if A is None and weights is None:
            weights = self.dip.weights
        A = self.dip.A if A is None else self._require_scan(A)
        self.A, self.y = A, require_sinogram(y, A)
        self.weights = None if weights is None else require_weights(weights, A)[:, 0]
        white = Whitened.of(A, self.y, self.weights)
        T, y = white.A, white.y
        seed = draw_seed(generator)
        source = torch.Generator().manual_seed(seed)
        tangent, mean = self.dip.tangent(), self.dip.image
        if self.prior_name == "tv" and em_steps:
            method = learning_method(method, tangent, len(y), descent)
        Phi = JacobianOperator(tangent, self.dip.input, rows=mean.numel())
        # The weights of the tangent model explain all of the image but this.
        offset = T @ (mean.flatten() - Phi @ tangent.weights)
        misfit = (y - T @ mean.flatten()).square().mean()
        noise = self.noise if self.noise is not None else float(misfit.clamp(min=1e-12 * y.square().mean()))
        smooth = self.prior_name == "tv"
        model = ImageModel.of(T @ Phi, y - offset, 1.0 / noise, method, descent, on_measurements=smooth)
        share = float(offset.norm() / (T @ mean.flatten()).norm())
        self._scaled_at = 1.0 / noise
        prior, floored = self._start(tangent, model, scale_draws, source)
        data, step, learnt, ascent = model.data, model.step, None, ascent or TypeTwoMAP()
        if isinstance(prior, FilterPrior) and em_steps:
            settings: dict[str, Any] = {"generator": source, "progress": progress, "checkpoint": checkpoint}
            learnt = self._learn_smoothness(prior, model, Phi, ascent, **settings)
            prior, data, em_steps = learnt.prior, data.with_noise_precision(learnt.noise_precision), 0
        learning = AtOwnWeights(step, tangent.weights.to(data.dtype)) if self.evidence == "network" else step
        found = fit_posterior(
            data, prior, step, em_steps=em_steps, num_samples=num_samples, final_samples=final_samples,
            learning=learning, learn_noise=self.noise is None, mode=True, generator=source, progress=progress,
            checkpoint=checkpoint,
            estimator=estimator_of(self.prior_name),
        )  # fmt: skip
        self.prior, self.history = found.prior.cast(Phi.dtype), found.history
        self.mode = None if found.mode is None else found.mode.to(Phi.dtype)
        self.report = LaplaceReport.of(found, method=model.reason, floored=floored, offset_share=share, seed=seed)
        if learnt is not None:
            self.history, seconds = learnt.history, learnt.seconds + found.seconds
            self.report = replace(self.report, em_converged=learnt.converged, seconds=seconds)
            forget_tv(checkpoint, ascent)
        self.effective_dimension = found.effective_dimension
        self._features = Phi
        self.adopt(mean, (Phi @ found.final.samples.to(Phi.dtype).mT).mT, found.data.noise_precision)
        return self

    @torch.no_grad()
    def image_prior(
        self,
        A: Operator | None = None,
        generator: torch.Generator | int | None = None,
        *,
        weights: Float[Tensor, " n"] | None = None,
    ) -> TangentImages:
        """``N(0, φ A⁻¹ φᵀ)`` as it was learnt; ``φ`` is kept from now on where memory allows.

        With a scan ``A`` the g-prior's ``diag(φᵀTᵀWTφ)`` is that of ``A``, as much per measurement, by their weights,
        as it was.
        """
        _ = self.mean
        assert self.prior is not None
        self._features = kept(self._features)
        if A is None or not self.follows_scan:
            return TangentImages(self._features, self.prior)
        source = own_source(generator)
        curvature = GaussianCurvature(self._scaled_at, size=A.shape[0], dtype=A.dtype, device=A.device)
        before, now = (
            float(rows) if w is None else float(w.double().sum())
            for w, rows in ((self.weights, len(self.y)), (weights, A.shape[0]))
        )
        T = A if weights is None else Weighed(A, weights)
        data, level = StoredData(T @ self._features, curvature), float(self.prior.values) * before / now
        prior, _ = starting_prior("g", self.dip.tangent(), data, level, self._again["scale_draws"], source)
        return TangentImages(self._features, prior)

    def refitted(
        self,
        A: Operator,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        generator: torch.Generator | int | None = None,
    ) -> LinearizedDIP:
        """Network, prior and noise fitted to other measurements of the same image, the network from where it stands."""
        source = own_source(generator)
        dip = self.dip.refitted(A, y, weights=weights, generator=source)
        predcp = self.predcp if self.prior_name == "tv" else None
        other = LinearizedDIP(dip, self.prior_name, noise=self.noise, predcp=predcp, evidence=self.evidence)
        return other.fit(y, weights=weights, generator=source, **self._again)

    def _require_scan(self, A: Operator) -> Operator:
        require_same("A", require_operator(A), "the network", self.dip.A)
        if A.shape[1] != self.dip.image.numel():
            raise ValueError(f"A scans {A.shape[1]} pixels, but the network's image has {self.dip.image.numel()}")
        require_shape(A, self.dip.shape)
        return A

    def _learn_smoothness(
        self, prior: FilterPrior, model: ImageModel, Phi: Operator, ascent: TypeTwoMAP, **settings: Any
    ) -> LearntFilters:
        """Variances and lengthscales of filters by Type-II MAP, held to little total variation where that is asked."""
        known, source = None, settings["generator"]
        if self.predcp:
            unit, shape = self.dip.brightest / self.predcp, tuple(self.dip.image.shape)
            known = PredCP.of(prior.filters, Phi, shape, unit=unit, generator=source)
        return learn_tv(prior, model, known, ascent, learn_noise=self.noise is None, **settings)

    def _start(
        self, tangent: TangentModel, model: ImageModel, draws: int, generator: torch.Generator
    ) -> tuple[Prior, int]:
        """A prior under which the network's own weights are of the usual size, or one of equal blocks."""
        if self.prior_name == "tv":
            return starting_filters(tangent, model, generator), 0
        usual = tangent.num_weights / float(tangent.weights.square().sum())
        if self.prior_name == "blockwise":
            groups = block_groups(tangent)
            start = torch.full((int(groups.max()) + 1,), usual, dtype=torch.float64)
            options: dict[str, Any] = {"num_weights": tangent.num_weights, "dtype": model.data.dtype}
            return DiagonalPrior(start, groups=groups, **options, device=tangent.device), 0
        start_at = usual if self.prior_name == "isotropic" else None
        return starting_prior(self.prior_name, tangent, model.data, start_at, draws, generator)

    def __repr__(self) -> str:
        state = "not fitted" if self._deviations is None else f"{len(self.deviations)} samples"
        return f"LinearizedDIP({tuple(self.dip.shape)}, prior={self.prior_name!r}, {state})"
