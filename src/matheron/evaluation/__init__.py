"""Scores of predictions, and whether they can be believed."""

from matheron.evaluation.classification import (
    Reliability,
    dyadic_log_likelihood,
    entropy,
    log_likelihood,
    ranking,
    reliability,
)

__all__ = ["Reliability", "dyadic_log_likelihood", "entropy", "log_likelihood", "ranking", "reliability"]
