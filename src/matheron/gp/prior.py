"""The Gaussian process: a prior over functions with observation noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_finite, require_numbers, require_positive
from matheron.gp.condition import condition
from matheron.gp.conditioning import Solver
from matheron.gp.evidence import observed_evidence
from matheron.gp.fitting import LogNormal, Method, WarmStart, fit
from matheron.gp.observations import Observations, known_noise, require_noise, require_rows, require_targets
from matheron.gp.posterior import Posterior
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel
from matheron.kernels.positive import Positive
from matheron.solvers import Checkpoint
from matheron.solvers.iteration import Monitor


class Noise(Positive):
    """One variance, a hyperparameter; or one per row: known measurement errors, which are not learnt."""

    def __set__(self, module: nn.Module, value: Any) -> None:
        value = require_positive(self.name, value)
        value = value.reshape(()) if value.numel() == 1 else value
        if value.ndim > 1:
            raise ValueError(f"noise must be a number or one per row, shape (n,), got shape {tuple(value.shape)}")
        before = module._parameters.get(self.raw)
        if before is not None and before.ndim != value.ndim:
            value = value.to(before.device)
            del module._parameters[self.raw]
        super().__set__(module, value)
        if value.ndim == 1:
            getattr(module, self.raw).requires_grad_(False)


class GaussianProcess(nn.Module):
    """``f ~ GP(m, k)``, ``y = f(x) + ε``, ``ε ~ N(0, σ²)`` (thesis §2.2).

    ``noise`` is the variance ``σ²``: one for all rows, learnt by :meth:`fit`, or one per row, taken as known, in the
    squared units of the targets. With ``standardize=True`` inputs and targets are centered and scaled by those fitted
    to, or without a fit by those conditioned on; hyperparameters are then in these units, and predictions in those of
    the data.

    >>> import torch
    >>> import matheron as mt
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(200, 1, generator=g)
    >>> y = (6 * X[:, 0]).sin() + 0.1 * torch.randn(200, generator=g)
    >>> gp = GaussianProcess(mt.kernels.RBF(lengthscale=0.3), noise=0.01)
    >>> post = gp.condition(X, y, num_samples=16, generator=g)
    >>> low, high = post.predict(X).interval(0.95)
    >>> 0.9 < ((low < y) & (y < high)).float().mean().item() <= 1.0, post.sample(X).shape
    (True, torch.Size([16, 200]))
    """

    noise = Noise(vector=True)
    log_noise: nn.Parameter
    mean: nn.Parameter

    def __init__(
        self, kernel: Kernel, noise: float | Tensor = 0.1, mean: float | Tensor = 0.0, *, standardize: bool = False
    ) -> None:
        super().__init__()
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be one of matheron.kernels, got {type(kernel).__name__}; "
                "a GPyTorch kernel is wrapped by matheron.interop.gpytorch.kernel"
            )
        self.kernel = kernel
        self.noise = noise
        center = require_numbers("mean", mean)
        if center.ndim > 1:
            raise ValueError(f"mean must be a number or one per output, shape (c,), got shape {tuple(center.shape)}")
        self.mean = nn.Parameter(require_finite("mean", center).clone())
        self.standardize = standardize
        self.units: Standardization | None = None
        self.history: list[dict[str, Any]] = []
        self.warm: WarmStart | None = None

    def observations(self, X: Tensor, y: Tensor, noise: float | Tensor | None = None) -> Observations:
        """Check the data and put it in the units of the hyperparameters."""
        X = require_rows(self.kernel, X)
        Y = require_targets(y, X)
        if self.mean.ndim == 1 and len(self.mean) != Y.shape[1]:
            raise ValueError(f"y has {Y.shape[1]} columns but mean has {len(self.mean)} values; give one each")
        units = self.units
        if units is None:
            with torch.inference_mode(False):
                units = Standardization.of(X, Y) if self.standardize else Standardization.none(X, Y)
        for name, columns, known in (("X", X.shape[1], units.x_mean), ("y", Y.shape[1], units.y_mean)):
            if columns != len(known):
                raise ValueError(f"{name} has {columns} columns but the process was fitted to {len(known)}")
        if noise is None and self.log_noise.ndim == 1:
            noise = self.noise
        variances = require_noise(self.noise, X.shape[0], X) if noise is None else known_noise(noise, X, units)
        return Observations(units.inputs(X), units.targets(Y), variances, units, single=y.ndim == 1)

    def condition(
        self,
        X: Float[Tensor, "n d"],
        y: Tensor,
        *,
        num_samples: int = 64,
        solver: Solver | str = "auto",
        inducing: int | Tensor | None = None,
        noise: float | Tensor | None = None,
        num_features: int = 2000,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
        monitor: Monitor | None = None,
    ) -> Posterior:
        """``f | y``: one solve for the mean and ``num_samples`` posterior functions (thesis §4.1).

        ``y`` is ``(n,)``, or ``(n, c)`` for independent outputs that share kernel and solve. ``noise`` overrides the
        process' own, with one variance per row in squared units of ``y``. ``inducing`` is a number of inducing points
        or their locations. Prior functions have ``num_features`` random features each. ``generator`` may be a seed,
        such as that of a report. ``progress``, ``checkpoint`` and ``monitor`` are those of a solver's ``solve``.
        """
        return condition(
            self, X, y, num_samples=num_samples, solver=solver, inducing=inducing, noise=noise,
            num_features=num_features, generator=generator, progress=progress, checkpoint=checkpoint,
            monitor=monitor,
        )  # fmt: skip

    def log_evidence(self, X: Tensor, y: Tensor) -> Float[Tensor, ""]:
        """``log N(y; m, K + N)`` in the units of ``y``, summed over outputs; exact.

        It is differentiable in the hyperparameters, in ``X`` and in ``y``, once; units of standardized data count as
        given. It takes ``8 n²`` bytes and refuses more than there are.

        >>> import torch
        >>> import matheron as mt
        >>> gp = mt.GaussianProcess(mt.kernels.RBF(), noise=1.0)
        >>> gp.log_evidence(torch.tensor([[0.0], [9.0]]), torch.zeros(2)).item()  # log N(0; 0, 2), twice
        -2.5310242...
        """
        return observed_evidence(self, self.observations(X, y))

    def fit(
        self,
        X: Tensor,
        y: Tensor,
        method: str | Method = "auto",
        *,
        start: str = "data",
        priors: Mapping[str, LogNormal] | None = None,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
        **options: Any,
    ) -> GaussianProcess:
        """``argmax_θ log p(y; θ)``: learn kernel, noise and mean in place; :attr:`history` tells how.

        ``method`` is ``"exact"``, ``"subset"``, ``"iterative"`` (``options`` are then fields of
        :class:`~matheron.gp.fitting.Exact` and so on), one of these as a value, or ``"auto"``, by the number of rows.
        ``start="current"`` begins at the present values, ``"data"`` at ones read off the data. ``priors`` names
        hyperparameters by pattern; left out, lengthscales and noise have weak ones where there are fewer than ten rows
        for each hyperparameter, ``priors={}`` has none. Parameters with ``requires_grad=False``, such as a noise per
        row, stay as they are.

        >>> import torch
        >>> import matheron as mt
        >>> X = torch.linspace(0, 10, 100)[:, None]
        >>> y = X[:, 0].sin() + 0.1 * torch.randn(100, generator=torch.Generator().manual_seed(0))
        >>> gp = mt.GaussianProcess(mt.kernels.RBF()).fit(X, y)
        >>> gp.history[0]["method"], 0.005 < gp.noise.item() < 0.02
        ('exact', True)
        """
        return fit(self, X, y, method, start, priors, generator, progress, Checkpoint.of(checkpoint), options)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        moved = super()._apply(fn, recurse)
        device = moved.log_noise.device
        moved.units = None if moved.units is None else moved.units.to(device)
        if moved.warm is not None and moved.warm.solution.device != device:
            # It belongs to data on the device before.
            moved.warm = None
        return moved

    def extra_repr(self) -> str:
        """Noise and mean in numbers."""
        noise = f"{self.noise.item():.4g}" if self.log_noise.ndim == 0 else f"{len(self.log_noise)} values"
        mean = f"{self.mean.item():.4g}" if self.mean.ndim == 0 else f"{self.mean.tolist()}"
        return f"noise={noise}, mean={mean}, standardize={self.standardize}"
