"""Where inducing points go."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.kernels.rows import take_rows

SWEEPS = 10
"""Rounds of k-means: locations need not be the optimum, only spread like the data."""

CANDIDATES = 50_000
"""Rows k-means looks at."""

BLOCK = 1024


def k_means(X: Float[Tensor, "n d"], num: int, generator: torch.Generator) -> Float[Tensor, "num d"]:
    """``num`` centers of the rows of ``X``, by Lloyd's algorithm on at most 50,000 of them.

    >>> import torch
    >>> X = torch.cat([torch.zeros(10, 1), torch.ones(10, 1)])
    >>> k_means(X, 2, torch.Generator().manual_seed(1)).sort(dim=0).values
    tensor([[0.],
            [1.]])
    """
    _require_fewer(num, X)
    order = torch.randperm(X.shape[0], generator=generator).to(X.device)[: max(num, CANDIDATES)]
    rows = X[order]
    # Distinct rows first: two centers on one place would make their kernel matrix singular.
    centers = torch.unique(rows, dim=0)
    centers = centers[torch.randperm(len(centers), generator=generator).to(X.device)[:num]].clone()
    for _ in range(SWEEPS):
        nearest = torch.cat([torch.cdist(part, centers).argmin(1) for part in rows.split(BLOCK)])
        counts = torch.bincount(nearest, minlength=len(centers))
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        centers = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), centers)
    return centers


def eliminate_neighbors(X: Float[Tensor, "n d"], num: int) -> Float[Tensor, "num d"]:
    """``num`` rows of ``X``, without those that have another kept row closest to them (thesis §4.3).

    Rows go in rounds: of each pair of nearest neighbors one goes, the closest pairs first, until ``num`` are left.

    >>> import torch
    >>> eliminate_neighbors(torch.tensor([[0.0], [0.1], [5.0], [9.0]]), 3)
    tensor([[0.1000],
            [5.0000],
            [9.0000]])
    """
    _require_fewer(num, X)
    kept = X
    while len(kept) > num:
        distance, neighbor = _nearest(kept)
        gone = torch.zeros(len(kept), dtype=torch.bool, device=X.device)
        partner = torch.zeros_like(gone)
        surplus = len(kept) - num
        for row in distance.argsort(stable=True).tolist():
            other = int(neighbor[row])
            # A row whose neighbor has gone, or that another one leans on, waits for the next round.
            if not (gone[other] or partner[row]):
                gone[row] = partner[other] = True
                surplus -= 1
                if surplus == 0:
                    break
        kept = kept[~gone]
    return kept


def random_rows(X: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """``num`` rows drawn without replacement; for inputs that have no means, such as fingerprints."""
    _require_fewer(num, X)
    return take_rows(X, torch.randperm(X.shape[0], generator=generator).to(X.device)[:num].sort().values)


def _nearest(X: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " n"], Tensor]:
    """Squared distance to, and index of, the nearest other row."""
    centered = X - X.mean(0)
    squares = centered.square().sum(1)
    distances, indices = [], []
    for start in range(0, len(X), BLOCK):
        part = centered[start : start + BLOCK]
        table = torch.addmm(squares, part, centered.mT, alpha=-2.0)
        table[torch.arange(len(part)), torch.arange(start, start + len(part))] = torch.inf
        least, index = table.min(1)
        distances.append(least + squares[start : start + BLOCK])
        indices.append(index)
    return torch.cat(distances), torch.cat(indices)


def _require_fewer(num: int, X: Tensor) -> None:
    require_count("inducing", num)
    if num > X.shape[0]:
        raise ValueError(f"inducing is {num} but there are {X.shape[0]} rows; ask for at most as many")
