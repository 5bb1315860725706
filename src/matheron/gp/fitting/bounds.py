"""How far hyperparameters may go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.gp.fitting.parameters import Parameters
from matheron.gp.observations import Observations

REACH = math.log(1e4)
"""Hyperparameters stay within this factor of their start. At a lengthscale of a hundred spreads an input still has a
say where noise is little: on 1,000 rows of bike, where two inputs tell all, the evidence was 500 nats lower."""

LEAST_NOISE = 1e-6
"""Of the variance of the targets: below, solves by iteration take ever longer."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """``low ≤ θ ≤ high`` in logarithms; the mean and what is no logarithm are free.

    Noise lies between ``least_noise`` and a hundred times the variance of the targets, everything else within a
    factor 10⁴ of where it began.
    """

    low: Float64[Tensor, " p"]
    high: Float64[Tensor, " p"]

    @classmethod
    def around(cls, parameters: Parameters, data: Observations, least_noise: float = LEAST_NOISE) -> Bounds:
        """For a fit that begins here."""
        start = parameters.vector()
        low, high = start - REACH, start + REACH
        places = parameters.places
        for name in parameters.free & places.keys():
            low[places[name]], high[places[name]] = -math.inf, math.inf
        if "noise" in places:
            power = float(data.Y.double().var(0, correction=0).mean()) or 1.0
            here = float(start[places["noise"]])
            low[places["noise"]] = min(math.log(least_noise * power), here)
            high[places["noise"]] = max(math.log(100.0 * power), here)
        return cls(low, high)

    def clamp(self, vector: Float64[Tensor, " p"]) -> Float64[Tensor, " p"]:
        """The nearest values allowed."""
        return torch.minimum(torch.maximum(vector, self.low), self.high)

    def reached(self, vector: Float64[Tensor, " p"]) -> list[int]:
        """Which entries stand at a bound."""
        margin = 1e-6
        return ((vector <= self.low + margin) | (vector >= self.high - margin)).nonzero()[:, 0].tolist()
