"""The Gaussian linear model ``Y = Φ w + ε``."""

from matheron.linear import exact

__all__ = ["exact"]
