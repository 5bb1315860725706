"""What a fit did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaplaceReport:
    """What was solved, how well, at what cost; ``epochs`` are passes over the data, by ``J`` and back by ``Jᵀ``."""

    method: str
    converged: bool
    residual: float
    epochs: float
    seconds: float
    em_converged: bool | None
    floored: int
    """Entries of the g-prior's scale that were raised, as the data say next to nothing of them."""
