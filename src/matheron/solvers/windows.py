"""Contiguous windows of rows that are in random order: random blocks without gathering."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch


def windows(n: int, size: int, generator: torch.Generator) -> Iterator[slice]:
    """Windows that cover ``n`` rows once, from a random offset, in random order; those at the ends are shorter.

    Gathering random rows of a matrix in memory costs ten times the product itself, a window is a view. The offset
    makes the blocks new in every sweep.
    """
    blocks = partition(n, size, int(torch.randint(min(size, n), (), generator=generator)))
    for place in torch.randperm(len(blocks), generator=generator).tolist():
        yield blocks[place]


def partition(n: int, size: int, offset: int) -> list[slice]:
    """``n`` rows cut at ``offset, offset + size, …``; the first and the last block may be shorter.

    >>> partition(10, 4, 2)
    [slice(0, 2, None), slice(2, 6, None), slice(6, 10, None)]
    """
    cuts = [*range(offset, n, size), n]
    edges = [0, *cuts] if cuts[0] > 0 else cuts
    return [slice(first, last) for first, last in pairwise(edges)]
