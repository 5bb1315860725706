"""Where random numbers begin."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Placed(Protocol):
    """What has a dtype and a device: tensors, operators, data."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its numbers."""
        ...

    @property
    def device(self) -> torch.device:
        """Where they are."""
        ...


def draw_seed(generator: torch.Generator | int | None) -> int:
    """A seed from the caller's generator, the seed itself if that was given, or a fresh one.

    What is drawn from it is made by a generator of its own, so that a seed on record repeats it all.

    >>> draw_seed(torch.Generator().manual_seed(0)) == draw_seed(torch.Generator().manual_seed(0)), draw_seed(7)
    (True, 7)
    """
    if generator is None:
        return int(torch.Generator().seed() % 2**62)
    if isinstance(generator, numbers.Integral):
        return int(generator)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, a seed or None, got {type(generator).__name__}")
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def own_source(generator: torch.Generator | int | None) -> torch.Generator:
    """A generator of its own, of a seed that is drawn from the caller's: how much it gives does not move that one on.

    >>> own_source(7).initial_seed()
    7
    """
    return torch.Generator().manual_seed(draw_seed(generator))


def source_of(generator: torch.Generator | int | None) -> torch.Generator:
    """``generator`` itself on the host; for one elsewhere, a seed or none, a generator of its own.

    >>> g = torch.Generator()
    >>> source_of(g) is g, source_of(7).initial_seed(), source_of(None).initial_seed() == source_of(None).initial_seed()
    (True, 7, False)
    """
    if isinstance(generator, torch.Generator) and generator.device.type == "cpu":
        return generator
    return own_source(generator)


def permutation(n: int, generator: torch.Generator, device: torch.device) -> Int[Tensor, " n"]:
    """``0, …, n − 1`` in random order, drawn where the generator is and used on ``device``."""
    return torch.randperm(n, generator=generator, device=generator.device).to(device)


def normals(shape: Sequence[int], like: Placed, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Standard normal numbers, drawn where the generator is, of the dtype and on the device of ``like``."""
    return torch.randn(shape, dtype=like.dtype, generator=generator, device=generator.device).to(like.device)
