"""Priors over the weights of a tangent model, with the precision that is learnt from the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_count, require_positive
from matheron.linear import Data, DiagonalPrior, g_prior_scale
from matheron.linear.mackay import Estimator
from matheron.networks.tangent import TangentModel

NAMES = ("g", "isotropic", "layerwise")

DRAWS = 32
"""Of the curvature's diagonal, for the scale of the g-prior."""

FEWEST = 3
"""Below, the inverse of the estimate has no mean."""


def require_precision(
    name: str, parameters: Sequence[str], precision: float | Float[Tensor, " g"] | None
) -> Float64[Tensor, " g"] | None:
    """A positive number or, for a layerwise prior, one for each parameter tensor, which are given by name."""
    if precision is None:
        return None
    values, most = require_positive("prior_precision", precision).reshape(-1), len(parameters)
    if len(values) != 1 and (name != "layerwise" or len(values) != most):
        wanted = f"one number, or {most}, one for each parameter tensor" if name == "layerwise" else "one number"
        raise ValueError(f"prior_precision has {len(values)} values; prior={name!r} takes {wanted}")
    return values


def require_draws(name: str, draws: int) -> int:
    """As many draws as the scale of the g-prior needs; other priors have none."""
    return require_count("scale_draws", draws, least=FEWEST if name == "g" else 0)


def starting_prior(
    name: str,
    tangent: TangentModel,
    data: Data,
    precision: float | Float[Tensor, " g"] | None,
    draws: int,
    generator: torch.Generator,
) -> tuple[DiagonalPrior, int]:
    """``A = a diag(M)`` (``"g"``), ``aI`` (``"isotropic"``) or one ``a`` per parameter tensor (``"layerwise"``).

    Where none is given, ``a`` starts at 1. That of the g-prior starts at ``d / n`` where weights outnumber data: the
    effective dimension is at most ``tr(A⁻¹M) = d / a``, then one for each datum, and the first solve is not the hardest
    of all. The second value is how many entries of the g-prior's scale were floored. Thesis, sections 5.3.2, 5.3.3 and
    6.2.2.
    """
    options: dict[str, Any] = {"num_weights": tangent.num_weights, "dtype": data.dtype, "device": data.device}
    if name == "g":
        found = g_prior_scale(data, draws, generator, tangent.groups, dtype=tangent.dtype)
        start = max(1.0, tangent.num_weights / data.num_data) if precision is None else precision
        return DiagonalPrior(start, scale=found.scale, **options), found.floored
    if name == "isotropic":
        return DiagonalPrior(1.0 if precision is None else precision, **options), 0
    if name == "layerwise":
        each = torch.ones(len(tangent.names), dtype=torch.float64)
        each = each if precision is None else each * torch.as_tensor(precision, dtype=torch.float64)
        return DiagonalPrior(each, groups=tangent.groups, **options), 0
    raise ValueError(f"prior must be one of {', '.join(NAMES)}, got {name!r}")


def estimator_of(name: str) -> Estimator:
    """How the effective dimension is estimated for a prior of this name.

    Layers, and blocks of them, stand in for each other: from a few samples the dimension of one in function space is as
    often negative.
    """
    return "pull" if name in ("layerwise", "blockwise") else "function"
