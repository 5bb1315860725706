"""Where inducing points go."""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.spatial import cKDTree
from torch import Tensor

from matheron.arguments import require_count, require_inputs
from matheron.kernels.rows import take_rows
from matheron.seeds import permutation, source_of

SWEEPS = 10
"""Rounds of k-means: locations need not be the optimum, only spread like the data."""

CANDIDATES = 50_000
"""Rows k-means looks at."""

BLOCK = 1024

TABLE = 2**24
"""Distances that exist at once."""

TREE_COLUMNS = 12
"""Inputs beyond which a tree of the rows saves no distances."""

TREE_ROWS = 256
"""Rows below which building it costs more than it saves."""


def k_means(
    X: Float[Tensor, "n d"], num: int, generator: torch.Generator | int | None = None
) -> Float[Tensor, "num d"]:
    """``num`` centers of the rows of ``X``, by Lloyd's algorithm on at most 50,000 of them.

    >>> import torch
    >>> X = torch.cat([torch.zeros(10, 1), torch.ones(10, 1)])
    >>> k_means(X, 2, torch.Generator().manual_seed(1)).sort(dim=0).values
    tensor([[0.],
            [1.]])
    """
    _require_fewer(num, require_inputs("X", X))
    generator = source_of(generator)
    order = permutation(X.shape[0], generator, X.device)[: max(num, CANDIDATES)]
    rows = X[order]
    # Distinct rows first: two centers on one place would make their kernel matrix singular.
    centers = torch.unique(rows, dim=0)
    centers = centers[permutation(len(centers), generator, X.device)[:num]].clone()
    for _ in range(SWEEPS):
        nearest = torch.cat([torch.cdist(part, centers).argmin(1) for part in rows.split(BLOCK)])
        counts = torch.bincount(nearest, minlength=len(centers))
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        centers = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), centers)
    return centers


def eliminate_neighbors(X: Float[Tensor, "n d"], num: int) -> Float[Tensor, "num d"]:
    """``num`` rows of ``X``, without those that are closest to another one that stays (thesis §4.3).

    Rows go in rounds, in each the closest quarter at most, so that what is left is spread evenly however dense the
    data were; distances are looked up again only for rows whose neighbor went.

    >>> import torch
    >>> eliminate_neighbors(torch.tensor([[0.0], [0.1], [5.0], [9.0]]), 3)
    tensor([[0.1000],
            [5.0000],
            [9.0000]])
    """
    _require_fewer(num, require_inputs("X", X))
    kept = _distinct(X, num)
    rows = torch.arange(len(kept), device=X.device)
    distance, neighbor = _nearest(kept, rows) if len(kept) > num else (X.new_zeros(0), rows)
    while len(kept) > num:
        gone = _eliminated(distance, neighbor, len(kept) - num)
        place = (~gone).cumsum(0) - 1
        stale = gone[neighbor][~gone]
        kept, distance, neighbor = kept[~gone], distance[~gone], place[neighbor[~gone]]
        again = stale.nonzero()[:, 0]
        if len(again) and len(kept) > num:
            distance[again], neighbor[again] = _nearest(kept, again)
    return kept


def _distinct(X: Float[Tensor, "n d"], num: int) -> Float[Tensor, "r d"]:
    """The first of every set of equal rows, in order, and as many of the others as are needed for ``num``."""
    _, group = torch.unique(X, dim=0, return_inverse=True)
    order = group.argsort(stable=True)
    first = torch.ones(len(X), dtype=torch.bool, device=X.device)
    first[order[1:]] = group[order[1:]] != group[order[:-1]]
    missing = num - int(first.sum())
    if missing > 0:
        first[(~first).nonzero()[:missing, 0]] = True
    return X[first]


def _eliminated(distance: Float[Tensor, " n"], neighbor: Tensor, surplus: int) -> Tensor:
    """Rows to go, as a mask: of the closest quarter those nobody leans on, and one of each pair that stands alone."""
    n = len(distance)
    candidate = torch.zeros(n, dtype=torch.bool, device=distance.device)
    # Ever fewer towards the end, when a pair that is not among the very closest would be missed.
    candidate[distance.argsort(stable=True)[: max(2, min(n, surplus) // 4)]] = True
    own = torch.arange(n, device=distance.device)
    leaning = torch.zeros(n, dtype=torch.int64, device=distance.device)
    leaning.index_add_(0, neighbor[candidate], torch.ones_like(neighbor[candidate]))
    pair = candidate & candidate[neighbor] & (neighbor[neighbor] == own) & (own < neighbor)
    gone = candidate & ((leaning == 0) | (pair & (leaning == 1)))
    if int(gone.sum()) > surplus:
        closest = gone.nonzero()[:, 0]
        closest = closest[distance[closest].argsort(stable=True)[:surplus]]
        gone = torch.zeros_like(gone).index_fill_(0, closest, True)
    return gone


def random_rows(X: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """``num`` rows drawn without replacement; for inputs that have no means, such as fingerprints."""
    _require_fewer(num, X)
    return take_rows(X, permutation(X.shape[0], generator, X.device)[:num].sort().values)


def _nearest(X: Float[Tensor, "n d"], rows: Tensor) -> tuple[Float[Tensor, " r"], Tensor]:
    """Squared distance of some rows to, and index of, the nearest other row."""
    if X.device.type == "cpu" and X.shape[1] <= TREE_COLUMNS and len(rows) >= TREE_ROWS:
        return _nearest_by_tree(X, rows)
    return _nearest_by_table(X, rows)


def _nearest_by_tree(X: Float[Tensor, "n d"], rows: Tensor) -> tuple[Float[Tensor, " r"], Tensor]:
    """In about ``n log n`` steps where inputs are few."""
    points = X.detach().to(torch.float64).numpy()
    found = cKDTree(points).query(points[rows.numpy()], k=2, workers=torch.get_num_threads())
    distances, indices = (torch.from_numpy(part) for part in found)
    # A row is nearest to itself, and comes second where an equal one was met before it.
    other = (indices[:, 0] == rows).to(torch.int64)[:, None]
    return distances.gather(1, other)[:, 0].square().to(X.dtype), indices.gather(1, other)[:, 0]


def _nearest_by_table(X: Float[Tensor, "n d"], rows: Tensor) -> tuple[Float[Tensor, " r"], Tensor]:
    """From all distances, some at a time."""
    centered = X - X.mean(0)
    squares = centered.square().sum(1)
    distances, indices = [], []
    for part in rows.split(max(1, TABLE // len(X))):
        table = torch.addmm(squares, centered[part], centered.mT, alpha=-2.0)
        table[torch.arange(len(part), device=X.device), part] = torch.inf
        least, index = table.min(1)
        distances.append((least + squares[part]).clamp_min(0.0))
        indices.append(index)
    return torch.cat(distances), torch.cat(indices)


def _require_fewer(num: int, X: Tensor) -> None:
    require_count("inducing", num)
    if num > X.shape[0]:
        raise ValueError(f"inducing is {num} but there are {X.shape[0]} rows; ask for at most as many")
