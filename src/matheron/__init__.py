"""Uncertainty at scale: a posterior sample is a prior sample plus the solution of one linear system."""

from matheron import kernels, linear, operators, solvers

__version__ = "0.1.0.dev0"
__all__ = ["kernels", "linear", "operators", "solvers"]
