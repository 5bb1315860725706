"""The linearized Laplace posterior of a trained network, by samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.data import DataLoader

from matheron.arguments import require_count
from matheron.linear import Data, Descent, DiagonalPrior, Evidence, Prior, fit_posterior, log_evidence
from matheron.linear.fitting import require_counts
from matheron.networks import files
from matheron.networks.data import NetworkData
from matheron.networks.inference import AtWeights, choose, kept, require_method
from matheron.networks.inputs import Forward, flat, moved
from matheron.networks.likelihood import Likelihood
from matheron.networks.likelihoods import Bernoulli, Categorical, Gaussian, likelihood_of
from matheron.networks.loading import Loading, inputs_of
from matheron.networks.parameters import Choice
from matheron.networks.prediction import log_likelihoods, log_mean_exp, probabilities, require_link, squash
from matheron.networks.priors import DRAWS, NAMES, estimator_of, require_draws, require_precision, starting_prior
from matheron.networks.report import LITTLE, MUCH, LaplaceReport, warn_of_certainty, warn_of_offset
from matheron.networks.tangent import Method, TangentModel
from matheron.networks.trial import METHODS
from matheron.seeds import draw_seed
from matheron.solvers.checkpoint import Checkpoint

OFFSETS = ("affine", "simple")
EVIDENCES = ("tangent", "network")
CURVATURES = ("network", "tangent")


class LinearizedLaplace:
    """``f(x) = g(ṽ, x) + J(x)ζ``, ``ζ ~ N(0, H⁻¹)``, ``H = JᵀBJ + A``: posterior functions around a trained network.

    Samples of the whole network come from optimizing ``½‖Jz‖²_B + ½‖z − w₀′‖²_A``, the precision of the prior from
    MacKay's update with them; no Jacobian is stored. The network's own output stays the mean (thesis §6.2).

    ``likelihood`` is ``"classification"``, ``"regression"``, ``"binary"`` or a :class:`Likelihood`; ``prior`` is
    ``"g"``, ``"isotropic"`` or ``"layerwise"``. ``parameters``, ``forward``, ``jvp`` and ``memory`` are those of
    :class:`TangentModel`. ``offset="simple"`` drops ``g(ṽ, x) − J(x)ṽ`` from the tangent model, the shortcut for fully
    normalized networks with a dense last layer. ``evidence="network"`` takes ``‖ṽ‖`` in place of the tangent model's
    own optimum in the update, for comparison. ``curvature="tangent"`` takes ``B`` at the predictions of the tangent
    model's optimum, followed from one EM step to the next, in place of the network's own: where a network has learnt
    its training data by heart, its own ``B`` says next to nothing.

    >>> import torch
    >>> from torch import nn
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.randn(200, 2, generator=g)
    >>> y = (X[:, 0] > 0).long()
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    >>> la = LinearizedLaplace(model, "classification").fit((X, y), final_samples=16, generator=g)
    >>> la(X[:3]).shape, la.functional_samples(X[:3]).shape
    (torch.Size([3, 2]), torch.Size([16, 3, 2]))
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood = "classification",
        prior: str = "g",
        *,
        prior_precision: float | Float[Tensor, " g"] | None = None,
        parameters: Choice = None,
        forward: Forward | None = None,
        offset: str = "affine",
        evidence: str = "tangent",
        curvature: str = "network",
        jvp: Method = "auto",
        memory: int | None = None,
    ) -> None:
        for name, value, known in (
            ("prior", prior, NAMES),
            ("offset", offset, OFFSETS),
            ("evidence", evidence, EVIDENCES),
            ("curvature", curvature, CURVATURES),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if jvp not in METHODS:
            raise ValueError(f"jvp must be one of {', '.join(METHODS)}, got {jvp!r}")
        self.likelihood = likelihood_of(likelihood)
        self.tangent = TangentModel(model, parameters=parameters, forward=forward, method=jvp, memory=memory)
        self.prior_name, self.offset, self.evidence, self.curvature = prior, offset, evidence, curvature
        self._start = require_precision(prior, self.tangent.names, prior_precision)
        self._prior: Prior | None = None
        self._samples: Tensor | None = None
        self._dimension = 0.0
        self.mode: Tensor | None = None
        """``w⋆``, the optimum of the tangent model, where the prior was learnt."""
        self.history: list[dict[str, Any]] = []
        self.report: LaplaceReport | None = None

    def fit(
        self,
        loader: Any,
        *,
        em_steps: int = 8,
        num_samples: int = 6,
        final_samples: int = 64,
        method: str = "auto",
        descent: Descent | None = None,
        scale_draws: int = DRAWS,
        batch_size: int = 128,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> LinearizedLaplace:
        """Learn the prior in ``em_steps`` from ``num_samples`` samples each, then draw ``final_samples``.

        ``loader`` is a ``DataLoader``, a data set, ``(inputs, targets)``, or batches that can be walked again; inputs
        are those of :class:`TangentModel`, and a batch that is a mapping has its targets under ``"labels"``.
        EM starts from ``prior_precision``, where none is given from 1, with the g-prior from ``d / n`` where that is
        more; ``em_steps=0`` keeps it. ``descent`` sets the descent of ``method="sgd"``;
        ``scale_draws`` estimate the g-prior's scale. ``"exact"`` and ``"cg"`` are the other methods; ``"auto"`` is
        exact where the Jacobian is small, takes conjugate gradients where it fits in a share of free memory, else
        descent, and the report says so.
        With a ``checkpoint``, and a ``generator`` of the same seed, an interrupted fit goes on from its last EM step.
        """
        require_counts(em_steps, num_samples, final_samples)
        require_method(method, descent)
        require_draws(self.prior_name, scale_draws)
        require_count("batch_size", batch_size)
        seed = draw_seed(generator)
        source = torch.Generator().manual_seed(seed)
        data = self._data(Loading.of(loader, batch_size), affine=self.offset == "affine")
        choice = choose(method, data, descent)
        held: Data = kept(data, choice)
        prior, floored = starting_prior(self.prior_name, self.tangent, held, self._start, scale_draws, source)
        offset_share = data.offset_share()
        if em_steps and offset_share > MUCH and self.evidence == "tangent":
            warn_of_offset(offset_share)
        certain = em_steps > 0 and self.curvature == "network" and data.curvature_share() < LITTLE
        learns_noise = isinstance(self.likelihood, Gaussian) and self.likelihood.learn
        classical = AtWeights(choice.step, self.tangent.weights.to(held.dtype))
        found = fit_posterior(
            held, prior, choice.step, em_steps=em_steps, num_samples=num_samples, final_samples=final_samples,
            learning=None if self.evidence == "tangent" else classical,
            learn_noise=learns_noise, estimator=estimator_of(self.prior_name), generator=source, progress=progress,
            checkpoint=checkpoint,
        )  # fmt: skip
        if em_steps and isinstance(self.likelihood, Gaussian) and learns_noise:
            self.likelihood = replace(self.likelihood, noise=1.0 / found.data.noise_precision)
        if certain and found.effective_dimension < 1.0:
            warn_of_certainty(data.curvature_share(), found.effective_dimension)
        self.history = found.history
        dtype, mode = self.tangent.dtype, found.mode
        self.adopt(
            found.prior.cast(dtype), found.final.samples.to(dtype), None if mode is None else mode.to(dtype),
            found.effective_dimension,
        )  # fmt: skip
        self.report = LaplaceReport.of(
            found, method=choice.reason, floored=floored, offset_share=offset_share, seed=seed
        )
        return self

    def adopt(self, prior: Prior, samples: Float[Tensor, "s d"], mode: Tensor | None, dimension: float) -> None:
        """Take over a prior and samples found elsewhere, such as in a file."""
        self._prior, self._samples, self.mode, self._dimension = prior, samples, mode, dimension

    @property
    def prior(self) -> Prior:
        """``N(0, A⁻¹)`` as it was learnt."""
        if self._prior is None:
            raise RuntimeError("this posterior has not been fitted; call fit(loader) first")
        return self._prior

    @property
    def samples(self) -> Float[Tensor, "s d"]:
        """``ζ ~ N(0, H⁻¹)``, one per row."""
        if self._samples is None:
            raise RuntimeError("this posterior has no samples yet; call fit(loader) first")
        return self._samples

    @property
    def prior_precision(self) -> Float[Tensor, " g"]:
        """``a``, one value, or one per parameter tensor of a layerwise prior."""
        return self.prior.values

    @property
    def prior_scale(self) -> Float[Tensor, " d"] | None:
        """``s`` of the g-prior, ``A = a diag(s)⁻²``."""
        return self.prior.scale if isinstance(self.prior, DiagonalPrior) else None

    @property
    def effective_dimension(self) -> float:
        """``γ = tr(H⁻¹JᵀBJ)`` at the learnt prior, from the final samples."""
        _ = self.samples
        return self._dimension

    @property
    def noise(self) -> float:
        """The variance of an observation around the function, of a Gaussian likelihood."""
        if not isinstance(self.likelihood, Gaussian):
            raise AttributeError(f"{type(self.likelihood).__name__} observations have no noise variance")
        return self.likelihood.noise

    def __call__(self, x: Any, link_approx: str = "probit") -> Any:
        """Class probabilities ``(batch, c)``; for regression mean and variance of the function, ``(batch, c)`` each."""
        require_link(link_approx)
        if isinstance(self.likelihood, Gaussian):
            parts = [(mean, deviations.square_().mean(0)) for mean, deviations in self._deviations(x)]
            return torch.cat([mean for mean, _ in parts]), torch.cat([variance for _, variance in parts])
        return torch.cat(
            [probabilities(self.likelihood, mean, deviations, link_approx) for mean, deviations in self._deviations(x)]
        )

    def functional_samples(self, x: Any) -> Float[Tensor, "s b c"]:
        """``g(ṽ, x) + J(x)ζ_j``: the same functions at every call, coherent across inputs."""
        return torch.cat([deviations.add_(mean) for mean, deviations in self._deviations(x)], dim=1)

    def predictive_samples(self, x: Any, generator: torch.Generator | int | None = None) -> Tensor:
        """Class probabilities of every function ``(s, batch, c)``; of other likelihoods observations, noise and all."""
        functions = self.functional_samples(x)
        if isinstance(self.likelihood, (Categorical, Bernoulli)):
            return squash(self.likelihood, functions)
        return self.likelihood.sample(functions, generator)

    def log_prob(self, x: Any, y: Shaped[Tensor, "b ..."]) -> Float[Tensor, " b"]:
        """``log E_f p(y_i | f(x_i))`` of each row, by the functions."""
        return log_mean_exp(self._log_likelihoods(x, y))

    def joint_log_prob(self, x: Any, y: Shaped[Tensor, "b ..."]) -> Float[Tensor, ""]:
        """``log E_f Π_i p(y_i | f(x_i))``: of all rows together, which knows what the rows share."""
        return log_mean_exp(self._log_likelihoods(x, y).sum(1))

    def _log_likelihoods(self, x: Any, y: Tensor) -> Float[Tensor, "s b"]:
        functions = self.functional_samples(x)
        targets = self.likelihood.require_targets(y, functions[0])
        return log_likelihoods(self.likelihood, functions, targets)

    def _deviations(self, x: Any) -> Iterator[tuple[Float[Tensor, "b c"], Float[Tensor, "s b c"]]]:
        """``g(ṽ, x)`` and ``J(x)ζ_j``: apart, as rounding of the sum would take what is small beside the mean."""
        samples, none = self.samples, True
        for part in inputs_of(x) if isinstance(x, DataLoader) else (x,):
            mean, pushed = self.tangent.value_and_jvp(moved(part, self.tangent.device), samples)
            none = False
            yield flat(mean), pushed.reshape(*pushed.shape[:2], -1)
        if none:
            raise ValueError("x is a DataLoader without a batch; give it at least one")

    def whitened_samples(self, x: Any) -> Float[Tensor, "s b c"]:
        """``Lᵀ J(x)ζ_j`` with ``B = LLᵀ``: functions around the mean in units of what one observation's noise blurs.

        What :func:`~matheron.linear.greedy_design` and :func:`~matheron.decisions.most_informative` choose by.
        """
        parts = []
        for mean, deviations in self._deviations(x):
            root = self.likelihood.curvature(mean).root
            parts.append((root.T @ deviations.flatten(1).mT).mT.reshape(deviations.shape))
        return torch.cat(parts, dim=1)

    def log_evidence(
        self, loader: Any, *, batch_size: int = 128, probes: int = 8, generator: torch.Generator | int | None = None
    ) -> Evidence:
        """``𝓖`` at the learnt prior and the tangent model's optimum, or at the weights with ``evidence="network"``.

        ``loader`` are the training data; the error is that of the determinant. See
        :func:`~matheron.linear.log_evidence`.
        """
        require_count("probes", probes)
        require_count("batch_size", batch_size)
        prior, at = self.prior, self.mode if self.evidence == "tangent" else self.tangent.weights
        if at is None:
            raise RuntimeError("the tangent model's optimum is not known; fit with em_steps of at least 1")
        # The network's own weights predict what the network does, whatever the tangent model leaves out.
        data = self._data(Loading.of(loader, batch_size), affine=self.offset == "affine" or self.evidence == "network")
        if self.evidence == "tangent":
            data = data.following(at)
        found = log_evidence(data, prior, at, probes=probes, generator=generator)
        if not isinstance(self.likelihood, Gaussian):
            return found
        constant = 0.5 * data.num_rows * math.log(2.0 * math.pi * self.likelihood.noise)
        return replace(found, loss=found.loss + constant)

    def _data(self, loading: Loading, *, affine: bool) -> NetworkData:
        return NetworkData(self.tangent, loading, self.likelihood, affine=affine, follow=self.curvature == "tangent")

    def state_dict(self) -> dict[str, Tensor]:
        """Samples, mode, prior and the weights they belong to, by name."""
        return files.state(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put back what :meth:`state_dict` gave; the model must have the same weights."""
        files.restore(self, state)

    def save(self, path: Path | str) -> None:
        """To a file without code; ``mt.load(path, model=model)`` puts it back onto the model."""
        files.save(self, path)

    def __repr__(self) -> str:
        state = "not fitted" if self._samples is None else f"{len(self._samples)} samples"
        return (
            f"LinearizedLaplace({type(self.tangent.model).__name__}, {self.tangent.num_weights} weights, "
            f"{type(self.likelihood).__name__}, prior={self.prior_name!r}, {state})"
        )
