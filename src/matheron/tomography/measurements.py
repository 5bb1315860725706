"""Checks of what a scan measured, before a reconstruction starts."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float, require_positive, require_same
from matheron.operators.base import Operator


def require_measurements(y: Any, like: Operator) -> Float[Tensor, "n s"]:
    """``y`` as finite columns of the operator's rows; line integrals may be negative."""
    y = require_float("y", y)
    if y.ndim not in (1, 2) or len(y) != like.shape[0]:
        raise ValueError(
            f"y has shape {tuple(y.shape)} but the operator has {like.shape[0]} rows; give it ({like.shape[0]},) or "
            f"({like.shape[0]}, s), angle by angle: scan.flatten(sinogram) does so for (angles, detectors)"
        )
    require_same("y", y, "the operator", like)
    return require_finite("y", y).reshape(len(y), -1)


def require_weights(weights: Any, like: Operator) -> Float[Tensor, "n 1"]:
    """One precision for every ray, ones if there are none."""
    if weights is None:
        return torch.ones(like.shape[0], 1, dtype=like.dtype, device=like.device)
    weights = require_float("weights", weights)
    if tuple(weights.shape) != (like.shape[0],):
        raise ValueError(f"weights has shape {tuple(weights.shape)}; give one for each of the {like.shape[0]} rays")
    require_positive("weights", weights, zero=True)
    require_same("weights", weights, "the operator", like)
    return weights[:, None]
