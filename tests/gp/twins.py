"""Exact posteriors of a few lines of torch.linalg, in float64, importing nothing they check."""

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor, Tensor], Tensor]


def rbf(lengthscale: float, variance: float = 1.0) -> Kernel:
    """``σ² exp(−‖x − z‖² / 2ℓ²)``."""
    return lambda x, z: variance * torch.exp(-0.5 * torch.cdist(x, z).square() / lengthscale**2)


def posterior(k: Kernel, X: Tensor, y: Tensor, noise: Tensor, x: Tensor, center: float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and covariance of ``f(x) | y``."""
    H = k(X, X) + noise.expand(len(X)).diag()
    across = k(x, X)
    mean = center + across @ torch.linalg.solve(H, y - center)
    return mean, k(x, x) - across @ torch.linalg.solve(H, across.mT)


def titsias(k: Kernel, X: Tensor, y: Tensor, noise: Tensor, Z: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance of the KL-optimal inducing-point posterior, and its evidence lower bound."""
    B = 1.0 / noise.expand(len(X))
    K_zz, K_zx, across = k(Z, Z), k(Z, X), k(x, Z)
    R = K_zz + (K_zx * B) @ K_zx.mT
    mean = across @ torch.linalg.solve(R, (K_zx * B) @ y)
    covariance = k(x, x) + across @ (torch.linalg.inv(R) - torch.linalg.inv(K_zz)) @ across.mT
    Q = K_zx.mT @ torch.linalg.solve(K_zz, K_zx)
    evidence = torch.distributions.MultivariateNormal(torch.zeros_like(y), Q + (1 / B).diag()).log_prob(y)
    return mean, covariance, evidence - 0.5 * (B * (k(X, X) - Q).diagonal()).sum()
