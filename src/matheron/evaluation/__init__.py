"""Scores of predictions, and whether they can be believed."""

from matheron.evaluation.classification import (
    Reliability,
    dyadic_log_likelihood,
    entropy,
    log_likelihood,
    ranking,
    reliability,
)
from matheron.evaluation.images import psnr, rank_correlation

__all__ = [
    "Reliability",
    "dyadic_log_likelihood",
    "entropy",
    "log_likelihood",
    "psnr",
    "rank_correlation",
    "ranking",
    "reliability",
]
