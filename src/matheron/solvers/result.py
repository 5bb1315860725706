"""What a solver gives back."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor


class ConvergenceWarning(UserWarning):
    """A solve ended with a residual above its tolerance.

    >>> import torch, warnings
    >>> import matheron as mt
    >>> system = mt.operators.Dense(torch.ones(9, 9)) + mt.operators.Diagonal(torch.arange(1.0, 10.0))
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     result = mt.solvers.CG(epochs=3).solve(system, torch.ones(9, 1), generator=torch.Generator().manual_seed(0))
    >>> result.converged, [warning.category.__name__ for warning in said]
    (False, ['ConvergenceWarning'])
    """


@dataclass(frozen=True)
class Result:
    """``α`` with ``‖(K + N) α − z‖ / ‖z‖`` measured, never assumed.

    ``residual`` has one value per column, from a product with the true system: over all rows, or over
    ``residual_rows`` random ones where there are too many. ``epochs`` counts kernel entries in units of ``n²``, those
    for preconditioners, step sizes and residuals too. ``trace`` has one record per sweep; restarts are in it.

    >>> import torch
    >>> import matheron as mt
    >>> system = mt.operators.Dense(torch.eye(3)) + mt.operators.Diagonal(1.0)
    >>> result = mt.solvers.Cholesky().solve(system, torch.ones(3, 2))
    >>> result.solution[0], result.converged
    (tensor([0.5000, 0.5000]), True)
    """

    solution: Float[Tensor, "*n_s"]
    residual: Float[Tensor, "*s"]
    residual_rows: int
    tolerance: float
    epochs: float
    seconds: float
    solver: str
    trace: list[dict[str, Any]] = field(repr=False)
    exact: bool = False
    """Whether it comes from a factorization of the system."""
    seed: int | None = None
    """Given as ``generator``, it repeats the solve; ``None`` where nothing is drawn."""

    @property
    def converged(self) -> bool:
        """Whether every column's residual is at most the tolerance."""
        return bool((self.residual <= self.tolerance).all())

    def warn(self) -> Result:
        """Say so if the solve has not converged."""
        if not self.converged:
            warnings.warn(
                f"{self.solver} stopped at a relative residual of {float(self.residual.max()):.2g}, above the "
                f"tolerance {self.tolerance:g}, after {self.epochs:.1f} epochs; allow more epochs, loosen the "
                "tolerance if predictions have settled, or use another solver",
                ConvergenceWarning,
                stacklevel=4,
            )
        return self
