"""The Gaussian process given data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_positive
from matheron.gp.covariance import ExactCovariance
from matheron.gp.paths import Paths
from matheron.gp.prediction import Prediction
from matheron.gp.report import Report

if TYPE_CHECKING:
    from matheron.gp.conditioning import Conditioning

EXACT_POINTS = 1000
"""Inputs whose exact variances are worth a solve each where no factor is at hand."""


class Posterior(nn.Module):
    """``f | y``: mean, variance, covariance and functions of a Gaussian process given data (thesis §2.2, §2.3).

    Made by :meth:`GaussianProcess.condition`. Everything is in the units of the targets. ``mean``, ``variance``,
    ``covariance``, ``sample`` and ``paths`` are of the latent function, ``predict`` of an observation. With a
    factorization at hand variances are exact; otherwise they are the mean square of the zero-mean functions.

    >>> import torch
    >>> import matheron as mt
    >>> X, g = torch.linspace(0, 6, 100)[:, None], torch.Generator().manual_seed(0)
    >>> y = X[:, 0].sin() + 0.1 * torch.randn(100, generator=g)
    >>> posterior = mt.GaussianProcess(mt.kernels.Matern52(), noise=0.01).condition(X, y, generator=g)
    >>> x = torch.tensor([[1.5], [20.0]])
    >>> posterior.mean(x).round(decimals=1), posterior.sample(x).shape
    (tensor([1., 0.]), torch.Size([64, 2]))
    >>> low, high = posterior.predict(x).interval(0.95)
    """

    def __init__(self, paths: Paths, conditioning: Conditioning, report: Report, *, exact_variance: bool) -> None:
        super().__init__()
        self.paths, self.conditioning, self.report = paths, conditioning, report
        self.exact_variance = exact_variance
        self._exact: ExactCovariance | None = None

    @property
    def exact(self) -> ExactCovariance:
        """Covariances from a factor, made at the first call."""
        if self._exact is None:
            conditioning = self.conditioning
            with torch.inference_mode(False):
                self._exact = ExactCovariance(conditioning.kernel, conditioning.support, conditioning.factorize)
        return self._exact

    def mean(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m *c"]:
        """``E f(x)``, differentiable in ``x``."""
        paths = self.paths
        return paths.out(paths.units.restore(torch.cat([paths.mean(part) for part in paths.blocks(x)])))

    def variance(self, x: Float[Tensor, "m d"], *, exact: bool | None = None) -> Float[Tensor, "m *c"]:
        """``Var f(x)``, never negative.

        ``exact=True`` asks for it where samples are the default: one more solve, with a column per row of ``x``.
        """
        return self.paths.out(self.paths.units.restore_variance(self._moments(x, exact)[1]))

    def covariance(self, x: Float[Tensor, "m d"], *, exact: bool | None = None) -> Float[Tensor, "m m *c"]:
        """``Cov(f(x), f(x))`` of each output."""
        paths = self.paths
        inputs = paths.units.inputs(paths.require_inputs(x).to(paths.support.dtype))
        if self._is_exact(exact):
            value = self.exact.covariance(inputs)
        elif exact:
            value = self._solved_covariance(inputs)
        else:
            _, deviations = paths.mean_and_deviations(inputs)
            value = deviations @ deviations.mT / deviations.shape[1]
        return paths.out(paths.units.restore_variance(value[..., None].expand(*value.shape, paths.outputs)))

    def predict(self, x: Float[Tensor, "m d"], *, noise: float | Tensor | None = None) -> Prediction:
        """The distribution of an observation at each row of ``x``.

        ``noise`` is its variance there, needed where the training rows had one each.
        """
        noise_variance = self._noise_at(self.paths.require_inputs(x), noise)
        mean, variance = self._moments(x, None)
        units, out = self.paths.units, self.paths.out
        return Prediction(
            out(units.restore(mean)), out(units.restore_variance(variance) + noise_variance.to(variance.dtype))
        )

    def sample(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "s m *c"]:
        """The posterior functions at ``x``: the same functions at every call."""
        with torch.no_grad():
            return self.paths(x)

    def condition_on(
        self,
        X: Float[Tensor, "k d"],
        y: Tensor,
        *,
        noise: float | Tensor | None = None,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
    ) -> Posterior:
        """The posterior given these rows too, the same prior functions behind its samples, solved from this one."""
        weights = torch.cat([self.paths.mean_weights, self.paths.sample_weights], dim=1)
        return self.conditioning.extend(weights, X, y, noise=noise, generator=generator, progress=progress)

    def save(self, path: Path | str) -> None:
        """Write everything to ``path``; :func:`matheron.load` reads it back and runs no code."""
        from matheron.gp.files import save

        save(self, path)

    def _moments(self, x: Tensor, exact: bool | None) -> tuple[Float[Tensor, "m c"], Float[Tensor, "m c"]]:
        """Mean and variance in standard units, some rows at a time."""
        means, variances = [], []
        for part in self.paths.blocks(x):
            if self._is_exact(exact):
                mean, variance = self.paths.mean(part), self.exact.variance(part)
            elif exact:
                mean, variance = self.paths.mean(part), self._solved_covariance(part).diagonal()
            else:
                mean, deviations = self.paths.mean_and_deviations(part)
                # Outputs share the kernel and the noise, and so every function speaks for the variance of all.
                variance = deviations.square().mean(1)
            means.append(mean)
            variances.append(variance.clamp_min(0.0)[:, None].expand_as(mean))
        return torch.cat(means), torch.cat(variances)

    def _is_exact(self, exact: bool | None) -> bool:
        """Whether to read a factor: where there is one and nobody asks for the samples'."""
        if exact is None and not self.exact_variance and len(self.paths) == 0:
            raise ValueError(
                "no functions were drawn to take the variance from; pass exact=True, or condition anew with "
                "num_samples= of at least one"
            )
        return exact is not False and (self.exact_variance or (exact is True and self.conditioning.has_factors))

    def _solved_covariance(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m m"]:
        """``k(x, x) − K_xX W − Wᵀ K_Xx + Wᵀ (K + N) W``, ``W ≈ (K + N)⁻¹ K_Xx`` by one more solve.

        An error ``E`` of the solve adds ``Eᵀ (K + N) E``: of second order, and never towards too little variance.
        """
        if x.shape[0] > EXACT_POINTS:
            raise ValueError(
                f"x has {x.shape[0]} rows; exact variances without a factorization take a solve each, "
                f"give at most {EXACT_POINTS} or leave exact out to use the samples'"
            )
        conditioning, generator = self.conditioning, torch.Generator().manual_seed(self.report.seed)
        across = conditioning.kernel(self.paths.support, x)
        # Held fixed in the gradient too: at the solution the value does not change with them.
        weights = conditioning.solve(across.detach(), generator=generator).solution
        gained = across.mT @ weights
        spent = weights.mT @ (conditioning.system() @ weights)
        return conditioning.kernel(x) - (gained + gained.mT) + 0.5 * (spent + spent.mT)

    def _noise_at(self, x: Tensor, noise: float | Tensor | None) -> Float[Tensor, "rows outputs"]:
        """Of an observation, in squared units of the targets."""
        if noise is None:
            variance = self.conditioning.noise
            if variance is None:
                raise ValueError("noise is missing: the training rows had one variance each; give those of these rows")
            return self.paths.units.restore_variance(variance.expand(1, self.paths.outputs))
        values = require_positive("noise", noise, zero=True).to(device=x.device, dtype=x.dtype)
        if values.ndim > 1 or (values.ndim == 1 and len(values) not in (1, x.shape[0])):
            raise ValueError(
                f"noise has shape {tuple(values.shape)} but x has {x.shape[0]} rows; give one for all or one each"
            )
        return values.reshape(-1, 1)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        self._exact = None
        return super()._apply(fn, recurse)
