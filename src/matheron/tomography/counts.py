"""From counted photons to line integrals with their precisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_positive


class LineIntegrals(NamedTuple):
    """What a scan measures: ``values`` ``y`` and the ``weights`` ``b`` of ``y ~ N(A x, diag(b)⁻¹)``.

    >>> import torch
    >>> LineIntegrals(values=torch.tensor([1.9]), weights=torch.tensor([14.0])).weights
    tensor([14.])
    """

    values: Float[Tensor, "..."]
    weights: Float[Tensor, "..."]


def from_counts(counts: Tensor, blank: float | Tensor) -> LineIntegrals:
    """``y = log(blank / counts)`` with precision ``counts``.

    Where ``counts ~ Poisson(blank · exp(−A x))`` the logarithm has variance ``1 / counts`` to first order: a ray that
    little passes through is known badly. ``blank`` is the count without an object, for all rays or for each. A count of
    zero is read as one half, in the value as in its precision: it says that the path was at least this opaque, faintly.

    >>> import torch
    >>> y, b = from_counts(torch.tensor([100, 14, 0]), blank=100.0)
    >>> y
    tensor([0.0000, 1.9661, 5.2983])
    >>> b
    tensor([100.0000,  14.0000,   0.5000])
    """
    counts = _as_float("counts", counts)
    if bool((counts < 0).any()):
        worst = tuple(int(i) for i in (counts == counts.min()).nonzero()[0])
        raise ValueError(
            f"counts has negative entries, the least {float(counts.min()):g} at index {worst}; counts are photons, "
            "before the logarithm; where a dark field was subtracted, clamp them at zero"
        )
    full = require_positive("blank", blank).to(dtype=counts.dtype, device=counts.device)
    try:
        full = full.expand(counts.shape)
    except RuntimeError as error:
        raise ValueError(
            f"blank has shape {tuple(full.shape)}, which does not fit counts of {tuple(counts.shape)}; give one "
            "number, or one for each ray"
        ) from error
    seen = torch.where(counts > 0, counts, 0.5)
    return LineIntegrals((full / seen).log(), seen)


def _as_float(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; convert it with torch.as_tensor")
    if value.is_complex():
        raise TypeError(f"{name} is complex, {value.dtype}; photons are counted in real numbers")
    return require_finite(name, value if value.is_floating_point() else value.to(torch.get_default_dtype()))
