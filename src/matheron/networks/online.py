"""A prior that is learnt while the network trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_count, require_positive
from matheron.linear import Descent, DiagonalPrior, Prior, WarmStart, draw_regularizers
from matheron.linear.em_state import EMState
from matheron.linear.mackay import maximized
from matheron.networks.data import NetworkData
from matheron.networks.inference import choose, kept, require_method
from matheron.networks.inputs import Forward, call, flat, moved, single_output
from matheron.networks.laplace import OFFSETS, LinearizedLaplace
from matheron.networks.likelihood import Likelihood
from matheron.networks.likelihoods import Gaussian, likelihood_of
from matheron.networks.loading import Loading
from matheron.networks.modes import linearizing
from matheron.networks.normalization import normalized_groups
from matheron.networks.parameters import Choice, select
from matheron.networks.priors import NAMES, estimator_of, require_draws, require_precision, starting_prior
from matheron.networks.tangent import TangentModel
from matheron.seeds import draw_seed, own_source

FARTHEST = 1e3
"""How far a precision may go from that of a prior whose draws are as large as the weights."""


class OnlineLaplace:
    """``v ← v − η ∂[ℓ(g(v)) + ½‖v‖²_A]`` beside ``a ← γ / ‖w⋆‖²``: training and MacKay's update take turns.

    :meth:`update` linearizes the network where training stands and takes one EM step of its *tangent model*, from the
    last update's samples and mode: ``w⋆`` is the optimum of that model, so that the network need not be at one of its
    own. ``A`` is layerwise, or the g-prior, measured anew at each update: either makes :meth:`penalty` follow a scale
    of weights that a normalization layer cancels (layerwise) or blind to it (g), where a single isotropic precision
    would run away with it. Biases and scales of normalization layers are left alone: zero is no place for them, and
    the tangent model, where other weights can stand in for a scale, would have them there. Nor is it one for all that
    matters at once, where the g-prior pulls: layers multiply in a network but add in its tangent model, so that each
    is taken to explain a part of the outputs only. The noise of a regression is learnt along, unless it is given by
    ``Gaussian(noise, learn=False)``; the loss that :meth:`penalty` and :meth:`shrink` belong to is the mean of
    ``online.likelihood.negative_log_likelihood``, a squared error over twice that noise. Thesis, sections 3.3.4 and
    5.3, and its chapter on future work.

    >>> import torch
    >>> from torch import nn
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.randn(60, 2, generator=g)
    >>> y = (X[:, 0] > 0).long()
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    >>> optimizer = torch.optim.Adam(model.parameters(), 0.01)
    >>> online = OnlineLaplace(model, "classification", generator=g)
    >>> for epoch in range(5):
    ...     optimizer.zero_grad()
    ...     nn.functional.cross_entropy(model(X), y).backward()
    ...     optimizer.step()
    ...     online.shrink(0.01)
    ...     online = online.update((X, y))
    >>> len(online.history), bool((online.prior_precision > 0).all())
    (5, True)
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood = "classification",
        prior: str = "layerwise",
        *,
        prior_precision: float | Float[Tensor, " g"] = 1.0,
        parameters: Choice = "matrices",
        forward: Forward | None = None,
        offset: str = "affine",
        num_samples: int = 4,
        scale_draws: int = 16,
        method: str = "auto",
        descent: Descent | None = None,
        batch_size: int = 128,
        generator: torch.Generator | int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if prior not in NAMES:
            raise ValueError(f"prior must be one of {', '.join(NAMES)}, got {prior!r}")
        if offset not in OFFSETS:
            raise ValueError(f"offset must be one of {', '.join(OFFSETS)}, got {offset!r}")
        require_method(method, descent)
        require_draws(prior, scale_draws)
        require_count("batch_size", batch_size)
        self.model, self.parameters, self.forward = model, parameters, forward
        self.names = tuple(select(model, parameters))
        require_precision(prior, self.names, prior_precision)
        self.likelihood, self.prior_name, self.offset = likelihood_of(likelihood), prior, offset
        self.num_samples = require_count("num_samples", num_samples)
        self.scale_draws, self.method, self.descent, self.batch_size = scale_draws, method, descent, batch_size
        self._source = own_source(generator)
        self._seed = draw_seed(self._source)
        self._precision: float | Tensor = prior_precision
        self._prior: DiagonalPrior | None = None
        self._warm: WarmStart | None = None
        self._num_data = 0
        self.history: list[dict[str, Any]] = []
        self.normalized: list[tuple[str, ...]] = []
        """Parameters, module by module, whose scale a normalization layer was last seen to cancel."""

    @property
    def prior_precision(self) -> Float[Tensor, " g"]:
        """``a`` as last learnt."""
        return torch.as_tensor(self._precision, dtype=torch.float64).reshape(-1)

    def penalty(self) -> Float[Tensor, ""]:
        """``½‖v‖²_A / n`` at the weights as they are, to be added to a mean loss; zero before the first update."""
        named = dict(self.model.named_parameters())
        v = torch.cat([named[name].flatten() for name in self.names])
        if self._prior is None:
            return 0.0 * v.sum()
        weighted = self._prior.precision(v.detach()[:, None])[:, 0]
        # The gradient is A v, also where A is not a table: ½ vᵀ(Av) with Av held has half of it.
        value = 0.5 * (v.detach() * weighted).sum()
        return (value + (weighted * (v - v.detach())).sum()) / self._num_data

    @torch.no_grad()
    def shrink(self, step: float) -> None:
        """``v ← (I + η A / n)⁻¹ v``: in place of :meth:`penalty`, after each step of length ``η`` down the mean loss.

        The step of the penalty taken at where it leads, which no precision makes unstable; a step down the penalty
        itself diverges where ``η A / n`` exceeds two. With momentum ``ρ`` a step is ``η / (1 − ρ)`` long in the end.
        Parameters whose scale a normalization layer cancels keep their norm. Nothing happens before the first update.
        """
        require_positive("step", step)
        if self._prior is None:
            return
        ones = torch.ones(self._prior.num_weights, 1, dtype=self._prior.dtype, device=self._prior.device)
        factors = 1.0 / (1.0 + step / self._num_data * self._prior.precision(ones)[:, 0])
        named = dict(self.model.named_parameters())
        chosen = [named[name] for name in self.names]
        cancelled = {id(named[name]) for group in self.normalized for name in group}
        for parameter, factor in zip(chosen, factors.split([p.numel() for p in chosen]), strict=True):
            size = parameter.norm()
            parameter.mul_(factor.reshape(parameter.shape))
            if id(parameter) in cancelled:
                # Nothing but the effective step would change with their scale, and running statistics would lag behind.
                parameter.mul_(size / parameter.norm().clamp(min=torch.finfo(size.dtype).tiny))

    def update(self, loader: Any) -> OnlineLaplace:
        """One E- and one M-step where training stands; mode, buffers and weights of the model stay as they are."""
        # Training is what the model is here for: that it was in that mode is not worth a warning.
        loading = Loading.of(loader, self.batch_size)
        with linearizing(self.model):
            self._step(loading)
        self.normalized = normalized_groups(self.model, self.names, lambda: self._loss(loading))
        return self

    def _loss(self, loading: Loading) -> Float[Tensor, ""]:
        """Of the first batch."""
        inputs, targets = next(iter(loading.walk(None)))
        like = next(self.model.parameters())
        outputs = flat(single_output((self.forward or call)(self.model, moved(inputs, like.device))))
        return self.likelihood.misfit(outputs, self.likelihood.place(targets, like.dtype, like.device)).mean()

    def _step(self, loading: Loading) -> None:
        tangent = TangentModel(self.model, parameters=self.parameters, forward=self.forward)
        if tangent.names != self.names:
            raise RuntimeError(
                f"the parameters were {', '.join(self.names)} and now are {', '.join(tangent.names)}; build another "
                "OnlineLaplace where parameters are frozen or freed, with prior_precision= as learnt so far"
            )
        data = NetworkData(tangent, loading, self.likelihood, affine=self.offset == "affine")
        choice = choose(self.method, data, self.descent)
        held = kept(data, choice)
        prior, _ = starting_prior(self.prior_name, tangent, held, self._precision, self.scale_draws, self._source)
        # The same random numbers at every update: what moves the precision is training alone.
        seeded = torch.Generator().manual_seed(self._seed)
        drawn = draw_regularizers(held, self.num_samples, seeded, mode=True, keep_noise=choice.step.keep_noise)
        warm = None if self._warm is None else WarmStart(self._warm.samples, self._warm.mode, prior)
        found = choice.step.posterior(held, prior, drawn, mode=True, warm=warm, generator=self._source)
        state = EMState(prior, held, drawn, warm, self.history, drawn.epochs, 0.0, self._seed)
        learns_noise = isinstance(self.likelihood, Gaussian) and self.likelihood.learn
        state = maximized(
            state, found, estimator=estimator_of(self.prior_name), learn_noise=learns_noise, seconds=found.seconds
        )
        if isinstance(self.likelihood, Gaussian) and learns_noise:
            self.likelihood = replace(self.likelihood, noise=1.0 / state.data.noise_precision)
        held_prior = held_to(state.prior.cast(tangent.dtype), tangent.weights)
        assert isinstance(held_prior, DiagonalPrior)
        self._prior, self._precision, self._num_data = held_prior, held_prior.values, data.num_data
        self._warm, self.history = WarmStart.of(found), state.history

    def posterior(self, loader: Any, **options: Any) -> LinearizedLaplace:
        """The posterior around the network as it is now, from the prior learnt so far; ``options`` are for ``fit``."""
        start = self.prior_precision if self.prior_name == "layerwise" else float(self.prior_precision)
        posterior = LinearizedLaplace(
            self.model, self.likelihood, self.prior_name, prior_precision=start,
            parameters=self.parameters, forward=self.forward, offset=self.offset,
        )  # fmt: skip
        options.setdefault("generator", self._source)
        return posterior.fit(loader, **options)


def held_to(prior: Prior, weights: Float[Tensor, " d"]) -> Prior:
    """``a_g`` within a thousandfold of ``d_g / ‖v_g‖²``, where a prior draw is as large as the weights are.

    The precision of a group that the data can do without has no maximum, and that of one which explains all has no
    minimum. The limits follow the scale of the weights; weights of zero, such as biases before training, set none.
    """
    v = weights[:, None]
    forms = prior.group_sums(v * prior.precision(v))[:, 0]
    usual = prior.group_sizes / forms
    factors = torch.ones_like(usual).clamp(min=usual / FARTHEST, max=usual * FARTHEST)
    return prior.scaled(torch.where(forms > 0, factors, 1.0))
