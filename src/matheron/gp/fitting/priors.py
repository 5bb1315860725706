"""Priors on hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from matheron.arguments import require_positive
from matheron.gp.fitting.parameters import Parameters


@dataclass(frozen=True)
class LogNormal:
    """``log θ ~ N(log median, spread²)``: two thirds of its mass lies within a factor ``e^spread`` of the median.

    The density that joins the evidence is that of ``log θ``, whose mode is the median.

    >>> import matheron as mt
    >>> import torch
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(50, 3, generator=g)
    >>> y = X[:, 0] + 0.1 * torch.randn(50, generator=g)
    >>> gp = mt.GaussianProcess(mt.kernels.RBF(lengthscale=[1.0, 1.0, 1.0]))
    >>> gp = gp.fit(X, y, priors={"*lengthscale": LogNormal(median=1.0, spread=0.5)})
    >>> bool((gp.kernel.lengthscale < 5.0).all())
    True
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        require_positive("median", self.median)
        require_positive("spread", self.spread)


class Priors:
    """Which prior each entry of the vector has, if any."""

    def __init__(self, priors: Mapping[str, LogNormal], parameters: Parameters) -> None:
        self.center = torch.zeros(len(parameters.vector()), dtype=torch.float64)
        self.precision = torch.zeros_like(self.center)
        self.positive = torch.ones_like(self.center, dtype=torch.bool)
        for name in parameters.free & parameters.places.keys():
            self.positive[parameters.places[name]] = False
        if not isinstance(priors, Mapping) or not all(isinstance(pattern, str) for pattern in priors):
            raise TypeError(
                f"priors must map patterns of names to LogNormal, such as {{'*lengthscale': LogNormal(1.0, 1.0)}}, "
                f"got {priors!r}"
            )
        for pattern, prior in priors.items():
            if not isinstance(prior, LogNormal):
                raise TypeError(f"priors[{pattern!r}] must be a LogNormal, got {type(prior).__name__}")
            names = [name for name in parameters.names if name not in parameters.free and fnmatchcase(name, pattern)]
            if not names:
                raise ValueError(
                    f"priors has {pattern!r}, which matches none of the positive parameters to learn: "
                    f"{', '.join(name for name in parameters.names if name not in parameters.free)}"
                )
            for name in names:
                self.center[parameters.places[name]] = math.log(prior.median)
                self.precision[parameters.places[name]] = prior.spread**-2

    def log_density(self, vector: Float64[Tensor, " p"]) -> tuple[float, Float64[Tensor, " p"]]:
        """``−½ Σ ((log θ − log median)/spread)²`` and its gradient."""
        distance = vector - self.center
        return -0.5 * float((self.precision * distance.square()).sum()), -self.precision * distance

    def tied(self, vector: Float64[Tensor, " p"], spread: float, where: Bool[Tensor, " p"] | None = None) -> Priors:
        """With a prior of this ``spread`` around ``vector`` for every positive entry that has none, or some of them."""
        found, bare = copy(self), self.positive & (self.precision == 0)
        bare = bare if where is None else bare & where
        found.center = torch.where(bare, vector, self.center)
        found.precision = torch.where(bare, spread**-2, self.precision)
        return found
