"""The system ``K + N`` as solvers see it, with every kernel entry counted."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_positive
from matheron.operators import Diagonal, KernelOperator, Operator, Sum
from matheron.operators.base import Index
from matheron.seeds import permutation

WHOLE_RESIDUAL = 50_000
"""Up to this many rows the residual is measured on all of them."""

RESIDUAL_ROWS = 4096
"""Beyond, on this many random ones: scattered, as neighbors in a series are much alike."""


class System:
    """``(K + diag(noise)) V`` by all rows, by windows of rows, or as a block, counting entries of ``K``."""

    def __init__(self, operator: Operator, *, require_noise: bool = False) -> None:
        if not isinstance(operator, Operator):
            raise TypeError(f"system must be an operator such as K + Diagonal(noise), got {type(operator).__name__}")
        if operator.shape[0] != operator.shape[1]:
            raise ValueError(f"system must be square, got {operator.shape}")
        if operator.shape[0] == 0:
            raise ValueError("system has no rows; give it at least one")
        kernels, diagonals = _split(operator)
        if not kernels:
            raise ValueError("system is only a Diagonal; divide by its values instead of solving")
        if not diagonals and require_noise:
            raise ValueError("system has no noise; give the solver K + Diagonal(noise) with a positive noise variance")
        self.n, self.dtype, self.device = operator.shape[0], operator.dtype, operator.device
        self.kernel = kernels[0]
        for other in kernels[1:]:
            self.kernel = self.kernel + other
        self.noise = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        for diagonal in diagonals:
            self.noise = self.noise + diagonal.values.detach()
        if diagonals:
            require_positive("the noise variance of the system", self.noise)
        self.entries = 0

    @property
    def epochs(self) -> float:
        """Entries of ``K`` used so far, in units of the whole matrix."""
        return self.entries / self.n**2

    def product(self, V: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
        """``(K + N) V``."""
        return self.rows_product(slice(0, self.n), V)

    def rows_product(self, rows: Index, V: Float[Tensor, "n s"]) -> Float[Tensor, "r s"]:
        """``(K + N)[rows] V``."""
        return self.kernel_rows(rows, V).addcmul_(self.noise[rows, None], V[rows])

    def kernel_rows(self, rows: Index, V: Float[Tensor, "n s"]) -> Float[Tensor, "r s"]:
        """``K[rows] V``."""
        part = self.kernel.rows(rows)
        self.entries += part.shape[0] * self.n
        return part.product(V)

    def kernel_columns(self, rows: Index, V: Float[Tensor, "r s"]) -> Float[Tensor, "n s"]:
        """``K[:, rows] V``."""
        self.entries += V.shape[0] * self.n
        return self.kernel.rows(rows).T.product(V)

    def block(self, rows: slice) -> Float[Tensor, "r r"]:
        """``K[rows, rows]``, without the noise."""
        self.entries += len(range(*rows.indices(self.n))) ** 2
        return self.kernel.block(rows)

    def permuted(self, order: Tensor) -> System:
        """The same system in another order, its entries counted on its own."""
        twin = object.__new__(System)
        twin.__dict__.update(self.__dict__, kernel=self.kernel.permuted(order), noise=self.noise[order], entries=0)
        return twin

    @property
    def residual_cost(self) -> float:
        """Epochs one measurement of the residual takes."""
        return 1.0 if self.n <= WHOLE_RESIDUAL else RESIDUAL_ROWS / self.n

    def residual(
        self, solution: Float[Tensor, "n s"], targets: Float[Tensor, "n s"], generator: torch.Generator
    ) -> tuple[Float[Tensor, " s"], int]:
        """``‖(K + N) α − z‖`` per column, and over how many rows it was measured.

        Beyond ``WHOLE_RESIDUAL`` rows, random ones estimate the mean square, scaled up to all rows.
        """
        if self.n <= WHOLE_RESIDUAL:
            return (self.product(solution) - targets).norm(dim=0), self.n
        return self.sampled_residual(solution, targets, RESIDUAL_ROWS, generator)

    def sampled_residual(
        self, solution: Float[Tensor, "n s"], targets: Float[Tensor, "n s"], num: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, " s"], int]:
        """The same from ``num`` random rows."""
        rows = permutation(self.n, generator, self.device)[:num]
        squares = (self.rows_product(rows, solution) - targets[rows]).square().mean(0)
        return (squares * self.n).sqrt(), len(rows)

    def kernel_operator(self, solver: str) -> KernelOperator:
        """The kernel matrix, for solvers that need its kernel or its inputs."""
        if not isinstance(self.kernel, KernelOperator):
            raise TypeError(
                f"{solver} needs KernelOperator(...) + Diagonal(...), got {self.kernel!r}; use CG or Cholesky"
            )
        return self.kernel


def _split(operator: Operator) -> tuple[list[Operator], list[Diagonal]]:
    if isinstance(operator, Diagonal):
        return [], [operator]
    if isinstance(operator, Sum):
        first, second = _split(operator.first), _split(operator.second)
        return first[0] + second[0], first[1] + second[1]
    return [operator], []
