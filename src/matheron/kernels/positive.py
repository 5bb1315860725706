"""Positive hyperparameters: stored as ``log θ``, set and read as ``θ``."""

from typing import Any

import torch
from torch import Tensor, nn

from matheron.arguments import require_positive


class Positive:
    """``θ = exp(log θ)``: an attribute in natural units over an unconstrained parameter ``log_θ``.

    The logarithm is kept in float64, so that what is set is what is read.

    >>> from matheron.kernels import RBF
    >>> k = RBF(lengthscale=0.3)
    >>> k.lengthscale.item()
    0.3
    >>> [name for name, _ in k.named_parameters()]
    ['log_variance', 'log_lengthscale']
    """

    def __init__(self, *, vector: bool = False) -> None:
        self.vector = vector

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.raw = f"log_{name}"

    def __get__(self, module: Any, owner: type) -> Tensor:
        return getattr(module, self.raw).exp()

    def __set__(self, module: nn.Module, value: Any) -> None:
        logarithm = require_positive(self.name, value).log()
        if logarithm.ndim > int(self.vector):
            wanted = "a number or one value per input, shape (d,)" if self.vector else "a single number"
            raise ValueError(f"{self.name} must be {wanted}, got shape {tuple(logarithm.shape)}")
        parameter = module._parameters.get(self.raw)
        if parameter is None:
            device = value.device if isinstance(value, Tensor) else None
            module.register_parameter(self.raw, nn.Parameter(logarithm.to(device)))
            return
        with torch.no_grad():
            if logarithm.ndim == 0:
                parameter.fill_(logarithm)
            elif logarithm.shape == parameter.shape:
                parameter.copy_(logarithm)
            else:
                parameter.data = logarithm.to(parameter.device)
