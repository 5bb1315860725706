"""Gaussian processes: prior, conditioning, paths, inducing points, hyperparameters."""

from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.paths import Paths
from matheron.gp.posterior import Posterior
from matheron.gp.prediction import Prediction
from matheron.gp.prior import GaussianProcess
from matheron.gp.report import Report
from matheron.gp.selection import eliminate_neighbors, k_means

__all__ = [
    "GaussianProcess",
    "InducingSGD",
    "Paths",
    "Posterior",
    "Prediction",
    "Report",
    "eliminate_neighbors",
    "k_means",
]
