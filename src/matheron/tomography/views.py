"""Scans as a list of views: angles of X-rays, lines of frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.arguments import require_finite, require_numbers
from matheron.operators.base import Operator
from matheron.tomography.fourier import Fourier
from matheron.tomography.scan import Scan

SAME = 1e-6
"""Radians: closer angles are one and the same."""


@dataclass(frozen=True, eq=False)
class Views:
    """``T`` whose rows come view by view, ``width`` of them each, and what the views are called: angles or lines.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam
    >>> pilot = Views.of(ParallelBeam(8, [0.0, math.pi / 2], 11).operator())
    >>> pilot.width, pilot.at([0.1, 0.2, 0.3]).operator
    (11, Sparse(33, 64))
    >>> Views.of(Fourier(8, [0, 1])).at([2, -1]).names.tolist()
    [2.0, 7.0]
    """

    operator: Operator
    names: Float64[Tensor, " k"]
    shape: tuple[int, ...]
    """Of one view."""

    @classmethod
    def of(cls, A: Operator) -> Views:
        """Those of an operator that knows where it comes from."""
        if isinstance(A, Fourier):
            return cls(A, A.lines.double().cpu(), (2, A.width))
        if isinstance(A.origin, Scan):
            return cls(A, torch.tensor(A.origin.angles, dtype=torch.float64), A.origin.view_shape)
        raise TypeError(
            f"the posterior's operator is {A!r}, which does not say what its views are; fit it to scan.operator() of a "
            "ParallelBeam, FanBeam or ConeBeam, or to a Fourier"
        )

    @property
    def width(self) -> int:
        """Rows of one view."""
        return math.prod(self.shape)

    def at(self, names: Sequence[float] | Tensor) -> Views:
        """The same scan with other views."""
        A = self.operator
        if isinstance(A, Fourier):
            lines = torch.as_tensor(names)
            if lines.is_floating_point() and bool((lines == lines.round()).all()):
                lines = lines.long()
            return Views.of(Fourier((A.height, A.width), lines, dtype=A.dtype, device=A.device))
        assert isinstance(A.origin, Scan)
        return Views.of(replace(A.origin, angles=names).operator(dtype=A.dtype, device=A.device))

    def joined(self, names: Float64[Tensor, " j"]) -> Views:
        """These views, then others."""
        return self.at(torch.cat([self.names, names])) if len(names) else self

    def rows(self, first: int, last: int) -> Operator:
        """``T`` of views from ``first`` up to ``last``, that one not included."""
        return self.operator.rows(self.place(first, last))

    def place(self, first: int, last: int) -> slice:
        """Where the rows of these views stand."""
        return slice(first * self.width, last * self.width)

    def require_names(self, names: Sequence[float] | Tensor) -> Float64[Tensor, " k"]:
        """Candidates that differ from each other, as numbers."""
        values = require_numbers("candidates", names).cpu()
        if values.ndim != 1 or len(values) == 0:
            raise ValueError(
                f"candidates must be a list of at least one angle or line, got shape {tuple(values.shape)}"
            )
        require_finite("candidates", values)
        if isinstance(self.operator, Fourier):
            height = self.operator.height
            outside = (values != values.round()) | (values < -height) | (values >= height)
            if bool(outside.any()):
                raise ValueError(
                    f"candidates must be whole numbers from {-height} to {height - 1}, the frequencies of {height} "
                    f"rows; got {values[outside][0]:g}"
                )
        again = self.distances(values, values).fill_diagonal_(torch.inf) <= SAME
        if bool(again.any()):
            first, second = (again.nonzero()[0]).tolist()
            raise ValueError(f"candidates {first} and {second} are the same view, {values[first]:g}; give each once")
        return values

    def measured(self, names: Float64[Tensor, " k"]) -> Tensor:
        """Which of these have been measured here."""
        return (self.distances(names, self.names) <= SAME).any(1)

    def distances(self, first: Float64[Tensor, " a"], second: Float64[Tensor, " b"]) -> Float64[Tensor, "a b"]:
        """Between angles around the circle, between lines around the frequencies."""
        period = float(self.operator.height) if isinstance(self.operator, Fourier) else 2.0 * math.pi
        apart = (first[:, None] - second).abs() % period
        return torch.minimum(apart, period - apart)
