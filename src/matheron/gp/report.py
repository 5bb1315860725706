"""What was solved, how well, at what cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from matheron.solvers import Result


@dataclass(frozen=True)
class Report:
    """The account of one conditioning.

    ``residual`` is the largest relative residual of the systems of the mean and of the samples, measured on
    ``residual_rows`` rows; ``seed``, given as ``generator``, repeats the draws, but for ``reused`` functions that
    learning left behind. ``evidence_bound`` is that of Titsias, with inducing points. ``precision`` is that of the
    solve, float64 also for data in float32 where rounding errors would drown the noise.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 20)[:, None]
    >>> g = torch.Generator().manual_seed(0)
    >>> mt.GaussianProcess(mt.kernels.RBF(), 0.1).condition(X, X[:, 0], num_samples=8, generator=g).report.converged
    True
    """

    rows: int
    outputs: int
    num_samples: int
    num_features: int
    inducing: int | None
    evidence_bound: float | None
    variance: str
    solver: str
    residual: float
    residual_rows: int
    tolerance: float
    epochs: float
    seconds: float
    seed: int
    precision: str = "unknown"
    reused: int = 0
    trace: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def converged(self) -> bool:
        """Whether the residual is at most the tolerance."""
        return self.residual <= self.tolerance

    @classmethod
    def of(cls, result: Result, **facts: Any) -> Report:
        """Of a solve."""
        return cls(
            solver=result.solver,
            residual=float(result.residual.max()),
            residual_rows=result.residual_rows,
            tolerance=result.tolerance,
            epochs=result.epochs,
            seconds=result.seconds,
            trace=result.trace,
            **facts,
        )

    def __str__(self) -> str:
        support = "" if self.inducing is None else f" through {self.inducing:,} inducing points"
        state = "converged" if self.converged else "NOT converged"
        return "\n".join(
            [
                f"{self.rows:,} rows, {self.outputs} output(s), {self.num_samples} sampled functions{support}",
                f"solver: {self.solver}",
                f"{state}: largest residual {self.residual:.2g} (tolerance {self.tolerance:g}, measured on "
                f"{self.residual_rows:,} rows)",
                f"cost: {self.epochs:.1f} epochs, {self.seconds:.1f} s, in {self.precision}",
                f"variance: {self.variance}; seed {self.seed}",
            ]
        )
