"""Where random numbers come from when they are drawn on the host."""

from __future__ import annotations

import torch

from matheron.solvers.iteration import draw_seed


def source_of(generator: torch.Generator | None) -> torch.Generator:
    """``generator`` itself on the host; from another device, or without one, a generator of a seed drawn from it.

    >>> g = torch.Generator()
    >>> source_of(g) is g, source_of(None).initial_seed() == source_of(None).initial_seed()
    (True, False)
    """
    if generator is not None and generator.device.type == "cpu":
        return generator
    return torch.Generator().manual_seed(draw_seed(generator))
