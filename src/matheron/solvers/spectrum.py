"""Eigenvalues that set step sizes, measured on random blocks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.operators import Operator
from matheron.seeds import normals
from matheron.solvers.system import System


def largest_block_eigenvalue(
    system: System, size: int, generator: torch.Generator, blocks: int = 5
) -> Float[Tensor, ""]:
    """``max_B λ_max(K_BB + N_BB)`` over a few random windows; costs ``blocks · size²`` entries."""
    largest = torch.zeros((), dtype=torch.float64)
    for _ in range(blocks):
        start = int(torch.randint(system.n - size + 1, (), generator=generator))
        rows = slice(start, start + size)
        matrix = system.block(rows).double() + system.noise[rows].double().diag()
        largest = torch.maximum(largest, largest_eigenvalue(matrix, generator).cpu())
    return largest.to(dtype=system.dtype, device=system.device)


def largest_eigenvalue(
    matrix: Float[Tensor, "b b"] | Operator, generator: torch.Generator, steps: int = 15
) -> Float[Tensor, ""]:
    """``λ_max`` by power iteration, with the norm of the last product: never above, and close for kernel blocks."""
    vector = normals((matrix.shape[0],), matrix, generator)
    for _ in range(steps):
        vector = matrix @ (vector / vector.norm())
    return vector.norm()
