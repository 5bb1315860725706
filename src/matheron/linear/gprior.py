"""The scale of the diagonal g-prior, from draws instead of Jacobians."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.arguments import require_between, require_count
from matheron.linear.data import Data
from matheron.linear.regularizers import draw_regularizers


@dataclass(frozen=True, eq=False)
class GPriorScale:
    """``s ≈ diag(ΦᵀBΦ)^(-½)``, how many entries were floored, and the passes over the data it took.

    >>> import torch
    >>> from matheron.linear import GaussianCurvature, StoredData, g_prior_scale
    >>> from matheron.operators import Dense
    >>> Phi = torch.ones(50, 2) * torch.tensor([1.0, 0.0])  # of the second weight the data say nothing
    >>> found = g_prior_scale(
    ...     StoredData(Dense(Phi), GaussianCurvature(1.0, size=50)), 64, torch.Generator().manual_seed(0)
    ... )
    >>> found.floored, found.epochs
    (1, 0.5)
    """

    scale: Float[Tensor, " d"]
    floored: int
    epochs: float


@torch.no_grad()
def g_prior_scale(
    data: Data,
    num: int,
    generator: torch.Generator,
    groups: Int[Tensor, " d"] | None = None,
    *,
    floor: float = 1e-3,
    dtype: torch.dtype | None = None,
) -> GPriorScale:
    """``s² = (1 − 2/k) / mean_j (ΦᵀBε_j)²`` elementwise from ``k = num`` draws, ``Bε ~ N(0, B)``.

    The mean of squares is ``M_ii χ²_k / k``, whose inverse is ``k/(k − 2)`` times too large on average: the factor in
    front puts that right. Estimates below ``floor`` times the mean of their own parameter tensor, ``groups``
    ``(d,)``, are raised to it; a tensor that no datum moves, or by so little that ``s²`` is beyond the range of
    ``dtype``, that of the data unless given, gets the mean of all. The draws are not kept: samples
    whose regularizers were scaled by their own size would not be Gaussian. Thesis, section 6.2.2.

    >>> import torch
    >>> from matheron.linear import GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> Phi = torch.ones(50, 2) * torch.tensor([1.0, 100.0])
    >>> data = StoredData(Dense(Phi), GaussianCurvature(1.0, size=50))
    >>> s = g_prior_scale(data, 500, torch.Generator().manual_seed(0), groups=torch.tensor([0, 1])).scale
    >>> bool((s * torch.tensor([1.0, 100.0]) * 50**0.5 - 1).abs().max() < 0.2)
    True
    """
    require_count("num", num, least=3)
    require_between("floor", floor, 0.0, 1.0)
    drawn = draw_regularizers(data, num, generator)
    squares = drawn.pull.square().mean(0)
    if groups is None:
        groups = torch.zeros(data.num_weights, dtype=torch.int64)
    groups = groups.to(data.device)
    if groups.shape != (data.num_weights,):
        raise ValueError(f"groups has shape {tuple(groups.shape)}; give one index per weight, ({data.num_weights},)")
    sizes = torch.bincount(groups)
    means = torch.zeros(len(sizes), dtype=torch.float64, device=data.device)
    means.index_add_(0, groups, squares.double())
    means /= sizes.clamp(min=1)
    # A power of the least normal number leaves room for the precisions that multiply the scale.
    means = torch.where(means > torch.finfo(dtype or data.dtype).tiny ** 0.8, means, 0.0)
    overall = means[means > 0].mean() if bool((means > 0).any()) else means.new_ones(())
    least = torch.where(means > 0, floor * means, overall).to(data.dtype)[groups]
    floored = squares < least
    kept = torch.where(floored, least, squares)
    return GPriorScale((kept / (1.0 - 2.0 / num)).rsqrt(), int(floored.sum()), drawn.epochs)
