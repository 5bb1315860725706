"""Gaussian processes: prior, conditioning, paths, inducing points, hyperparameters."""

from matheron.gp.prior import GaussianProcess

__all__ = ["GaussianProcess"]
