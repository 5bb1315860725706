"""Covariance functions and their random features."""

from matheron.kernels.base import Kernel
from matheron.kernels.composite import Product, Scaled, Sum
from matheron.kernels.feature_map import FeatureMap, NoFeaturesError
from matheron.kernels.linear import Linear
from matheron.kernels.periodic import Periodic
from matheron.kernels.sampling import JitterWarning, sample_prior
from matheron.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from matheron.kernels.tanimoto import Tanimoto

__all__ = [
    "RBF",
    "FeatureMap",
    "JitterWarning",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "NoFeaturesError",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sum",
    "Tanimoto",
    "sample_prior",
]
