"""Gaussian priors over weights, as actions of their precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.arguments import require_count, require_float, require_positive, require_same
from matheron.linear.data import Data
from matheron.seeds import normals


class Prior(ABC):
    """``w ~ N(0, A⁻¹)`` with ``A`` block diagonal over groups of weights, one learned multiple per group.

    Weights are columns ``(d, s)``; what is kept as rows ``(s, d)`` is handed over as ``.mT``. Unless a subclass says
    otherwise all weights are one group.

    >>> import torch
    >>> prior = DiagonalPrior(4.0, num_weights=3)
    >>> prior.root(torch.ones(3, 1)).flatten()
    tensor([0.5000, 0.5000, 0.5000])
    """

    num_weights: int
    dtype: torch.dtype
    device: torch.device
    groups: Int[Tensor, " d"] | None = None
    """Which group every weight belongs to, where there are several."""

    @property
    @abstractmethod
    def values(self) -> Float[Tensor, " g"]:
        """The learned precision of every group, in float64."""

    @abstractmethod
    def precision(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``A W``."""

    @abstractmethod
    def covariance(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``A⁻¹ W``."""

    @abstractmethod
    def root(self, U: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``R U`` with the symmetric root ``R R = A⁻¹``."""

    @abstractmethod
    def log_determinant(self) -> Float[Tensor, ""]:
        """``logdet A``, in float64."""

    @abstractmethod
    def scaled(self, factors: Float[Tensor, " g"]) -> Prior:
        """The prior with the ``A`` of each group multiplied by its factor."""

    def with_values(self, values: Float[Tensor, " g"]) -> Prior:
        """The prior with these precisions."""
        return self.scaled(values / self.values)

    @abstractmethod
    def cast(self, dtype: torch.dtype) -> Prior:
        """The same for weights of another precision."""

    @property
    def group_sizes(self) -> Float[Tensor, " g"]:
        """How many weights each group has."""
        if self.groups is None:
            return torch.tensor([float(self.num_weights)], dtype=torch.float64)
        return torch.bincount(self.groups, minlength=len(self.values)).double().cpu()

    def group_sums(self, V: Float[Tensor, "d s"]) -> Float[Tensor, "g s"]:
        """Sums over the weights of each group, in float64 on the CPU."""
        # A column in float64 at a time: in float32 a sum of many stands still.
        return torch.stack([self._group_sum(column.double()) for column in V.mT], dim=1).cpu()

    def _group_sum(self, column: Float[Tensor, " d"]) -> Float[Tensor, " g"]:
        if self.groups is None:
            return column.sum()[None]
        return column.new_zeros(len(self.values)).index_add_(0, self.groups, column)

    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "d num"]:
        """``R u ~ N(0, A⁻¹)``, one draw per column."""
        return self.root(self.unit(num, generator).mT)

    def unit(self, num: int, generator: torch.Generator) -> Float[Tensor, "num d"]:
        """``u ~ N(0, I)``, one draw per row."""
        return normals((require_count("num", num), self.num_weights), self, generator)


class DiagonalPrior(Prior):
    """``A = diag(a_g(i) / s_i²)``: isotropic; with ``groups`` layerwise or diagonal; with ``scale`` the g-prior.

    ``precision`` is a number, or ``(g,)`` for ``groups`` ``(d,)`` of indices ``0 … g−1``; ``scale`` is ``s``, ``(d,)``.

    >>> import torch
    >>> prior = DiagonalPrior(torch.tensor([1.0, 4.0]), num_weights=3, groups=torch.tensor([0, 1, 1]))
    >>> prior.precision(torch.ones(3, 1)).flatten()
    tensor([1., 4., 4.])
    >>> prior.with_precision(torch.tensor([2.0, 2.0])).values
    tensor([2., 2.], dtype=torch.float64)
    """

    def __init__(
        self,
        precision: float | Float[Tensor, ""] | Float[Tensor, " g"],
        *,
        num_weights: int,
        groups: Int[Tensor, " d"] | None = None,
        scale: Float[Tensor, " d"] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.num_weights = require_count("num_weights", num_weights)
        self._values = require_positive("precision", precision).cpu().reshape(-1)
        if groups is None and len(self._values) != 1:
            raise ValueError(f"precision has {len(self._values)} values but there are no groups; give groups=, (d,)")
        if groups is not None:
            _require_groups(groups, num_weights, len(self._values))
        if scale is not None:
            require_positive("scale", require_float("scale", scale))
            if scale.shape != (num_weights,):
                raise ValueError(f"scale has shape {tuple(scale.shape)}; give one value per weight, ({num_weights},)")
        self.dtype = dtype or (torch.get_default_dtype() if scale is None else scale.dtype)
        place = scale if scale is not None else groups
        self.device = device or (torch.device("cpu") if place is None else place.device)
        self.groups = None if groups is None else groups.to(self.device)
        self.scale = None if scale is None else scale.to(dtype=self.dtype, device=self.device)
        # One number for all weights where there are neither groups nor scales; else one per weight, as a column.
        spread = self._values.rsqrt().to(dtype=self.dtype, device=self.device)
        spread = spread[0] if self.groups is None else spread[self.groups]
        self._spread = (spread if self.scale is None else spread * self.scale).reshape(-1, 1)
        if not bool(self._spread.square().isfinite().all()):
            raise ValueError(
                f"precision of {float(self._values.min()):.2g} makes prior variances beyond the range of {self.dtype}; "
                "raise it, or use double precision"
            )

    @property
    def values(self) -> Float[Tensor, " g"]:
        """``a``."""
        return self._values

    def with_precision(self, precision: float | Float[Tensor, ""] | Float[Tensor, " g"]) -> DiagonalPrior:
        """The same groups and scale with another ``a``."""
        return self._like(precision, self.dtype)

    def cast(self, dtype: torch.dtype) -> DiagonalPrior:
        """The same for weights of another precision."""
        return self._like(self._values, dtype)

    def _like(self, precision: float | Tensor, dtype: torch.dtype) -> DiagonalPrior:
        options: dict[str, Any] = {"num_weights": self.num_weights, "groups": self.groups, "scale": self.scale}
        return DiagonalPrior(precision, **options, dtype=dtype, device=self.device)

    def with_values(self, values: Float[Tensor, " g"]) -> DiagonalPrior:
        """These precisions to the last bit."""
        return self.with_precision(values)

    def scaled(self, factors: Float[Tensor, " g"]) -> DiagonalPrior:
        """``a ⊙ factors``."""
        return self.with_precision(self._values * factors)

    def precision(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``a W / s²``."""
        return W / self._spread.square()

    def covariance(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``s² W / a``."""
        return W * self._spread.square()

    def root(self, U: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``s U / √a``."""
        return U * self._spread

    def log_determinant(self) -> Float[Tensor, ""]:
        """``Σ_i log a_g(i) − 2 Σ_i log s_i``."""
        total = (self.group_sizes * self._values.log()).sum()
        return total if self.scale is None else total - 2.0 * self.scale.double().log().sum().cpu()


def require_prior(prior: Any, data: Data) -> None:
    """Refuse what is no prior over the weights of ``data``."""
    if not isinstance(prior, Prior):
        raise TypeError(f"prior must be a Prior such as DiagonalPrior, got {type(prior).__name__}")
    if prior.num_weights != data.num_weights:
        raise ValueError(
            f"prior is over {prior.num_weights} weights but the data have {data.num_weights}; give num_weights= theirs"
        )
    require_same("prior", prior, "data", data)


def _require_groups(groups: Tensor, num_weights: int, num_groups: int) -> None:
    if groups.dtype != torch.int64 or groups.shape != (num_weights,):
        raise ValueError(
            f"groups is {groups.dtype} with shape {tuple(groups.shape)}; "
            f"give int64 indices, one per weight, ({num_weights},)"
        )
    if bool((groups < 0).any()) or int(groups.max()) >= num_groups:
        raise ValueError(
            f"groups has indices from {int(groups.min())} to {int(groups.max())} but precision has {num_groups} "
            "values; give one precision per group"
        )
