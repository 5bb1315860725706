"""The small networks of the thesis' appendix A.1 besides its CNN: residual networks in three kinds, and a transformer.

Filters are those of its tables: with 12, 24 and 32 the residual network has the 14,814 weights printed there, with an
embedding of 30 and 60 hidden units the transformer its 15,520.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["ResNet", "Pre-ResNet", "FixUp"]


class Scalar(nn.Module):
    """``x ↦ s x + b`` with single numbers, either of which may be left out: FixUp's multipliers and offsets."""

    def __init__(self, *, multiplier: bool) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(1))
        self.multiplier = nn.Parameter(torch.ones(1)) if multiplier else None

    def forward(self, x: Tensor) -> Tensor:
        """Of any shape."""
        return (x if self.multiplier is None else self.multiplier * x) + self.offset


class Residual(nn.Module):
    """``x + body(x)``, with a ReLU after the sum unless normalization comes first."""

    def __init__(self, filters: int, kind: Kind) -> None:
        super().__init__()
        first, second = (nn.Conv2d(filters, filters, 3, padding=1, bias=False) for _ in range(2))
        if kind == "ResNet":
            parts = [first, nn.BatchNorm2d(filters), nn.ReLU(), second, nn.BatchNorm2d(filters)]
        elif kind == "Pre-ResNet":
            parts = [nn.BatchNorm2d(filters), nn.ReLU(), first, nn.BatchNorm2d(filters), nn.ReLU(), second]
        else:
            with torch.no_grad():
                first.weight.mul_(2.0**-0.5)  # two residual branches of two convolutions each
                second.weight.zero_()
            before, between, after = (Scalar(multiplier=False) for _ in range(3))
            parts = [before, first, between, nn.ReLU(), after, second, Scalar(multiplier=True)]
        self.body, self.last = nn.Sequential(*parts), nn.Identity() if kind == "Pre-ResNet" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return self.last(x + self.body(x))


def residual_network(filters: tuple[int, int, int], kind: Kind, *, classes: int = 10) -> nn.Sequential:
    """A 5 × 5 convolution with stride 2, then twice a residual block and a 1 × 1 convolution with stride 2."""
    first, second, third = filters
    norm: list[nn.Module] = [] if kind == "FixUp" else [nn.BatchNorm2d(first)]
    last = nn.Linear(third, classes)
    if kind == "FixUp":
        norm = [Scalar(multiplier=False)]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return nn.Sequential(
        nn.Conv2d(1, first, 5, stride=2, padding=2, bias=False),
        *norm,
        nn.ReLU(),
        Residual(first, kind),
        nn.Conv2d(first, second, 1, stride=2, bias=False),
        Residual(second, kind),
        nn.Conv2d(second, third, 1, stride=2, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        last,
    )


class PointTransformer(nn.Module):
    """Two encoder layers with two heads on tokens ``(x, y, shade)``; a learnt token, of which the class is read off.

    There is no encoding of positions: the order of points does not matter.
    """

    def __init__(self, embedding: int = 30, hidden: int = 60, *, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Linear(3, embedding)
        self.token = nn.Parameter(torch.zeros(embedding))
        layer = nn.TransformerEncoderLayer(embedding, 2, hidden, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(embedding, classes)

    def forward(self, points: Tensor) -> Tensor:
        """``(b, points, 3)`` to ``(b, classes)``."""
        tokens = torch.cat([self.token.expand(len(points), 1, -1), self.embedding(points)], dim=1)
        return self.last(self.encoder(tokens)[:, 0])


def point_clouds(images: Tensor, points: int, generator: torch.Generator) -> Tensor:
    """``(n, 1, h, w)`` to ``(n, points, 3)``: random pixels that are not background, with coordinates in ``[−1, 1]``.

    An image with fewer such pixels gives some of them again.
    """
    n, _, height, width = images.shape
    flat = images.reshape(n, -1)
    lit = (flat > flat.amin(1, keepdim=True) + 0.1 * (flat.amax(1, keepdim=True) - flat.amin(1, keepdim=True))).double()
    chance = lit * torch.rand(lit.shape, generator=generator, dtype=torch.float64)
    order = chance.argsort(dim=1, descending=True)
    lengths = lit.sum(1, keepdim=True).long().clamp(min=1)
    picked = order.gather(1, torch.arange(points).expand(n, -1) % lengths)
    y, x = picked // width, picked % width
    return torch.stack(
        [2.0 * x / (width - 1) - 1.0, 1.0 - 2.0 * y / (height - 1), flat.gather(1, picked)], dim=2
    ).float()
