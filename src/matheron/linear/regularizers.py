"""The randomness of posterior samples, drawn once and kept while precisions change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear.data import Data
from matheron.linear.prior import Prior, require_prior
from matheron.seeds import normals


@dataclass(frozen=True, eq=False)
class Regularizers:
    """``w₀′ = A^(-1/2) u + A⁻¹ΦᵀBε``, the center of each sample's regularizer, apart from the precision ``A``.

    ``unit`` holds ``u ~ N(0, I)`` and ``pull`` ``ΦᵀBε`` with ``Bε ~ N(0, B)``, one sample per row ``(s, d)``.
    ``slope``, ``(d,)``, is the gradient of the loss at weights of zero, where there are targets. ``noise``, ``(s,
    m)``, where it was kept, is the ``u`` of ``Bε = Lu`` in the order of the data. Thesis, section 6.2.3.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.randn(5, 3)), GaussianCurvature(1.0, size=5))
    >>> drawn = draw_regularizers(data, 2, torch.Generator().manual_seed(0))
    >>> one, four = (drawn.center(DiagonalPrior(a, num_weights=3)) for a in (1.0, 4.0))
    >>> bool(torch.allclose(four, one / 2 - drawn.pull / 4))
    True
    """

    unit: Float[Tensor, "s d"]
    pull: Float[Tensor, "s d"]
    slope: Float[Tensor, " d"] | None
    noise: Float[Tensor, "s m"] | None
    epochs: float
    """Passes over the data this took; half a one, as nothing is predicted."""

    def __len__(self) -> int:
        return len(self.unit)

    def start(self, prior: Prior) -> Float[Tensor, "s d"]:
        """``w₀ = A^(-1/2) u``, the prior samples."""
        return prior.root(self.unit.mT).mT

    def center(self, prior: Prior) -> Float[Tensor, "s d"]:
        """``w₀′``, where the low-variance objective is centered."""
        return self.start(prior) + prior.covariance(self.pull.mT).mT

    def with_noise_scaled(self, factor: float) -> Regularizers:
        """The same draws after ``B`` was multiplied by ``factor``: ``Bε`` grows with its root."""
        slope = None if self.slope is None else factor * self.slope
        return replace(self, pull=factor**0.5 * self.pull, slope=slope)


@torch.no_grad()
def draw_regularizers(
    data: Data, num: int, generator: torch.Generator, *, mode: bool = False, keep_noise: bool = False
) -> Regularizers:
    """``u`` and ``ΦᵀBε`` for ``num`` samples from one pass of transposed products, fresh noise for every datum.

    ``mode=True`` adds the gradient at zero to the pass. ``keep_noise=True`` keeps ``(num, m)`` numbers, for
    :func:`~matheron.linear.solve_dual` and the plain objective.
    """
    unit = normals((require_count("num", num), data.num_weights), data, generator)
    totals = torch.zeros(num + mode, data.num_weights, dtype=data.dtype, device=data.device)
    kept = torch.empty(num, data.num_rows, dtype=data.dtype, device=data.device) if keep_noise else None
    for rows, batch in data.in_order():
        if kept is None:
            columns = batch.curvature.draw(num, generator)
        else:
            kept[:, rows] = batch.curvature.normals(num, generator)
            columns = batch.curvature.root @ kept[:, rows].mT
        if mode:
            zero = torch.zeros(batch.rows, 1, dtype=data.dtype, device=data.device)
            columns = torch.cat([columns, batch.loss_gradient(zero)], dim=1)
        totals += (batch.features.T @ columns).mT
    if not bool(totals.isfinite().all()):
        raise ValueError(
            "the data have NaN or infinite features, for a network its derivatives; mend the inputs, or leave out the "
            "rows and parameters where they are"
        )
    return Regularizers(unit, totals[:num], totals[num] if mode else None, kept, 0.5)


def regularizers_of(
    num: int | Regularizers,
    data: Data,
    prior: Prior,
    generator: torch.Generator,
    *,
    mode: bool,
    keep_noise: bool = False,
) -> Regularizers:
    """Those that are given, or ``num`` new ones, if the prior is one over the weights of the data."""
    require_prior(prior, data)
    if isinstance(num, Regularizers):
        return num
    return draw_regularizers(data, num, generator, mode=mode, keep_noise=keep_noise)
