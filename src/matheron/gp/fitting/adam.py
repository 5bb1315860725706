"""Adam on one small tensor."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

DECAY = (0.9, 0.999)


class Adam:
    """``Δ = η m̂ / (√v̂ + 1e-8)``, ``m`` and ``v`` running means of the gradient and its square, as in ``torch.optim``.

    Written out because the first optimizer of ``torch.optim`` in a process loads a compiler, for seconds.

    >>> adam = Adam(torch.zeros(2, dtype=torch.float64), learning_rate=0.1)
    >>> adam.step(torch.tensor([3.0, -0.5], dtype=torch.float64))
    tensor([ 0.1000, -0.1000], dtype=torch.float64)
    """

    def __init__(self, like: Float[Tensor, "*p"], learning_rate: float) -> None:
        self.learning_rate, self.count = learning_rate, 0
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)

    def step(self, gradient: Float[Tensor, "*p"]) -> Float[Tensor, "*p"]:
        """What to add to go up."""
        self.count += 1
        self.mean = DECAY[0] * self.mean + (1.0 - DECAY[0]) * gradient
        self.square = DECAY[1] * self.square + (1.0 - DECAY[1]) * gradient.square()
        mean = self.mean / (1.0 - DECAY[0] ** self.count)
        root = self.square.sqrt() / math.sqrt(1.0 - DECAY[1] ** self.count)
        return self.learning_rate * mean / (root + 1e-8)
