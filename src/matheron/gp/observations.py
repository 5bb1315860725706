"""The data a Gaussian process is conditioned on, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float, require_positive, require_same
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Observations:
    """``y_i = f(x_i) + ε_i``: inputs, targets as columns, noise variances, in the units ``units`` gives them.

    ``single`` remembers that the targets came without a column of their own, so that answers go out the same way.
    """

    X: Float[Tensor, "n d"]
    Y: Float[Tensor, "n c"]
    noise: Float[Tensor, " n"]
    units: Standardization
    single: bool

    @property
    def rows(self) -> int:
        """``n``."""
        return self.X.shape[0]

    @property
    def outputs(self) -> int:
        """``c``."""
        return self.Y.shape[1]

    def detach(self) -> Observations:
        """The same without their history."""
        return replace(self, X=self.X.detach(), Y=self.Y.detach())

    def double(self) -> Observations:
        """The same in float64."""
        return replace(self, X=self.X.double(), Y=self.Y.double(), noise=self.noise.double())


def require_rows(kernel: Kernel, X: Any, *, name: str = "X", least: int = 2) -> Tensor:
    """Return ``X`` if the kernel reads it and it has enough rows, all finite."""
    X = kernel.check_inputs(name, X)
    if X.shape[0] == 0:
        raise ValueError(f"{name} has no rows; give it at least {least}")
    if X.shape[0] < least:
        raise ValueError(f"{name} has {X.shape[0]} rows; give it at least {least}")
    require_finite(name, X.detach() if X.layout == torch.strided else X.values().detach())
    return X


def require_targets(y: Any, X: Tensor) -> Float[Tensor, "n c"]:
    """Return ``y`` as columns ``(n, c)`` if it has one finite row per row of ``X``."""
    y = require_float("y", y)
    if y.ndim not in (1, 2) or y.shape[0] != X.shape[0]:
        raise ValueError(
            f"y has shape {tuple(y.shape)} but X has {X.shape[0]} rows; give ({X.shape[0]},) or ({X.shape[0]}, c)"
        )
    if y.ndim == 2 and y.shape[1] == 0:
        raise ValueError("y has no columns; give it at least one")
    require_same("y", y, "X", X)
    require_finite("y", y.detach())
    return y.reshape(X.shape[0], -1)


def known_noise(noise: Any, X: Tensor, units: Standardization) -> Float[Tensor, " n"]:
    """Measurement errors of the rows of ``X``, given in squared units of the targets, in standard units."""
    scale = units.y_scale.square()
    if bool((scale != scale[0]).any()):
        raise ValueError(
            "noise given together with standardize=True needs outputs of one scale, as it has no one meaning for "
            "several; standardize beforehand"
        )
    return require_noise(noise, X.shape[0], X) / scale[0].to(X.dtype)


def require_noise(noise: Any, rows: int, like: Tensor) -> Float[Tensor, " n"]:
    """Return noise variances, one per row, of the dtype and device of ``like``."""
    values = require_positive("noise", noise)
    if values.ndim > 1 or (values.ndim == 1 and len(values) not in (1, rows)):
        raise ValueError(
            f"noise has shape {tuple(values.shape)} but there are {rows} rows; give one variance for all or one per row"
        )
    return values.to(dtype=like.dtype, device=like.device).expand(rows)
