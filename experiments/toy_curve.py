"""Eight observations of a curve with a gap between them, under a Gaussian process: what two pictures share."""

from __future__ import annotations

import torch
from torch import Tensor

import matheron as mt

LENGTHSCALE, NOISE = 0.5, 0.02
"""``ψ`` of the RBF kernel, and the variance of the observation noise."""


def kernel() -> mt.kernels.Kernel:
    """RBF, ``ψ = 0.5``."""
    lengthscale = torch.tensor([LENGTHSCALE], dtype=torch.float64)
    return mt.kernels.RBF(lengthscale=lengthscale).requires_grad_(False)


def observations(seed: int) -> tuple[Tensor, Tensor]:
    """``sin 2x + x/3`` with noise, at eight inputs."""
    x = torch.tensor([-2.0, -1.6, -1.1, -0.8, 0.5, 0.9, 1.5, 1.9], dtype=torch.float64)[:, None]
    noise = torch.randn(len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x, (2.0 * x[:, 0]).sin() + x[:, 0] / 3.0 + NOISE**0.5 * noise


def system(x: Tensor) -> mt.operators.Operator:
    """``K + σ²I``."""
    return mt.operators.KernelOperator(kernel(), x) + mt.operators.Diagonal(torch.tensor(NOISE, dtype=torch.float64))
