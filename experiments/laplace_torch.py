"""laplace-torch as a peer: its Kronecker-factored curvatures, its regression, and how long its diagonal takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.lenet import mnist, restored
from matheron.networks import TangentModel

CURVATURES = {
    "KFAC GGN": ("CurvlinopsGGN", {}),
    "KFAC Fisher, one sample": ("CurvlinopsGGN", {"stochastic": True}),
    "KFAC empirical Fisher": ("CurvlinopsEF", {}),
}


def library() -> Any:
    """The package, where it is installed."""
    try:
        import laplace
        import laplace.curvature
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; `make install-bench` installs laplace-torch and what it needs") from error
    return laplace


def batches(X: Tensor, y: Tensor, size: int = 64) -> DataLoader:
    """In order."""
    return DataLoader(TensorDataset(X, y), batch_size=size)


def kron(model: nn.Module, X: Tensor, y: Tensor, curvature: str, seed: int) -> Any:
    """A fitted ``KronLaplace`` of all layers; the seed is that of a sampled Fisher."""
    laplace = library()
    backend, options = CURVATURES[curvature]
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        found = laplace.KronLaplace(
            model, "classification", backend=getattr(laplace.curvature, backend), backend_kwargs=options
        )
        found.fit(batches(X, y))
    return found


def spectrum(fitted: Any) -> Tensor:
    """Eigenvalues of a Kronecker-factored curvature, without the prior."""
    parts = []
    for factors in fitted.H.eigenvalues:
        values = factors[0].double()
        for factor in factors[1:]:
            values = torch.outer(values, factor.double()).flatten()
        parts.append(values.clamp(min=0.0))
    return torch.cat(parts)


def diagonal(filters: list[int], state: str, images: int) -> Callable[[], Mapping[str, Any]]:
    """Its own diagonal of a trained network, for a child process under a limit."""
    laplace, model = library(), restored(filters, state)
    (X, y), _ = mnist(images, 1)

    def fit() -> Mapping[str, Any]:
        found = laplace.Laplace(model, "classification", subset_of_weights="all", hessian_structure="diag")
        found.fit(batches(X, y))
        return {"diagonal": found.H.tolist()}

    return fit


def functions(
    model: nn.Module, X: Tensor, y: Tensor, *, num: int, seed: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """KFAC with its prior tuned: mean ``(b, c)`` and ``num`` functions ``(num, b, c)``, one draw of weights for all.

    Jacobians are ours: the library's own take memory that grows with the square of the batch.
    """
    fitted = kron(model, X, y, "KFAC GGN", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.optimize_prior_precision()
    weights = fitted.sample(num, generator=torch.Generator().manual_seed(seed)) - fitted.mean

    tangent = TangentModel(model)

    def at(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, pushed = tangent.value_and_jvp(x, weights)
        return mean, mean + pushed

    return at


def regression(model: nn.Module, X: Tensor, y: Tensor, subset: str, structure: str, *, steps: int = 2_000) -> Any:
    """A posterior for targets ``(n, 1)``, prior precision and noise by its marginal likelihood.

    As its documentation shows it, by Adam with a step of 0.1 on their logarithms; not for 100 steps, but until 100
    have gained less than 0.01 nats.
    """
    laplace = library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = laplace.Laplace(model, "regression", subset_of_weights=subset, hessian_structure=structure)
        found.fit(batches(X, y, size=512))
        log_prior, log_sigma = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
        optimizer, reached = torch.optim.Adam([log_prior, log_sigma], lr=0.1), -float("inf")
        for step in range(steps):
            optimizer.zero_grad()
            loss = -found.log_marginal_likelihood(log_prior.exp(), log_sigma.exp())
            loss.backward()
            optimizer.step()
            if step % 100 == 99:
                if -float(loss) < reached + 0.01:
                    break
                reached = -float(loss)
        found.prior_precision, found.sigma_noise = log_prior.detach().exp(), log_sigma.detach().exp()
    return found
