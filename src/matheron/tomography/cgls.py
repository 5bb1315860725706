"""Least squares by conjugate gradients, stopped early."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float, require_same
from matheron.operators.base import Operator
from matheron.tomography.measurements import require_measurements, require_weights


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """An image, and after each step ``‖A x − y‖_B / ‖y‖_B``, the first before any step.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> found = cgls(Dense(torch.eye(2)), torch.tensor([3.0, 4.0]), iterations=1)
    >>> found.image, found.residuals
    (tensor([3., 4.]), tensor([1., 0.]))
    """

    image: Float[Tensor, "..."]
    residuals: Float[Tensor, "..."]


def cgls(
    A: Operator, y: Tensor, *, iterations: int = 15, weights: Tensor | None = None, start: Tensor | None = None
) -> Reconstruction:
    """``min ‖A x − y‖²_B`` by ``iterations`` steps of conjugate gradients; the fewer, the smoother the image.

    ``y`` is ``(rows,)`` or columns ``(rows, s)`` and ``weights``, ``(rows,)``, are the diagonal of ``B``, such as those
    of :func:`from_counts`; ``start`` is an image like the answer.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam
    >>> A = ParallelBeam(16, torch.arange(24) * math.pi / 24, 25).operator()
    >>> image = torch.zeros(16, 16)
    >>> image[4:10, 5:12] = 1.0
    >>> found = cgls(A, A @ image.flatten(), iterations=30)
    >>> bool(found.residuals[-1] < 0.01), bool((found.image - image.flatten()).norm() < 0.1 * image.norm())
    (True, True)
    """
    require_count("iterations", iterations)
    Y, root = require_measurements(y, A), require_weights(weights, A).sqrt()
    if start is None:
        x = torch.zeros(A.shape[1], Y.shape[1], dtype=A.dtype, device=A.device)
    elif require_float("start", start).shape == (A.shape[1], *y.shape[1:]):
        require_same("start", start, "the operator", A)
        x = require_finite("start", start).reshape(A.shape[1], Y.shape[1]).clone()
    else:
        raise ValueError(f"start has shape {tuple(start.shape)}; the image is {(A.shape[1], *y.shape[1:])}")
    residual = root * (Y - A @ x)
    gradient = A.T @ (root * residual)
    direction, steepness = gradient, gradient.square().sum(0)
    norms = [residual.norm(dim=0)]
    for _ in range(iterations):
        image = root * (A @ direction)
        step = _ratio(steepness, image.square().sum(0))
        x = x + step * direction
        residual = residual - step * image
        gradient = A.T @ (root * residual)
        before, steepness = steepness, gradient.square().sum(0)
        direction = gradient + _ratio(steepness, before) * direction
        norms.append(residual.norm(dim=0))
    relative = _ratio(torch.stack(norms), (root * Y).norm(dim=0))
    return Reconstruction(x.reshape(len(x), *y.shape[1:]), relative.reshape(len(relative), *y.shape[1:]))


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Zero where there is nothing left to do."""
    return torch.where(below > 0, above / below.clamp(min=torch.finfo(below.dtype).tiny), 0.0)
