"""Covariance functions and their random features."""

from matheron.kernels.base import Kernel
from matheron.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

__all__ = ["RBF", "Kernel", "Matern12", "Matern32", "Matern52", "RationalQuadratic"]
