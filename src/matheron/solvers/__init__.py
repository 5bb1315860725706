"""``(K + N)⁻¹ Z`` for many right-hand sides at once."""

from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.cholesky import Cholesky
from matheron.solvers.result import ConvergenceWarning, Result
from matheron.solvers.sdd import SDD
from matheron.solvers.sketch_and_project import SketchAndProject

__all__ = ["SDD", "Checkpoint", "Cholesky", "ConvergenceWarning", "Result", "SketchAndProject"]
