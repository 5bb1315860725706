"""The distribution of an observation."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """``y ~ N(mean, variance)``: the noise is in the variance, once.

    >>> import torch
    >>> p = Prediction(torch.zeros(2), torch.ones(2))
    >>> p.quantile(0.5), p.interval(0.95)[1]
    (tensor([0., 0.]), tensor([1.9600, 1.9600]))
    """

    mean: Float[Tensor, "m *c"]
    variance: Float[Tensor, "m *c"]

    @property
    def std(self) -> Float[Tensor, "m *c"]:
        """The standard deviation."""
        return self.variance.sqrt()

    def quantile(self, p: float) -> Float[Tensor, "m *c"]:
        """The value an observation stays below with probability ``p``."""
        require_probability(p)
        return self.mean + self.std * torch.special.ndtri(torch.tensor(p, dtype=torch.float64)).item()

    def interval(self, p: float = 0.95) -> tuple[Float[Tensor, "m *c"], Float[Tensor, "m *c"]]:
        """The central interval that holds an observation with probability ``p``: lower and upper ends."""
        require_probability(p)
        return self.quantile(0.5 - p / 2), self.quantile(0.5 + p / 2)

    def log_prob(self, y: Float[Tensor, "m *c"]) -> Float[Tensor, "m *c"]:
        """``log N(y; mean, variance)``, one value per observation."""
        if y.shape != self.mean.shape:
            raise ValueError(f"y has shape {tuple(y.shape)} but the predictions have {tuple(self.mean.shape)}")
        return torch.distributions.Normal(self.mean, self.std).log_prob(y)


def require_probability(p: float) -> None:
    """Refuse what is no number between 0 and 1."""
    if not (isinstance(p, numbers.Real) and 0.0 < p < 1.0):
        raise ValueError(f"p must be a number between 0 and 1, such as 0.95 for 95 %, got {p!r}")
