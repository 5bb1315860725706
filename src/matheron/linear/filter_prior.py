"""Convolution filters that are smooth a priori."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_positive
from matheron.linear.filters import Filters
from matheron.linear.prior import Prior


class FilterPrior(Prior):
    """``A⁻¹`` block diagonal over filters, ``[A_k⁻¹]_pq = a_k⁻¹ exp(−‖p − q‖ / ψ_k)`` between the pixels of one.

    Blocks ``k`` of filters share ``precision`` ``a_k`` and ``lengthscales`` ``ψ_k``, ``(k,)`` each; that of a block
    without filters has no effect. Weights that are no filters have the variance ``a_k⁻¹``. Thesis, section 7.2.3.

    >>> import torch
    >>> from matheron.linear.filters import Filters, Part
    >>> prior = FilterPrior(torch.tensor([4.0]), torch.tensor([1.0]), Filters([Part(2, (2,), 0)]))
    >>> prior.covariance(torch.eye(2))  # a quarter, and e⁻¹ of it beside
    tensor([[0.2500, 0.0920],
            [0.0920, 0.2500]])
    """

    def __init__(
        self,
        precision: Float[Tensor, " k"],
        lengthscales: Float[Tensor, " k"],
        filters: Filters,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        self._values = require_positive("precision", precision).cpu()
        self.lengthscales = require_positive("lengthscales", lengthscales).cpu()
        for name, given in (("precision", self._values), ("lengthscales", self.lengthscales)):
            if given.shape != (filters.num_blocks,):
                raise ValueError(f"{name} has shape {tuple(given.shape)}; give one for each of {filters.num_blocks}")
        self.filters, self.num_weights = filters, filters.num_weights
        self.dtype, self.device = dtype or torch.get_default_dtype(), device or torch.device("cpu")
        self.groups = filters.groups.to(self.device)
        values = filters.coefficients(self._values, self.lengthscales)
        # One factorization per block and kernel, in float64; smooth filters are nearly dependent.
        spectra = {
            (part.kernel, part.block): torch.linalg.eigh(values[part.block][filters.classes[part.kernel]])
            for part in filters.parts
        }
        self._log_determinants = {key: -float(found[0].log().sum()) for key, found in spectra.items()}
        powers = {"precision": -1.0, "covariance": 1.0, "root": 0.5}
        self._matrices = {
            name: {
                key: ((vectors * found**power) @ vectors.mT).to(dtype=self.dtype, device=self.device)
                for key, (found, vectors) in spectra.items()
            }
            for name, power in powers.items()
        }

    @property
    def values(self) -> Float[Tensor, " k"]:
        """``a``."""
        return self._values

    def with_values(self, values: Float[Tensor, " k"]) -> FilterPrior:
        """These precisions to the last bit."""
        return FilterPrior(values, self.lengthscales, self.filters, dtype=self.dtype, device=self.device)

    def scaled(self, factors: Float[Tensor, " k"]) -> FilterPrior:
        """``a ⊙ factors``."""
        return self.with_values(self._values * factors)

    def cast(self, dtype: torch.dtype) -> FilterPrior:
        """The same for weights of another precision."""
        return FilterPrior(self._values, self.lengthscales, self.filters, dtype=dtype, device=self.device)

    def precision(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``A W``, filter by filter."""
        return self._apply(W, "precision")

    def covariance(self, W: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``A⁻¹ W``."""
        return self._apply(W, "covariance")

    def root(self, U: Float[Tensor, "d s"]) -> Float[Tensor, "d s"]:
        """``A^(-½) U``, the symmetric root."""
        return self._apply(U, "root")

    def log_determinant(self) -> Float[Tensor, ""]:
        """``Σ −logdet A_k⁻¹`` over filters."""
        total = 0.0
        for part in self.filters.parts:
            total += part.size / math.prod(part.kernel) * self._log_determinants[part.kernel, part.block]
        return torch.tensor(total, dtype=torch.float64)

    def _apply(self, W: Float[Tensor, "d s"], name: str) -> Float[Tensor, "d s"]:
        """A function of ``A⁻¹`` on columns; rows are what is contiguous."""
        rows, found = W.mT, torch.empty_like(W.mT)
        for place, part in self.filters.places():
            matrix = self._matrices[name][part.kernel, part.block]
            if len(matrix) == 1:
                found[:, place] = rows[:, place] * matrix
            else:
                found[:, place] = (rows[:, place].reshape(len(rows), -1, len(matrix)) @ matrix).flatten(1)
        return found.mT


class Held:
    """``−½ w_kᵀ A_k w_k`` of given weights as a function of precisions and lengthscales, differentiable.

    >>> import torch
    >>> from matheron.linear.filters import Filters, Part
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> Held(Filters([Part(2, (2,), 0)]), torch.tensor([1.0, 1.0])).penalty(4.0 * one, one)  # −4 / (1 + e⁻¹)
    tensor(-2.9242, dtype=torch.float64)
    """

    def __init__(self, filters: Filters, w: Float[Tensor, " d"]) -> None:
        self.filters = filters
        self._moments: dict[tuple[tuple[int, ...], int], Tensor] = {}
        for place, part in filters.places():
            rows = w[place].double().cpu().reshape(-1, len(filters.classes[part.kernel]))
            key = part.kernel, part.block
            self._moments[key] = self._moments.get(key, 0.0) + rows.mT @ rows

    def penalty(self, precision: Float64[Tensor, " k"], lengthscales: Float64[Tensor, " k"]) -> Float64[Tensor, ""]:
        """Summed over all blocks."""
        values = self.filters.coefficients(precision, lengthscales)
        total = values.new_zeros(())
        for (kernel, block), moment in self._moments.items():
            covariance = values[block][self.filters.classes[kernel]]
            total = total - 0.5 * torch.linalg.solve(covariance, moment).trace()
        return total
