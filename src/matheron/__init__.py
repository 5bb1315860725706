"""Uncertainty at scale: a posterior sample is a prior sample plus the solution of one linear system."""

from matheron import decisions, evaluation, gp, kernels, linear, networks, operators, solvers, tomography
from matheron.files import load
from matheron.gp import GaussianProcess
from matheron.networks import LinearizedLaplace

__version__ = "0.1.0.dev0"
__all__ = [
    "GaussianProcess",
    "LinearizedLaplace",
    "decisions",
    "evaluation",
    "gp",
    "kernels",
    "linear",
    "load",
    "networks",
    "operators",
    "solvers",
    "tomography",
]
