"""Each kernel in a few plain lines of double precision, entry by entry, that import nothing they check."""

import math

import torch
from torch import Tensor

from matheron.kernels import RBF, Kernel, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic


def difference(x: Tensor, z: Tensor) -> Tensor:
    return x.double()[:, None, :] - z.double()[None, :, :]


def distance(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return (difference(x, z) / lengthscale).square().sum(-1).sqrt()


def rbf(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return torch.exp(-0.5 * distance(x, z, lengthscale) ** 2)


def matern12(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return torch.exp(-distance(x, z, lengthscale))


def matern32(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    r = math.sqrt(3) * distance(x, z, lengthscale)
    return (1 + r) * torch.exp(-r)


def matern52(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    r = math.sqrt(5) * distance(x, z, lengthscale)
    return (1 + r + r**2 / 3) * torch.exp(-r)


def rational_quadratic(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return (1 + distance(x, z, lengthscale) ** 2 / (2 * 0.7)) ** (-0.7)


def periodic(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return torch.exp(-2 * (torch.sin(math.pi * difference(x, z) / 1.7) ** 2).sum(-1) / lengthscale**2)


def linear(x: Tensor, z: Tensor, lengthscale: float) -> Tensor:
    return (x.double()[:, None, :] * z.double()[None, :, :]).sum(-1) / lengthscale**2


def tanimoto(x: Tensor, z: Tensor) -> Tensor:
    x, z = x.double()[:, None, :], z.double()[None, :, :]
    low, high = torch.minimum(x, z).sum(-1), torch.maximum(x, z).sum(-1)
    return torch.where(high == 0, 1.0, low / high)


def make(name: str, lengthscale: float | Tensor, variance: float = 1.0, **kwargs: object) -> Kernel:
    special: dict[str, dict[str, float]] = {"rational_quadratic": {"alpha": 0.7}, "periodic": {"period": 1.7}}
    return KERNELS[name](lengthscale=lengthscale, variance=variance, **special.get(name, {}), **kwargs)


KERNELS = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
    "periodic": Periodic,
    "linear": Linear,
}
TWINS = {
    "rbf": rbf,
    "matern12": matern12,
    "matern32": matern32,
    "matern52": matern52,
    "rational_quadratic": rational_quadratic,
    "periodic": periodic,
    "linear": linear,
}
STATIONARY = [name for name in KERNELS if name != "linear"]
