"""A small residual network with layer norm on a one-dimensional toy set: what experiments on tangent models share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matheron.data import load


class ToyNetwork(nn.Module):
    """Two hidden layers of rectified units, each normalized and so without biases, the second added to the first.

    With 50 units and the dense last layer it has 2,651 weights, the 2.6 thousand of the thesis.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(inputs, width, bias=False) for inputs in (2, width))
        self.norm, self.last = nn.LayerNorm(width, elementwise_affine=False, eps=1e-12), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A constant stands beside the input, so that a layer without bias can shift."""
        first, second = self.body
        hidden = self.norm(first(torch.cat([x, torch.ones_like(x)], dim=1))).relu()
        return self.last(hidden + self.norm(second(hidden)).relu())


@dataclass(frozen=True, eq=False)
class ToyProblem:
    """Standardized data and a trained network, both in float64."""

    X: Tensor
    y: Tensor
    model: ToyNetwork


def toy_problem(name: str, width: int, steps: int, seed: int) -> ToyProblem:
    """Adam on all rows with the thesis' weight decay; targets and inputs have mean 0 and variance 1."""
    data = load(name)
    X, y = data.X.double(), data.y.double()[:, None]
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean(0)) / y.std(0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ToyNetwork(width).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(X) - y).square().mean().backward()
        optimizer.step()
        schedule.step()
    return ToyProblem(X, y, model.eval())
