"""Joint samples of a Gaussian-process prior at given inputs."""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.kernels.base import Kernel
from matheron.kernels.feature_map import FeatureMap, NoFeaturesError
from matheron.kernels.rows import take_rows
from matheron.seeds import normals, source_of

MOST_POINTS = 5_000
"""Inputs beyond which a Cholesky factor takes minutes."""
BLOCK = 4_096
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


class JitterWarning(UserWarning):
    """A covariance matrix was singular to working precision, and something was added to its diagonal.

    >>> import torch, warnings
    >>> from matheron.kernels import RBF, Linear, sample_prior
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     _ = sample_prior(Linear() * RBF(), torch.ones(3, 1), 1, generator=0)  # one value at three equal inputs
    >>> [warning.category.__name__ for warning in said]
    ['JitterWarning']
    """


def sample_prior(
    kernel: Kernel,
    x: Float[Tensor, "n d"],
    num: int,
    generator: torch.Generator | int | None = None,
    num_features: int = 2000,
) -> Float[Tensor, "num n"]:
    """``f(x) ~ N(0, k(x, x))``: ``num`` functions at the rows of ``x``, one per row of the result (thesis §2.2.3).

    By ``φ(x) w`` with ``num_features`` random features where the kernel has them: any number of inputs, covariance
    right to about ``1/√num_features``. Otherwise by a Cholesky factor: exact, for at most 5,000 inputs, with a
    :class:`JitterWarning` if the matrix needed more on its diagonal.

    >>> import torch
    >>> from matheron.kernels import Matern52
    >>> g = torch.Generator().manual_seed(0)
    >>> sample_prior(Matern52(lengthscale=0.2), torch.linspace(0, 1, 50)[:, None], 3, generator=g).shape
    torch.Size([3, 50])
    """
    require_count("num", num)
    x = kernel.check_inputs("x", x)
    source = source_of(generator)
    with torch.no_grad():
        try:
            phi = kernel.features(num_features, dimension=x.shape[1], generator=source)
        except NoFeaturesError as reason:
            if x.shape[0] > MOST_POINTS:
                raise NoFeaturesError(
                    f"x has {x.shape[0]} rows, more than the {MOST_POINTS} a Cholesky factor is made for, and {reason}"
                ) from reason
            return by_cholesky(kernel, x, num, source)
        return by_features(phi, x, num, source)


def by_features(phi: FeatureMap, x: Tensor, num: int, generator: torch.Generator) -> Float[Tensor, "num n"]:
    """``w φ(x)ᵀ`` with ``w ~ N(0, I)``, block by block."""
    weights = normals((num, phi.num), x, generator)
    blocks = (slice(start, start + BLOCK) for start in range(0, x.shape[0], BLOCK))
    return torch.cat([weights @ phi(take_rows(x, block)).mT for block in blocks], dim=1)


def by_cholesky(kernel: Kernel, x: Tensor, num: int, generator: torch.Generator) -> Float[Tensor, "num n"]:
    """``w Lᵀ`` with ``L Lᵀ = k(x, x) + jitter``, in float64."""
    covariance = kernel(x.to(torch.float64))
    mean = covariance.diagonal().mean()
    for jitter in JITTERS:
        shift = jitter * mean * torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        factor, info = torch.linalg.cholesky_ex(covariance + shift)
        if int(info) == 0:
            break
    else:
        raise ValueError(
            f"the covariance of {type(kernel).__name__} at these {x.shape[0]} rows is not positive definite, "
            f"even with {jitter:g} of its mean added to the diagonal; check that the kernel is one"
        )
    if jitter > 0.0:
        warnings.warn(
            f"the covariance at these {x.shape[0]} rows is singular to working precision; "
            f"{jitter:g} of its mean diagonal was added, as independent noise of standard deviation "
            f"{(jitter * mean.item()) ** 0.5:.2g} on the samples",
            JitterWarning,
            stacklevel=3,
        )
    weights = torch.randn(num, x.shape[0], dtype=torch.float64, generator=generator, device=generator.device)
    return (weights.to(x.device) @ factor.mT).to(x.dtype)
