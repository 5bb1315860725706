"""How many data and how many tangents go through a network in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from matheron.networks.products import Function, Named, Pullback

FAST = 32 * 2**20
"""Bytes in the largest tensor of a pass that pushes many tangents: beyond, the system clears fresh pages each time."""

FEW = 4
"""Tangents that go together even where they exceed that: the network itself runs once for all of them."""

TINY = 4 * 2**20
"""Bytes in the largest tensor up to which many cotangents in one backward pass beat one pass for each."""

LIVE = 16
"""Tensors of the largest size that a forward-mode pass holds at once, for each tangent; measured on a ResNet."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a pass keeps for each datum: in all, and in the largest single tensor."""

    total: float
    largest: float

    @classmethod
    def measure(cls, g: Function, point: Named, rows: int) -> Footprint:
        """From the tensors that the graph of one pass over ``rows`` data holds, parameters left out."""
        shared = {value.untyped_storage().data_ptr() for value in point.values()}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in shared:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            outputs = Pullback(g, point).outputs
        kept[outputs.untyped_storage().data_ptr()] = outputs.untyped_storage().nbytes()
        return cls(sum(kept.values()) / rows, max(kept.values()) / rows)


@dataclass(frozen=True)
class Plan:
    """Data in a pass, tangents pushed together, cotangents pulled together."""

    rows: int
    tangents: int
    cotangents: int

    @classmethod
    def within(cls, memory: float, footprint: Footprint, rows: int, tangents: int) -> Plan:
        """The largest passes that stay in ``memory`` bytes, and are not slower for being large."""
        rows = bounded(memory / max(footprint.total, LIVE * footprint.largest), rows)
        size = rows * footprint.largest
        fitting = bounded(memory / (LIVE * size), tangents)
        fast = max(FEW, int(FAST / size))
        return cls(rows, min(fitting, fast), bounded(min(TINY, memory) / size, tangents))

    def halved(self, times: int) -> Plan:
        """Half as many tangents ``times`` times, then half as many data."""
        rows, tangents = self.rows, self.tangents
        for _ in range(times):
            tangents, rows = (tangents // 2, rows) if tangents > 1 else (1, max(1, rows // 2))
        return Plan(rows, tangents, min(self.cotangents, tangents))


def bounded(number: float, most: int) -> int:
    """A whole number from one to ``most``."""
    return max(1, min(most, int(number)))


def pieces(length: int, size: int) -> Iterator[slice]:
    """``0 … length`` in slices of ``size``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and ("not enough memory" in str(error) or "can't allocate" in str(error))
