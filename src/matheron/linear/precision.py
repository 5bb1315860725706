"""Precision matrices of priors and noise: numbers, diagonals or matrices."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_inputs


def precision(name: str, value: Any, size: int, device: torch.device) -> Tensor:
    """A vector where the matrix is diagonal, else the matrix; in float64."""
    tensor = torch.as_tensor(value, dtype=torch.float64, device=device)
    require_finite(name, tensor)
    if tensor.shape not in ((), (size,), (size, size)):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; "
            f"give it a number, a diagonal ({size},) or a matrix ({size}, {size})"
        )
    if tensor.ndim == 2:
        return square(name, tensor)
    if bool((tensor < 0).any()):
        raise ValueError(f"{name} must not be negative, got {tensor.min().item():g}; it is a precision, 1/variance")
    return tensor.expand(size)


def square(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a finite symmetric matrix."""
    matrix = require_inputs(name, value)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, got shape {tuple(matrix.shape)}")
    if not torch.allclose(matrix, matrix.mT, rtol=1e-4, atol=1e-6 * matrix.abs().max().item()):
        raise ValueError(f"{name} is not symmetric; for rounding errors, give it ({name} + {name}.mT) / 2")
    return matrix


def times(matrix: Float[Tensor, " n"] | Float[Tensor, "n n"], V: Float[Tensor, "*s n m"]) -> Float[Tensor, "*s n m"]:
    """``matrix @ V``, where a vector stands for a diagonal."""
    return matrix @ V if matrix.ndim == 2 else matrix[:, None] * V


def root(name: str, matrix: Tensor) -> Tensor:
    """``L`` with ``LLᵀ`` the matrix: Cholesky where it is positive definite, eigenvectors where it is singular."""
    if matrix.ndim == 1:
        return matrix.sqrt()
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not int(failed):
        return factor
    values, vectors = torch.linalg.eigh(matrix)
    if bool(values[0] < -1e-6 * values[-1].abs()):
        raise ValueError(
            f"{name} has the eigenvalue {values[0].item():.2g}; make it positive semi-definite, for example by "
            "leaving out its negative eigenvalues"
        )
    return vectors * values.clamp(min=0.0).sqrt()


def log_normalizer(B: Tensor, given: Any) -> Tensor:
    """``½ (logdet B − n log 2π)``, of the density of the targets; ``given`` is ``B`` before it was made float64."""
    values = B if B.ndim == 1 else torch.linalg.eigvalsh(B)
    # Zero eigenvalues of a matrix come out of rounding, its entries' too, as small ones; on a diagonal zero is zero.
    rounding = 0.0 if B.ndim == 1 else 8.0 * len(values) * torch.finfo(given.dtype).eps
    if bool(values.min() <= rounding * values.max()):
        raise ValueError(
            "B is singular, so the targets have no density and no evidence; leave out directions without observation"
        )
    return 0.5 * (values.log().sum() - len(values) * math.log(2.0 * math.pi))
