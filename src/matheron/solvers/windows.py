"""Contiguous windows of rows that are in random order: random blocks without gathering."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def windows(n: int, size: int, generator: torch.Generator) -> Iterator[slice]:
    """Windows that cover ``n`` rows once, from a random offset, in random order; those at the ends are shorter.

    Gathering random rows of a matrix in memory costs ten times the product itself, a window is a view. The offset
    makes the blocks new in every sweep.
    """
    first = int(torch.randint(min(size, n), (), generator=generator))
    edges = [0, *range(first, n, size), n] if first else [*range(0, n, size), n]
    order = torch.randperm(len(edges) - 1, generator=generator).tolist()
    for place in order:
        yield slice(edges[place], edges[place + 1])
