"""Where learning begins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from matheron.gp.observations import Observations
from matheron.kernels import Kernel
from matheron.kernels.composite import Product, Scaled, Sum
from matheron.kernels.lengthscale import LengthscaleKernel
from matheron.kernels.linear import Linear
from matheron.kernels.stationary import Stationary

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess

NOISE_SHARE = 0.1
"""Of the variance of the targets: enough for the first solves to be easy, little enough to see a signal."""


@torch.no_grad()
def start_from_data(gp: GaussianProcess, data: Observations) -> None:
    """``ℓ_i = √d · std(x_i)``, ``σ² = var(y)``, noise a tenth of that, ``m = mean(y)``; frozen parameters stay.

    In these units two typical rows are ``√2`` lengthscales apart in any dimension ``d``. The terms of a sum share the
    variance. What has no natural scale in the data, such as a period, keeps its value.
    """
    targets = data.Y.to(torch.float64)
    center = targets.mean(0)
    power = float((targets - center).square().mean())
    power = power if power > 0 else 1.0
    assign(gp.mean, center if gp.mean.ndim == 1 else center.mean())
    assign(gp.log_noise, torch.tensor(NOISE_SHARE * power).log())
    scale_kernel(gp.kernel, data.X, power)


def scale_kernel(kernel: Kernel, X: Tensor, power: float) -> None:
    """A prior variance of about ``power``, and lengthscales of the size of the data."""
    if isinstance(kernel, Sum):
        for part in kernel:
            scale_kernel(part, X, power / len(kernel.parts))
    elif isinstance(kernel, Product):
        for place, part in enumerate(kernel):
            scale_kernel(part, X, power if place == 0 else 1.0)
    elif isinstance(kernel, Scaled):
        assign(kernel._parameters["log_scale"], torch.tensor(power).log())
        scale_kernel(kernel.part, X, 1.0)
    else:
        assign(kernel._parameters.get("log_variance"), torch.tensor(power).log())
        distance = isinstance(kernel, Stationary) and type(kernel).scaled is Stationary.scaled
        if isinstance(kernel, LengthscaleKernel) and (distance or isinstance(kernel, Linear)):
            spread = kernel.select(X).to(torch.float64).std(0, correction=0)
            # A constant column has no scale; any value does, as it is never divided by a difference.
            spread = torch.where(spread > 0, spread, 1.0) * math.sqrt(len(spread))
            if isinstance(kernel, Linear):
                spread = (spread.square() + len(spread) * kernel.select(X).to(torch.float64).mean(0).square()).sqrt()
            lengthscale = kernel.log_lengthscale
            assign(lengthscale, spread.log() if lengthscale.ndim == 1 else spread.square().mean().sqrt().log())


def assign(parameter: nn.Parameter | None, value: Tensor) -> None:
    """Set it, unless it is frozen or not there."""
    if parameter is not None and parameter.requires_grad:
        parameter.copy_(value)
