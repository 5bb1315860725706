"""A Gaussian process as a scikit-learn estimator."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matheron.arguments import require_count
from matheron.gp import GaussianProcess, Posterior
from matheron.kernels import Kernel, Matern32

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("matheron.interop.sklearn needs scikit-learn 1.6; pip install 'matheron[sklearn]'") from error

__all__ = ["GaussianProcessRegressor"]

CHEAP_ROWS = 2_000
"""Up to here one evidence more costs a fraction of a second."""


class GaussianProcessRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """``y = f(x) + ε``, ``f ~ GP(m, k)``, ``ε ~ N(0, σ²)``: numpy in, numpy out, as scikit-learn expects.

    It has the methods of scikit-learn's estimator of this name, and grows to rows by the hundred thousand. Standard
    deviations, covariances and samples are of the function ``f``; an observation's variance has ``noise_`` on top.

    Parameters
    ----------
    kernel : Kernel, default=None
        One of ``matheron.kernels``, a Matérn-3/2 with one lengthscale per input if left out. ``fit`` learns a copy.
    noise : float or array of shape (n_samples,), default=0.1
        The variance ``σ²``, or known variances of the training rows in squared units of ``y``.
    standardize : bool, default=True
        Center and scale inputs and targets; hyperparameters are then in these units, predictions in those of ``y``.
    method : str, method or None, default="auto"
        How hyperparameters are learnt, see :meth:`GaussianProcess.fit`; it starts from the spread of the data.
        ``None`` keeps those of ``kernel`` and ``noise``.
    solver : "auto" or one of ``matheron.solvers``, default="auto"
        For the linear systems; exact up to some thousand rows.
    num_samples : int, default=64
        Functions drawn in ``fit``, for ``sample_y``, and for standard deviations where no factorization is at hand.
        ``0`` draws none, for kernels without random features.
    inducing : int, array of shape (m, n_features) or None, default=None
        Inducing points in place of the data.
    dtype : "float64" or "float32", default="float64"
        ``"float32"`` halves memory and time of large problems.
    random_state : int, RandomState or None, default=None
        Fixes the functions.

    Attributes
    ----------
    gp_, kernel_ : the process with learnt hyperparameters, and its kernel
    posterior_ : the :class:`Posterior`, whose ``report`` says what was solved and how well
    noise_ : float or array of shape (n_targets,), the variance of an observation in squared units of ``y``; absent
        where the training rows had one each
    log_marginal_likelihood_value_ : the log evidence, where there are few rows

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * random.normal(size=100)
    >>> model = GaussianProcessRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.5], [20.0]], return_std=True)
    >>> bool(abs(mean[0] - 1) < 0.1), bool(std[0] < 0.1 < std[1]), model.sample_y(X, n_samples=5).shape
    (True, True, (100, 5))
    """

    gp_: GaussianProcess
    posterior_: Posterior

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise: Any = 0.1,
        standardize: bool = True,
        method: Any = "auto",
        solver: Any = "auto",
        num_samples: int = 64,
        inducing: Any = None,
        dtype: str = "float64",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.standardize = standardize
        self.method = method
        self.solver = solver
        self.num_samples = num_samples
        self.inducing = inducing
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> GaussianProcessRegressor:
        """Learn hyperparameters unless ``method`` is ``None``, and condition on ``(X, y)``."""
        dtype = self._dtype()
        X, y = validate_data(
            self, X, y, dtype=dtype, multi_output=True, y_numeric=True, ensure_min_samples=2, order="C"
        )
        inputs, targets = self._tensor(X), self._tensor(y)
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        kernel = Matern32(torch.ones(X.shape[1])) if self.kernel is None else copy.deepcopy(self.kernel)
        noise = self.noise if np.ndim(self.noise) == 0 else self._tensor(self.noise)
        gp = GaussianProcess(kernel, noise, standardize=self.standardize)
        if self.method is not None:
            gp.fit(inputs, targets, self.method, generator=generator)
        self.posterior_ = gp.condition(
            inputs,
            targets,
            num_samples=self.num_samples,
            solver=self.solver,
            inducing=self.inducing if np.ndim(self.inducing) == 0 else self._tensor(self.inducing),
            generator=generator,
        )
        self.gp_, self.kernel_ = gp, gp.kernel
        for name in ("noise_", "log_marginal_likelihood_value_"):
            # What this fit does not set must not stay from the one before.
            self.__dict__.pop(name, None)
        if np.ndim(self.noise) == 0:
            noises = self.posterior_.paths.units.restore_variance(gp.noise.detach().expand(1, targets[0].numel()))[0]
            self.noise_ = noises.item() if targets.ndim == 1 else noises.numpy()
        if len(X) <= CHEAP_ROWS:
            self.log_marginal_likelihood_value_ = gp.log_evidence(inputs, targets).item()
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """``E f(x)``, with the standard deviation ``(n,)`` or covariance ``(n, n)`` of ``f``, without noise, if asked.

        Several targets have these as ``(n, n_targets)`` and ``(n, n, n_targets)``.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both set; ask for one, cov has the squares on its diagonal")
        x = self._inputs(X)
        posterior = self.posterior_
        # Without functions there is nothing to take variances from but one more solve.
        exact = True if len(posterior.paths) == 0 and not posterior.exact_variance else None
        with torch.no_grad():
            mean = posterior.mean(x).numpy()
            if return_std:
                return mean, posterior.variance(x, exact=exact).sqrt().numpy()
            if return_cov:
                return mean, self.posterior_.covariance(x, exact=exact).numpy()
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Values of posterior functions at ``X``, ``(n, n_samples)`` or ``(n, n_targets, n_samples)``.

        They are those drawn in ``fit``, so that two calls see the same functions: the first ``n_samples`` of them, or
        with a ``random_state`` any ``n_samples``.
        """
        x = self._inputs(X)
        drawn = len(self.posterior_.paths)
        if require_count("n_samples", n_samples) > drawn:
            raise ValueError(
                f"n_samples is {n_samples} but {drawn} functions were drawn in fit; set num_samples={n_samples} and fit"
            )
        picked = np.arange(drawn) if random_state is None else check_random_state(random_state).permutation(drawn)
        return np.moveaxis(self.posterior_.sample(x).numpy()[picked[:n_samples]], 0, -1)

    def _inputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._tensor(validate_data(self, X, dtype=self._dtype(), order="C", reset=False))

    def _dtype(self) -> Any:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        return np.dtype(self.dtype)

    def _tensor(self, values: Any) -> Tensor:
        """A copy, as tensors cannot be views of read-only arrays."""
        return torch.tensor(np.asarray(values, dtype=self._dtype()))
