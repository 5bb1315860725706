"""Images drawn from total variation as a prior, pixel by pixel."""

from __future__ import annotations

import torch
from torch import Tensor


def tv_sample(side: int, sweeps: int, generator: torch.Generator) -> Tensor:
    """``x ~ exp(−TV(x))`` up to a constant image, whose density is flat: ``(side, side)`` with a mean of zero.

    Given its neighbors ``t``, a pixel has the density ``exp(−Σ_i |x − t_i|)``, exponential from each ``t_i`` to the
    next: it is drawn exactly. Pixels of one color of a chessboard have no neighbors among themselves and go together.
    """
    x = torch.zeros(side, side, dtype=torch.float64)
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    for _ in range(sweeps):
        for color in (0, 1):
            here = (row + column) % 2 == color
            t, weight = (stack[:, here] for stack in _neighbors(x))
            x[here] = _draw(t, weight, generator)
        x = x - x.mean()
    return x


def _neighbors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and weights of those above, below and to the sides; beyond the border of weight zero."""
    values, weights = [], []
    for axis in (0, 1):
        for step in (1, -1):
            inside = torch.ones_like(x)
            inside.select(axis, 0 if step == 1 else -1).zero_()
            values.append(torch.roll(x, step, dims=axis))
            weights.append(inside)
    return torch.stack(values), torch.stack(weights)


def _draw(t: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
    """From ``exp(−Σ_i weight_i |x − t_i|)``, one for each column: which stretch, then where on it."""
    t, order = t.sort(dim=0)
    weight = weight.gather(0, order)
    total = weight.sum(0)
    passed = torch.cat([torch.zeros_like(weight[:1]), weight.cumsum(0)])
    slopes = total - 2.0 * passed  # before the first, between, and after the last
    heights = -(weight[None] * (t[:, None] - t[None]).abs()).sum(1)
    heights = heights - heights.amax(0)
    gaps = t.diff(dim=0)
    inner = slopes[1:-1]
    flat = inner.abs() < 1e-9
    steep = torch.where(flat, 1.0, inner)
    mass = heights[:-1].exp() * torch.where(flat, gaps, torch.expm1(steep * gaps) / steep)
    masses = torch.cat([heights[:1].exp() / total, mass, heights[-1:].exp() / total])
    chosen = torch.multinomial(masses.mT, 1, generator=generator)[:, 0]
    u = torch.rand(t.shape[1], dtype=t.dtype, generator=generator)
    last = len(t)
    place = (chosen - 1).clamp(0, last - 2)[None]
    begin, gap, s, even = (v.gather(0, place)[0] for v in (t, gaps, steep, flat))
    between = begin + torch.where(even, u * gap, torch.log1p(u * torch.expm1(s * gap)) / s)
    before, after = t[0] + u.log() / total, t[-1] - u.log() / total
    return torch.where(chosen == 0, before, torch.where(chosen == last, after, between))
