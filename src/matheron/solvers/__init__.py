"""``(K + N)⁻¹ Z`` for many right-hand sides at once."""

from matheron.solvers.alternating_projections import AlternatingProjections
from matheron.solvers.auto import Auto
from matheron.solvers.cg import CG
from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.cholesky import Cholesky
from matheron.solvers.preconditioners import (
    Factored,
    Nystrom,
    NystromBlocks,
    PivotedCholesky,
    Preconditioner,
    RandomizedSVD,
    Sketch,
)
from matheron.solvers.result import ConvergenceWarning, Result
from matheron.solvers.sdd import SDD
from matheron.solvers.sgd import SGD
from matheron.solvers.sketch_and_project import SketchAndProject

__all__ = [
    "CG",
    "SDD",
    "SGD",
    "AlternatingProjections",
    "Auto",
    "Checkpoint",
    "Cholesky",
    "ConvergenceWarning",
    "Factored",
    "Nystrom",
    "NystromBlocks",
    "PivotedCholesky",
    "Preconditioner",
    "RandomizedSVD",
    "Result",
    "Sketch",
    "SketchAndProject",
]
