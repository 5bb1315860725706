"""Posterior functions as a model of BoTorch."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from matheron.gp import Posterior

try:
    from botorch.models.ensemble import EnsembleModel
except ImportError as error:
    raise ImportError("matheron.interop.botorch needs BoTorch; pip install 'matheron[botorch]'") from error

__all__ = ["PathwiseModel", "model"]


class PathwiseModel(EnsembleModel):
    """``f_j(X)`` of every posterior function, an ensemble: ``(…, q, d)`` to ``(…, s, q, c)``, differentiable in ``X``.

    The same functions at every call, so that acquisition functions by sampling are smooth, and cost no factorization
    of a joint covariance. Its mean and variance are those of the functions. It is fixed: for more data, condition anew
    and make another.

    >>> import torch
    >>> import matheron as mt
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(20, 2, generator=g, dtype=torch.float64)
    >>> posterior = mt.GaussianProcess(mt.kernels.RBF(), 0.01).condition(X, X.sum(1), num_samples=32, generator=g)
    >>> from botorch.acquisition import qLogExpectedImprovement
    >>> improvement = qLogExpectedImprovement(PathwiseModel(posterior), best_f=X.sum(1).max())
    >>> improvement(torch.ones(1, 2, dtype=torch.float64)) > improvement(torch.zeros(1, 2, dtype=torch.float64))
    tensor([True])
    """

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        if not isinstance(posterior, Posterior):
            raise TypeError(f"posterior must be that of a Gaussian process, got {type(posterior).__name__}")
        if len(posterior.paths) == 0:
            raise ValueError("posterior has no functions; condition with num_samples= of at least one")
        self.paths = posterior.paths
        self._num_outputs = posterior.paths.outputs

    def forward(self, X: Float[Tensor, "... q d"]) -> Float[Tensor, "... s q c"]:
        """Values of all functions."""
        values = self.paths(X.reshape(-1, X.shape[-1]))
        columns = values.reshape(len(self.paths), *X.shape[:-1], self._num_outputs)
        return columns.movedim(0, -3)


def model(posterior: Posterior) -> PathwiseModel:
    """The functions of a posterior as a model that BoTorch's acquisition functions take.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 9)[:, None]
    >>> posterior = mt.GaussianProcess(mt.kernels.RBF(), 0.01).condition(X, X[:, 0], num_samples=8, generator=0)
    >>> model(posterior).posterior(X[None, :2]).rsample(torch.Size([5])).shape
    torch.Size([5, 1, 2, 1])
    """
    return PathwiseModel(posterior)
