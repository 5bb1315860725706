"""Uncertainty at scale: a posterior sample is a prior sample plus the solution of one linear system."""

__version__ = "0.1.0.dev0"
