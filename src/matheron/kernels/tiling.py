"""How a matrix is cut into tiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

TILE = (512, 1024)
"""Rows and columns of a tile: large enough to keep two threads busy, small enough for the cache."""


def upper_tiles(n: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles on and above the diagonal of an ``n × n`` matrix; those on it are square.

    >>> [(rows.start, columns.start, columns.stop) for rows, columns in upper_tiles(600)]
    [(0, 0, 512), (0, 512, 600), (512, 512, 600)]
    """
    for top in range(0, n, TILE[0]):
        rows = slice(top, min(top + TILE[0], n))
        edges = [top, *range(rows.stop, n, TILE[1]), n]
        for left, right in pairwise(edges):
            yield rows, slice(left, right)
