"""Scores of images and of maps of their error."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def psnr(image: Float[Tensor, "..."], reference: Float[Tensor, "..."]) -> float:
    """``10 log₁₀(range² / mean squared error)`` in decibels, with the range of the reference.

    >>> import torch
    >>> round(psnr(torch.tensor([0.1, 1.1]), torch.tensor([0.0, 1.0])), 3)
    20.0
    """
    error = float((image.reshape(reference.shape) - reference).square().mean())
    return 10.0 * math.log10(float(reference.max() - reference.min()) ** 2 / error)


def rank_correlation(x: Float[Tensor, "..."], y: Float[Tensor, "..."]) -> float:
    """Spearman's: the correlation of ranks, such as those of deviations and of errors, pixel by pixel.

    >>> import torch
    >>> round(rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0])), 6)
    1.0
    """
    ranks = torch.stack([values.flatten().argsort().argsort().double() for values in (x, y)])
    return float(torch.corrcoef(ranks)[0, 1])
