"""Checks of what a scan measured, before a reconstruction starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float, require_positive, require_same
from matheron.operators.base import Index, Operator
from matheron.operators.diagonal import Diagonal
from matheron.tomography.fourier import Fourier
from matheron.tomography.scan import Scan, require_sizes


def require_operator(A: Any) -> Operator:
    """Return ``A`` if it is an operator; a geometry by itself measures nothing."""
    if isinstance(A, Scan):
        raise TypeError(f"A is a {type(A).__name__}, which is a geometry; give its operator, scan.operator()")
    if not isinstance(A, Operator):
        raise TypeError(
            f"A must be an operator such as that of ParallelBeam(...).operator() or Dense(matrix), got "
            f"{type(A).__name__}"
        )
    return A


def require_shape(
    A: Operator, shape: int | Sequence[int] | None = None, input: Tensor | None = None, dims: int | None = None
) -> tuple[int, ...]:
    """The image's shape: that of the scan, where the operator knows it; else as given, as that of an input, or square.

    ``dims`` is the number of axes that a network works on, if it says so.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> require_shape(Fourier((2, 8), [0])), require_shape(Dense(torch.ones(1, 16)))
    ((2, 8), (4, 4))
    """
    require_operator(A)
    pixels, known = A.shape[1], getattr(A if isinstance(A, Fourier) else A.origin, "image_shape", None)
    dims = dims if dims in (1, 2, 3) else None  # what else a network may call by this name is no number of axes
    axes = dims or 2
    if shape is None:
        shape = known
    if shape is None and input is not None and require_float("input", input).ndim >= axes:
        shape = tuple(input.shape[-axes:])
    if shape is None:
        side = round(pixels ** (1.0 / axes))
        if side**axes != pixels:
            raise ValueError(f"the operator's {pixels} columns are no image of equal sides; give shape=")
        shape = side
    sizes = require_sizes("shape", shape, len(shape) if isinstance(shape, Sequence) else axes)
    if math.prod(sizes) != pixels:
        raise ValueError(f"shape {sizes} has {math.prod(sizes)} pixels but the operator {pixels} columns")
    if known is not None and sizes != tuple(known):
        raise ValueError(f"shape is {sizes} but images of the scan are {tuple(known)}; leave shape out")
    if dims is not None and len(sizes) != dims:
        raise ValueError(
            f"network is for images of {dims} axes and this one is {sizes}; give it dims={len(sizes)}, as "
            f"UNet(dims={len(sizes)})"
        )
    return sizes


def require_measurements(y: Any, like: Operator) -> Float[Tensor, "n s"]:
    """``y`` as finite columns of the operator's rows; line integrals may be negative."""
    require_operator(like)
    if isinstance(y, Tensor) and y.is_complex():
        raise TypeError(
            "y is complex, and operators take real numbers; of lines of frequencies give first the real parts, then "
            "the imaginary ones: torch.view_as_real(y).movedim(-1, -2).flatten() for (lines, width)"
        )
    y = require_float("y", y)
    if y.ndim not in (1, 2) or len(y) != like.shape[0]:
        raise ValueError(
            f"y has shape {tuple(y.shape)} but the operator has {like.shape[0]} rows; give it ({like.shape[0]},) or "
            f"({like.shape[0]}, s), angle by angle: scan.flatten(sinogram) does so for (angles, detectors)"
        )
    require_same("y", y, "the operator", like)
    return require_finite("y", y) if y.ndim == 2 else require_finite("y", y)[:, None]


def require_sinogram(y: Any, A: Operator) -> Float[Tensor, " m"]:
    """``y``, without history, if it is one finite sinogram of the operator's rows."""
    columns = require_measurements(y, A)
    if columns.shape[1] != 1:
        raise ValueError(f"y has shape {tuple(y.shape)}; give one sinogram at a time, ({A.shape[0]},)")
    return columns[:, 0].detach()


def require_weights(weights: Any, like: Operator) -> Float[Tensor, "n 1"]:
    """One precision for every ray, ones if there are none."""
    require_operator(like)
    if weights is None:
        return torch.ones(like.shape[0], 1, dtype=like.dtype, device=like.device)
    weights = require_float("weights", weights)
    if tuple(weights.shape) != (like.shape[0],):
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}; give one for each of the {like.shape[0]} rays, angle by angle "
            "as y has them"
        )
    if not bool(require_positive("weights", weights, zero=True).any()):
        raise ValueError("weights are all zero, so that no ray says anything; give some ray a positive one")
    require_same("weights", weights, "the operator", like)
    return weights[:, None]


class Weighed(Operator):
    """``diag(√w) A`` with one weight ``w`` for each row; its rows are rows of ``A``, no others being multiplied.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> Weighed(Dense(torch.ones(2, 2)), torch.tensor([1.0, 4.0])) @ torch.ones(2)
    tensor([2., 4.])
    """

    def __init__(self, operator: Operator, weights: Float[Tensor, " n"]) -> None:
        self.operator, self.weights = operator, weights
        super().__init__(operator.shape, operator.dtype, operator.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """The product, row by row weighed."""
        return self.weights.sqrt()[:, None] * self.operator.product(V)

    def transpose(self) -> Operator:
        """Weighed first."""
        return self.operator.T @ Diagonal(self.weights.sqrt())

    def rows(self, index: Index) -> Operator:
        """Rows, with their weights."""
        return Weighed(self.operator.rows(index), self.weights[index])


@dataclass(frozen=True, eq=False)
class Whitened:
    """``√w T`` and ``√w y``: ``y = T x + ε``, ``ε ~ N(0, (b W)⁻¹)``, with one noise precision ``b`` for all rays.

    Rays of weight zero were not measured, and are left out.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> found = Whitened.of(Dense(torch.ones(3, 2)), torch.ones(3), torch.tensor([1.0, 0.0, 4.0]))
    >>> found.A.dense(), found.y
    (tensor([[1., 1.],
            [2., 2.]]), tensor([1., 2.]))
    """

    A: Operator
    y: Float[Tensor, " m"]
    log_scale: float = 0.0
    """``½ Σ log w``, by which the log density of ``y`` is above that of ``√w y``."""

    @classmethod
    def of(cls, A: Operator, y: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None) -> Whitened:
        """Both as they are without weights."""
        if weights is None:
            return cls(A, y)
        seen = weights.nonzero()[:, 0]
        if len(seen) < len(weights):
            A, y, weights = A.rows(seen), y[seen], weights[seen]
        return cls(Weighed(A, weights), weights.sqrt() * y, 0.5 * float(weights.double().log().sum()))
