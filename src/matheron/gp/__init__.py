"""Gaussian processes: prior, conditioning, paths, inducing points, hyperparameters."""

from matheron.gp.paths import Paths
from matheron.gp.posterior import Posterior
from matheron.gp.prediction import Prediction
from matheron.gp.prior import GaussianProcess
from matheron.gp.report import Report

__all__ = ["GaussianProcess", "Paths", "Posterior", "Prediction", "Report"]
