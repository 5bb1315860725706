"""Data sets whose inputs are drawn anew whenever they are asked for, held at one draw each."""

from __future__ import annotations

import random
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

TRIED = 16
"""Data that are asked for twice: a mirror image every other time is missed once in 65,536."""


class Held(Dataset[Any]):
    """A data set in which a datum draws the same random numbers in every pass.

    A tangent model is fitted in many passes, which must agree. Numbers come from the global generators of Python, numpy
    and PyTorch, which are left as they were found.

    >>> import torch
    >>> class Noisy(Dataset):
    ...     def __getitem__(self, index):
    ...         return index + torch.rand(())
    >>> held = Held(Noisy())
    >>> torch.equal(held[3], held[3]), torch.equal(held[3] - 3, held[4] - 4)
    (True, False)
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        # An index may be a key, or the indices of a batch.
        with seeded(zlib.crc32(str(index).encode())):
            return self.data[index]


def held(data: Any, indices: Sequence[Any]) -> tuple[Any, bool]:
    """``data`` itself or, where some of its inputs change, held; and whether that made them the same every time."""
    if repeats(data.__getitem__, indices):
        return data, True
    still = Held(data)
    if not repeats(still.__getitem__, indices):
        return data, False
    warnings.warn(
        "the data set draws its inputs anew whenever they are asked for (random augmentation?), and a tangent model is "
        "fitted in many passes: each datum is held at one draw; give the data as they are to fit it to these",
        stacklevel=4,
    )
    return still, True


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the global generators of the host start from ``seed``; afterwards they are as they were."""
    # The old interface of numpy is the one that augmentation goes by when it has no generator of its own.
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)  # noqa: NPY002


def repeats(ask: Callable[[Any], Any], indices: Sequence[Any]) -> bool:
    """Whether some data are the same when asked for twice, on one way through them and on another."""
    places = sorted({round(i * (len(indices) - 1) / (TRIED - 1)) for i in range(TRIED)}) if len(indices) else []
    with seeded(0):
        first = [ask(indices[place]) for place in places]
        second = [ask(indices[place]) for place in reversed(places)][::-1]
    return all(_same(a, b) for a, b in zip(first, second, strict=True))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return first.shape == second.shape and bool(torch.isclose(first, second, 0.0, 0.0, equal_nan=True).all())
    if isinstance(first, np.ndarray):
        return _same(torch.from_numpy(first), torch.from_numpy(second)) if first.dtype.kind in "fiub" else True
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(_same, first, second))
    if is_dataclass(first):
        return all(_same(getattr(first, part.name), getattr(second, part.name)) for part in fields(first))
    # Pictures, texts, numbers; what cannot be compared is taken at its word.
    answer = first == second
    return answer if isinstance(answer, bool) and type(first).__eq__ is not object.__eq__ else True
