"""A small network with layer norm on a one-dimensional toy set: what the experiments on tangent models share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matheron.data import load


class ToyNetwork(nn.Module):
    """Two hidden layers, each normalized, without biases before a normalization; a dense last layer."""

    def __init__(self, width: int, *, normalized: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (2, width):
            layers.append(nn.Linear(inputs, width, bias=not normalized))
            if normalized:
                layers.append(nn.LayerNorm(width, elementwise_affine=False, eps=1e-12))
            layers.append(nn.Tanh())
        self.body, self.last = nn.Sequential(*layers), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A constant stands beside the input, so that a layer without bias can shift."""
        return self.last(self.body(torch.cat([x, torch.ones_like(x)], dim=1)))


@dataclass(frozen=True, eq=False)
class ToyProblem:
    """Standardized data and a trained network, both in float64."""

    X: Tensor
    y: Tensor
    model: ToyNetwork


def toy_problem(name: str, width: int, steps: int, seed: int, *, normalized: bool = True) -> ToyProblem:
    """Adam on all rows; targets and inputs have mean 0 and variance 1."""
    data = load(name)
    X, y = data.X.double(), data.y.double()[:, None]
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean(0)) / y.std(0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ToyNetwork(width, normalized=normalized).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(X) - y).square().mean().backward()
        optimizer.step()
        schedule.step()
    return ToyProblem(X, y, model.eval())
