"""Matrices as actions, never as tables."""

from matheron.operators.algebra import Product, Scaled, Sum
from matheron.operators.base import Operator
from matheron.operators.block_low_rank import BlockLowRankInverse
from matheron.operators.dense import Dense
from matheron.operators.diagonal import Diagonal
from matheron.operators.kernel import KernelOperator
from matheron.operators.low_rank import LowRankInverse
from matheron.operators.selection import Selection
from matheron.operators.sparse import Sparse

__all__ = [
    "BlockLowRankInverse",
    "Dense",
    "Diagonal",
    "KernelOperator",
    "LowRankInverse",
    "Operator",
    "Product",
    "Scaled",
    "Selection",
    "Sparse",
    "Sum",
]
