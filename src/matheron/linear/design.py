"""What to observe next: criteria for any linear Gaussian model, from samples of what would be observed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float
from matheron.seeds import normals, own_source

CRITERIA = ("ese", "eig", "evr")

ENTRIES = 2**25
"""Observations that are scored at a time."""


@dataclass(frozen=True, eq=False)
class Design:
    """Candidates in the order of their choice, and the score each had when it was chosen.

    >>> import torch
    >>> from matheron.linear import greedy_design
    >>> f = torch.randn(4000, 3, 1, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 3.0, 2.0])[:, None]
    >>> greedy_design(f, 2).indices
    tensor([1, 2])
    """

    indices: Int[Tensor, " num"]
    scores: Float[Tensor, " num"]


def squared_error(F: Float[Tensor, "s k c"]) -> Float[Tensor, " k"]:
    """``tr(T K Tᵀ)`` of each candidate ``T``, from samples ``T f_j`` around zero: ESE but for the noise's part.

    >>> import torch
    >>> squared_error(torch.tensor([[[1.0, 1.0], [2.0, 0.0]], [[-1.0, -1.0], [-2.0, 0.0]]]))
    tensor([2., 4.])
    """
    return F.square().sum(-1).mean(0)


def information_gain(F: Float[Tensor, "s k c"]) -> Float[Tensor, " k"]:
    """``½ logdet(I + T K Tᵀ)`` of each candidate, where noise has variance one; nats.

    By the smaller of the Gram matrices of samples and of entries, whose determinants agree.

    >>> import torch
    >>> information_gain(torch.tensor([[[1.0]], [[-1.0]]]))  # a variance of 1: ½ log 2
    tensor([0.3466])
    """
    s, _, c = F.shape
    rows = F.double().transpose(0, 1) / s**0.5
    factor = _factor(rows @ rows.mT if s < c else rows.mT @ rows)
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).to(F.dtype)


def variance_reduction(F: Float[Tensor, "s k c"], spread: Float[Tensor, "s k c"] | None = None) -> Float[Tensor, " k"]:
    """``Σ_t tr(C_t (T K Tᵀ + I)⁻¹ C_tᵀ)``, ``C_t = T_t K Tᵀ``: the variance that ``T`` takes from all candidates.

    A candidate unlike all others may say much, but nothing of them: it scores low here and high by
    :func:`information_gain`. ``spread`` is that of all candidates, where these are some of them only.

    >>> import torch
    >>> f = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    >>> variance_reduction(torch.stack([f[:, 0], f[:, 0], 2 * f[:, 1]], dim=1)[:, :, None])  # 2 · 1/2; 4 · 4/5
    tensor([1.0000, 1.0000, 3.2000])
    """
    s, _, c = F.shape
    spread = spread_over_all(F) if spread is None else spread
    rows, spread_rows = ((t.double() / s**0.5).transpose(0, 1) for t in (F, spread))
    gram, shared = (t @ rows.mT if s < c else rows.mT @ t for t in (rows, spread_rows))
    explained = torch.cholesky_solve(shared, _factor(gram))
    return explained.diagonal(dim1=-2, dim2=-1).sum(-1).to(F.dtype)


def _factor(gram: Float64[Tensor, "*k n n"]) -> Float64[Tensor, "*k n n"]:
    """``L`` with ``L Lᵀ = G + I``: where noise is little, ``I`` is lost beside a ``G`` in float32."""
    factor, failed = torch.linalg.cholesky_ex(gram + torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device))
    variances = gram.diagonal(dim1=-2, dim2=-1)
    if bool((failed.bool() & variances.isfinite().all(-1)).any()):
        most = float(variances.nan_to_num(0.0).max())
        raise ValueError(
            f"what would be observed has variances of up to {most:.2g} in units of the noise's, which is lost beside "
            "them even in float64; give the noise a larger variance"
        )
    return factor


def spread_over_all(F: Float[Tensor, "s k c"]) -> Float64[Tensor, "s k c"]:
    """``Σ_t (F_t F_tᵀ / s) F``, by the smaller of the Gram matrices."""
    flat = F.double().flatten(1)
    s, entries = flat.shape
    found = flat @ (flat.mT @ flat) if entries < s else (flat @ flat.mT) @ flat
    return found.div_(s).reshape(F.shape)


def scores(F: Float[Tensor, "s k c"], criterion: str, *, unit: float = 1.0) -> Float[Tensor, " k"]:
    """:func:`squared_error` (``"ese"``), :func:`information_gain` (``"eig"``), :func:`variance_reduction` (``"evr"``).

    ``F`` is in units of which the noise's deviation is ``unit``; candidates are scored some at a time.
    """
    some = max(1, ENTRIES // (F.shape[0] * F.shape[2]))
    parts = (part / unit for part in F.split(some, dim=1))
    if require_criterion(criterion) == "evr":
        spread = spread_over_all(F).div_(unit**3).split(some, dim=1)
        return torch.cat([variance_reduction(part, own) for part, own in zip(parts, spread, strict=True)])
    score = squared_error if criterion == "ese" else information_gain
    return torch.cat([score(part) for part in parts])


def require_criterion(criterion: str) -> str:
    """Return ``criterion`` if it is one."""
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    return criterion


@torch.no_grad()
def greedy_design(
    F: Float[Tensor, "s k c"],
    num: int,
    criterion: str = "eig",
    *,
    generator: torch.Generator | int | None = None,
) -> Design:
    """The best candidate, given it the next best, and so on: ``num`` of ``k``, each observed at most once.

    ``F`` are joint samples of every candidate's noiseless observation around its mean, in units of the noise's
    deviation; ``c`` entries are observed together. After each choice the samples of all others are conditioned on it
    by Matheron's rule, ``F − C_·i (C_ii + I)⁻¹ (F_i + ε)``, with covariances ``C`` from the samples themselves; where
    the model's own are at hand, :class:`~matheron.linear.SequentialPosterior` conditions by those. Thesis, section 7.4.

    >>> import torch
    >>> g = torch.Generator().manual_seed(0)
    >>> f = torch.randn(500, 2, generator=g)
    >>> F = torch.stack([3 * f[:, 0], 2.9 * f[:, 0], 2 * f[:, 1]], dim=1)[:, :, None]
    >>> greedy_design(F, 2, generator=g).indices  # the second candidate says what the first has said
    tensor([0, 2])
    """
    F = require_finite("F", require_float("F", F)).clone()
    if F.ndim != 3 or F.numel() == 0:
        raise ValueError(f"F has shape {tuple(F.shape)}; give samples of every candidate's observation, (s, k, c)")
    k = F.shape[1]
    if require_count("num", num) > k:
        raise ValueError(f"num is {num} but there are {k} candidates; ask for at most as many")
    require_criterion(criterion)
    source = own_source(generator)
    free = torch.ones(k, dtype=torch.bool, device=F.device)
    indices, reached = [], []
    for _ in range(num):
        score = scores(F, criterion)
        best = int(torch.where(free, score, -torch.inf).argmax())
        free[best] = False
        indices.append(best)
        reached.append(score[best])
        observed, every = F[:, best], F.flatten(1)
        cross = observed.double().mT @ every.double() / len(F)
        factor = _factor(cross.unflatten(1, F.shape[1:])[:, best])
        F = conditioned(every, observed, factor, cross, source).reshape(F.shape)
    return Design(torch.tensor(indices), torch.stack(reached).cpu())


def conditioned(
    F: Float[Tensor, "s n"],
    observed: Float[Tensor, "s c"],
    factor: Float[Tensor, "c c"],
    cross: Float[Tensor, "c n"],
    generator: torch.Generator,
) -> Float[Tensor, "s n"]:
    """``F − crossᵀ (L Lᵀ)⁻¹ (F_o + ε)``: samples given that ``observed``, plus noise of variance one, was zero.

    ``L`` is the ``factor`` of the covariance of what was measured, noise included; ``cross`` that with all of ``F``.
    """
    noise = normals(observed.shape, F, generator)
    weights = torch.cholesky_solve((observed + noise).mT.to(factor.dtype), factor)
    return F - (weights.mT @ cross).to(F.dtype)
