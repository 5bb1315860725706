"""Bounds on the evidence that an M-step may maximize, on explicit matrices: what MacKay's update is compared with."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear.exact import Primal
from matheron.linear.precision import log_normalizer

Update = Literal["mackay", "evidence", "bound", "elbo"]


def fixed_mean_bound(model: Primal, w: Float[Tensor, " d"], Y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """``𝓜(w, A) = log p(Y|w) − ½‖w‖²_A − ½ logdet(I + A⁻¹M)``: a bound on the log evidence at any mean.

    Equal to the log evidence where ``w`` is the mode of this ``A``. Thesis, section 6.1.1.

    >>> import torch
    >>> model, Y = Primal(torch.ones(3, 1), A=1.0, B=1.0), torch.ones(3)
    >>> bool(torch.isclose(fixed_mean_bound(model, model.weights(Y).mean, Y), model.log_evidence(Y)))
    True
    """
    contraction = torch.logdet(model.hessian) - torch.logdet(model.prior_precision)
    return log_normalizer(model.noise_precision, model.B) - model.loss(w, Y) - 0.5 * contraction


def updated_precision(model: Primal, Y: Float[Tensor, " n"], update: Update = "mackay") -> float:
    """The ``a`` that one M-step moves ``A = aI`` to.

    ``"mackay"`` is ``γ/‖w⋆‖²``; ``"elbo"`` maximizes the bound with mean and covariance held, ``d/(‖w⋆‖² + tr H⁻¹)``;
    ``"bound"`` maximizes ``𝓜(w⋆, ·)``, with the mean held; ``"evidence"`` the evidence itself.

    >>> import torch
    >>> model, Y = Primal(torch.eye(2), A=1.0, B=1.0), torch.tensor([3.0, 3.0])
    >>> round(updated_precision(model, Y), 4), round(updated_precision(model, Y, "evidence"), 4)
    (0.2222, 0.125)
    """
    posterior = model.weights(Y)
    square = float(posterior.mean.square().sum())
    if update == "mackay":
        return float(model.effective_dimension()) / square
    if update == "elbo":
        return len(posterior.mean) / (square + float(posterior.covariance.trace()))
    if update not in ("bound", "evidence"):
        raise ValueError(f"update must be 'mackay', 'evidence', 'bound' or 'elbo', got {update!r}")
    values, vectors = torch.linalg.eigh(model.curvature)
    values = values.clamp(min=0.0)
    pull = vectors.mT @ (model.hessian @ posterior.mean)

    def slope(log_a: float) -> float:
        """Of twice the objective in ``log a``, which falls through zero at the maximum."""
        a = math.exp(log_a)
        held = square if update == "bound" else float((pull / (values + a)).square().sum())
        return float((values / (values + a)).sum()) - a * held

    low, high = -60.0, 60.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return math.exp(0.5 * (low + high))


def precision_path(
    Phi: Float[Tensor, "n d"],
    B: float | Float[Tensor, ""] | Float[Tensor, " n"] | Float[Tensor, "n n"],
    Y: Float[Tensor, " n"],
    start: float,
    steps: int,
    update: Update = "mackay",
) -> list[float]:
    """The ``a`` of successive exact EM steps, from ``start``.

    >>> import torch
    >>> path = precision_path(torch.eye(2), 1.0, torch.tensor([3.0, 3.0]), start=1.0, steps=20)
    >>> round(path[-1], 4)
    0.125
    """
    path = [start]
    for _ in range(require_count("steps", steps)):
        path.append(updated_precision(Primal(Phi, path[-1], B), Y, update))
    return path
