"""How many data and how many tangents go through a network in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from matheron.networks.products import Function, Named, Pullback

FAST = 32 * 2**20
"""Bytes in the largest tensor of a pass on a processor: the C library asks the system for cleared pages beyond that,
every time, and an elementwise operation takes seven times as long."""

FEW = 4
"""Tangents that go together even where data have to be split for it: the network itself runs once for all of them."""

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
                # A part of a batch shares the storage of the whole, and an expanded tensor has more entries than bytes.
                size = min(storage.nbytes(), tensor.numel() * tensor.itemsize)
                kept[storage.data_ptr()] = max(size, kept.get(storage.data_ptr(), 0))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            note(Pullback(g, point).outputs)
        return cls(sum(kept.values()) / rows, max(kept.values()) / rows)


@dataclass(frozen=True)
class Plan:
    """Tangents, and data beside them, in a pass that pushes; cotangents and data in one that pulls."""

    tangents: int
    push_rows: int
    cotangents: int
    pull_rows: int

    @classmethod
    def within(cls, memory: float, footprint: Footprint, rows: int, tangents: int, fast: float = math.inf) -> Plan:
        """The largest passes that stay in ``memory`` bytes, and are not slower for being large.

        ``fast`` bounds the bytes of the largest tensor; it splits data before it splits the first few tangents.
        """
        largest, pushed = footprint.largest, min(memory / LIVE, fast)
        push_rows = bounded(pushed / (min(FEW, tangents) * largest), rows)
        few = bounded(memory / (LIVE * push_rows * largest), min(FEW, tangents))
        pull_rows = bounded(min(memory / footprint.total, fast / largest), rows)
        return cls(
            tangents=max(few, bounded(pushed / (push_rows * largest), tangents)),
            push_rows=push_rows,
            cotangents=bounded(min(TINY, memory) / (pull_rows * largest), tangents),
            pull_rows=pull_rows,
        )

    def halved(self, times: int) -> Plan:
        """Half as many tangents and half as many data to pull ``times`` times, then half as many data to push."""
        plan = self
        for _ in range(times):
            plan = Plan(
                tangents=max(1, plan.tangents // 2),
                push_rows=plan.push_rows if plan.tangents > 1 else max(1, plan.push_rows // 2),
                cotangents=max(1, plan.cotangents // 2),
                pull_rows=max(1, plan.pull_rows // 2),
            )
        return plan

    def whole(self, rows: int) -> Plan:
        """The same with all data in every pass."""
        return replace(self, push_rows=rows, pull_rows=rows)


def bounded(number: float, most: int) -> int:
    """A whole number from one to ``most``."""
    return max(1, min(most, int(number)))


def pieces(length: int, size: int) -> Iterator[slice]:
    """``0 … length`` in as few slices of at most ``size`` as can be, of one length but for the last."""
    size = math.ceil(length / math.ceil(length / size)) if length else size
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and ("not enough memory" in str(error) or "can't allocate" in str(error))
