"""A prior over lengthscales through what they do to the total variation of images."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.archive import digest
from matheron.arguments import require_count, require_positive_number
from matheron.linear.filter_prior import FilterPrior
from matheron.linear.filters import Filters
from matheron.operators import Operator
from matheron.seeds import source_of
from matheron.tomography.differences import Differences

EDGES = 2048
"""Pairs of neighbors beyond which a random choice stands for all."""

AT_ONCE = 128
"""Pairs in one pass back through the network."""


class PredCP:
    """``log p(ψ) = Σ_k (−κ_k + log |∂κ_k/∂ψ_k|)``, ``κ_k = √(2/π) Σ_e √((Dφ)_e A_k⁻¹ (Dφ)_eᵀ) / u`` (§ 7.2.3).

    ``κ_k`` is the expected total variation of an image ``φ_k w_k``, ``w_k ~ N(0, A_k⁻¹)``, of block ``k`` alone, in
    closed form: a difference ``e`` of neighbors is Gaussian. ``D`` takes the differences, ``u`` is the ``unit`` of the
    image, so that images in other units have the same prior. What the network contributes are quadratic forms by
    block, distance within a filter and pair of neighbors; beyond ``edges`` pairs, so many random ones stand for all.

    >>> import torch
    >>> from matheron.linear.filters import Part
    >>> from matheron.operators import Dense
    >>> filters = Filters([Part(2, (2,), 0)])
    >>> found = PredCP.of(filters, Dense(torch.tensor([[0.0, 0.0], [1.0, 1.0]])), (1, 2))
    >>> a, psi = torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    >>> found.expected_variation(a, psi)  # √(2/π) √(2 + 2/e)
    tensor([1.3197], dtype=torch.float64)
    """

    def __init__(
        self, filters: Filters, forms: Float64[Tensor, "k c e"], *, share: float = 1.0, unit: float = 1.0
    ) -> None:
        self.filters, self.forms, self.unit = filters, forms, unit
        self._factor = math.sqrt(2.0 / math.pi) / (share * require_positive_number("unit", unit))

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        filters: Filters,
        Phi: Operator,
        shape: tuple[int, ...],
        *,
        unit: float = 1.0,
        edges: int | None = EDGES,
        generator: torch.Generator | int | None = None,
    ) -> PredCP:
        """From the Jacobian ``φ`` of an image of this shape, a pass back for every pair of neighbors."""
        D = Differences(shape, dtype=Phi.dtype, device=Phi.device)
        if not D.shape[0]:
            raise ValueError(f"shape {tuple(shape)} has a single pixel, which has no neighbors")
        chosen = torch.arange(D.shape[0])
        if edges is not None and require_count("edges", edges) < len(chosen):
            chosen = torch.randperm(len(chosen), generator=source_of(generator))[:edges]
        parts = []
        for some in chosen.split(AT_ONCE):
            units = torch.zeros(D.shape[0], len(some), dtype=Phi.dtype, device=Phi.device)
            units[some.to(Phi.device), torch.arange(len(some), device=Phi.device)] = 1.0
            rows = Phi.T @ (D.T @ units)
            parts.append(filters.forms(rows, rows))
        return cls(filters, torch.cat(parts, dim=2), share=len(chosen) / D.shape[0], unit=unit)

    def identity(self) -> list[float | str]:
        """What must be the same for this to be the same density: forms and unit."""
        return [self._factor, digest(self.forms)]

    def expected_variation(
        self, precision: Float64[Tensor, " k"], lengthscales: Float64[Tensor, " k"]
    ) -> Float64[Tensor, " k"]:
        """``κ``, differentiable."""
        return self._factor * self._variances(self.filters.coefficients(precision, lengthscales)).sqrt().sum(1)

    def slope(self, precision: Float64[Tensor, " k"], lengthscales: Float64[Tensor, " k"]) -> Float64[Tensor, " k"]:
        """``∂κ_k/∂ψ_k``, differentiable: its own derivative has the curvature of total variation in it."""
        coefficients = self.filters.coefficients(precision, lengthscales)
        root = self._variances(coefficients).sqrt()
        by_lengthscale = coefficients * self.filters.distances / lengthscales[:, None].square()
        change = torch.einsum("kc,kce->ke", by_lengthscale, self.forms)
        return self._factor * (change / (2.0 * root)).sum(1)

    def log_prob(self, precision: Float64[Tensor, " k"], lengthscales: Float64[Tensor, " k"]) -> Float64[Tensor, ""]:
        """Over the blocks that have filters and that move the image at all."""
        seen = self.filters.smooth & (self.forms[:, 0].sum(1) > 0.0)
        kappa = self.expected_variation(precision, lengthscales)[seen]
        slope = self.slope(precision, lengthscales)[seen].abs()
        return (slope.clamp(min=torch.finfo(torch.float64).tiny).log() - kappa).sum()

    def _variances(self, coefficients: Float64[Tensor, "k c"]) -> Float64[Tensor, "k e"]:
        """Of the differences; one that no weight moves has none, and no slope."""
        found = torch.einsum("kc,kce->ke", coefficients, self.forms)
        least = 1e-12 * found.detach().amax(1, keepdim=True).clamp(min=1e-200)
        return torch.maximum(found, least)


@torch.no_grad()
def sampled_variation(
    prior: FilterPrior,
    Phi: Operator,
    shape: tuple[int, ...],
    num: int,
    generator: torch.Generator,
    *,
    unit: float = 1.0,
) -> Float[Tensor, "num k"]:
    """``TV(φ_k w_k) / u`` of ``num`` draws ``w_k ~ N(0, A_k⁻¹)`` of each block alone, whose mean is ``κ_k``.

    What the thesis estimates ``κ`` by (section 7.3.1); :class:`PredCP` has it in closed form.

    >>> import torch
    >>> from matheron.linear.filters import Part
    >>> from matheron.operators import Dense
    >>> prior = FilterPrior(torch.ones(1), torch.ones(1), Filters([Part(2, (2,), 0)]))
    >>> Phi = Dense(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    >>> found = sampled_variation(prior, Phi, (1, 2), 4000, torch.Generator().manual_seed(0))
    >>> bool((found.mean() - 1.3197).abs() < 0.05)
    True
    """
    D = Differences(shape, dtype=Phi.dtype, device=Phi.device)
    W, found = prior.draw(num, generator), []
    assert prior.groups is not None
    for block in range(prior.filters.num_blocks):
        alone = torch.where(prior.groups[:, None] == block, W, 0.0)
        found.append((D @ (Phi @ alone)).abs().sum(0) / unit)
    return torch.stack(found, dim=1)
