"""Tangent models of trained networks."""

from matheron.networks.jacobian import JacobianOperator
from matheron.networks.tangent import TangentModel

__all__ = ["JacobianOperator", "TangentModel"]
