"""Tangent models of trained networks, and their posterior."""

from matheron.networks.data import NetworkData
from matheron.networks.jacobian import JacobianOperator
from matheron.networks.laplace import LinearizedLaplace
from matheron.networks.likelihood import Likelihood
from matheron.networks.likelihoods import Bernoulli, Categorical, Gaussian
from matheron.networks.loading import Loading
from matheron.networks.online import OnlineLaplace
from matheron.networks.report import LaplaceReport
from matheron.networks.tangent import TangentModel

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "JacobianOperator",
    "LaplaceReport",
    "Likelihood",
    "LinearizedLaplace",
    "Loading",
    "NetworkData",
    "OnlineLaplace",
    "TangentModel",
]
