"""Small systems with known solutions, and every solver there is."""

import torch
from torch import Tensor

import matheron as mt
from matheron.operators import Diagonal, KernelOperator, Operator
from matheron.solvers import (
    CG,
    SDD,
    SGD,
    AlternatingProjections,
    Auto,
    Cholesky,
    Nystrom,
    NystromBlocks,
    PivotedCholesky,
    RandomizedSVD,
    SketchAndProject,
)

STOCHASTIC = (
    SDD(epochs=400, tolerance=1e-3, batch=64),
    SketchAndProject(epochs=400, tolerance=1e-3, block=64, rank=30),
)
ITERATIVE = (
    *STOCHASTIC,
    AlternatingProjections(epochs=400, tolerance=0.01, block=64),
    CG(tolerance=1e-3),
    CG(tolerance=1e-3, preconditioner=PivotedCholesky(20)),
    CG(tolerance=1e-3, preconditioner=Nystrom(20)),
    CG(tolerance=1e-3, preconditioner=NystromBlocks(20, 64)),
    CG(tolerance=1e-3, preconditioner=RandomizedSVD(20)),
)
ALL = (*ITERATIVE, Cholesky(), Auto())
SLOW_TO_CONVERGE = SGD(epochs=200, tolerance=0.5, batch=64)


def name(solver: object) -> str:
    """A short name for the test's ID."""
    inner = getattr(solver, "preconditioner", None)
    return type(solver).__name__ + (f"-{type(inner).__name__}" if inner else "")


def regression(
    n: int = 300, noise: float | Tensor = 0.1, columns: int = 3, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[Operator, Tensor]:
    """``K + N`` on random inputs in three dimensions, and right-hand sides."""
    source = torch.Generator().manual_seed(1)
    X = torch.randn(n, 3, generator=source, dtype=torch.float64).to(dtype)
    Z = torch.randn(n, columns, generator=source, dtype=torch.float64).to(dtype)
    kernel = mt.kernels.Matern32(lengthscale=torch.full((3,), 1.5), variance=scale)
    return KernelOperator(kernel, X) + Diagonal(noise), Z


def exact(system: Operator, Z: Tensor) -> Tensor:
    """The dense twin."""
    with torch.no_grad():
        return torch.linalg.solve(system.dense().double(), Z.double()).to(Z.dtype)
