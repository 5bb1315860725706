"""The hyperparameters of a process as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess


class Parameters:
    """``θ``: every parameter that is to be learnt, positive ones as logarithms, the mean in multiples of ``unit``.

    Parameters whose name does not begin with ``log_``, such as the mean and those of foreign kernels, are ``free``.

    >>> import matheron as mt
    >>> gp = mt.GaussianProcess(mt.kernels.RBF(lengthscale=[1.0, 1.0]))
    >>> Parameters(gp).names
    ['noise', 'mean', 'kernel.variance', 'kernel.lengthscale']
    >>> Parameters(gp).vector().shape
    torch.Size([5])
    """

    def __init__(self, gp: GaussianProcess, unit: float = 1.0) -> None:
        self.gp, self.unit = gp, unit
        self.tensors = {natural_name(name): p for name, p in gp.named_parameters() if p.requires_grad}
        self.free = {natural_name(n) for n, _ in gp.named_parameters() if not n.split(".")[-1].startswith("log_")}
        if not self.tensors:
            raise ValueError("gp has no parameter with requires_grad=True, so that there is nothing to learn")

    @property
    def names(self) -> list[str]:
        """In natural units, with dots for parts of the kernel."""
        return list(self.tensors)

    @property
    def places(self) -> dict[str, slice]:
        """Where in the vector each one stands."""
        places, start = {}, 0
        for name, tensor in self.tensors.items():
            places[name] = slice(start, start + tensor.numel())
            start += tensor.numel()
        return places

    def marked(self, ending: str) -> Bool[Tensor, " p"]:
        """Which entries belong to parameters whose names end so.

        >>> import matheron as mt
        >>> Parameters(mt.GaussianProcess(mt.kernels.RBF(lengthscale=[1.0, 1.0]))).marked("lengthscale")
        tensor([False, False, False,  True,  True])
        """
        return torch.cat([torch.full((p.numel(),), name.endswith(ending)) for name, p in self.tensors.items()])

    def vector(self) -> Float64[Tensor, " p"]:
        """The values now."""
        vector = torch.cat([p.detach().to(torch.float64).reshape(-1) for p in self.tensors.values()]).cpu()
        return vector / self.units

    @property
    def units(self) -> Float64[Tensor, " p"]:
        """What one unit of each entry stands for: ``unit`` for the mean."""
        return torch.cat(
            [
                torch.full((p.numel(),), self.unit if name == "mean" else 1.0, dtype=torch.float64)
                for name, p in self.tensors.items()
            ]
        )

    @torch.no_grad()
    def assign(self, vector: Float64[Tensor, " p"]) -> None:
        """Write them back."""
        vector = vector * self.units
        for place, p in zip(self.places.values(), self.tensors.values(), strict=True):
            p.copy_(vector[place].reshape(p.shape))

    def gradient(self, kernel: Iterable[Tensor], noise: Tensor, mean: Tensor) -> Float64[Tensor, " p"]:
        """One vector from the gradients of ``kernel.parameters()``, each row's noise and each output's mean."""
        pieces = {id(p): g for p, g in zip(self.gp.kernel.parameters(), kernel, strict=True)}
        pieces[id(self.gp.log_noise)] = self.gp.noise.detach() * noise.sum()
        pieces[id(self.gp.mean)] = mean if self.gp.mean.ndim == 1 else mean.sum()
        vector = torch.cat([pieces[id(p)].to(torch.float64).reshape(-1) for p in self.tensors.values()]).cpu()
        return vector * self.units

    def natural(self, vector: Float64[Tensor, " p"]) -> dict[str, Any]:
        """Numbers in natural units, for a record."""
        values, vector = {}, vector * self.units
        for (name, place), p in zip(self.places.items(), self.tensors.values(), strict=True):
            value = vector[place] if name in self.free else vector[place].exp()
            values[name] = value.tolist() if p.ndim else float(value)
        return values

    def label(self, position: int) -> str:
        """The name of one entry of the vector."""
        name, place = next((n, s) for n, s in self.places.items() if s.start <= position < s.stop)
        return f"{name}[{position - place.start}]" if self.tensors[name].ndim else name


def natural_name(name: str) -> str:
    """``kernel.log_variance`` is the logarithm of ``kernel.variance``."""
    *path, last = name.split(".")
    return ".".join([*path, last.removeprefix("log_")])
