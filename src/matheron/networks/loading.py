"""Batches of inputs and targets, from whatever a user trains with."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from matheron.networks.augmentation import held, repeats
from matheron.networks.inputs import batch_size as size_of
from matheron.networks.inputs import rows

BATCH = 128
"""Data per batch where only a data set is given."""

LABELS = "labels"
"""Where the targets of a batch that is a mapping stand."""

SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that give another order in every pass."""


class Rows(Dataset[tuple[Any, Tensor]]):
    """Inputs, a tensor or a mapping, list or tuple of tensors, with their targets: a datum is a row of each.

    >>> import torch
    >>> data = Rows({"ids": torch.arange(6).reshape(3, 2)}, torch.zeros(3))
    >>> len(data), data.__getitems__([2, 0])[0]["ids"].tolist()
    (3, [[4, 5], [0, 1]])
    """

    def __init__(self, inputs: Any, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets
        if not isinstance(targets, Tensor):
            raise TypeError(f"the targets are {type(targets).__name__}; convert them with torch.as_tensor")
        if targets.ndim == 0 or len(targets) != len(self):
            raise ValueError(
                f"the targets have shape {tuple(targets.shape)} but there are {len(self)} inputs; give one target each"
            )

    def __len__(self) -> int:
        return size_of(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return self.__getitems__([index])

    def __getitems__(self, index: list[int]) -> tuple[Any, Tensor]:
        """All data of a batch at once."""
        return rows(self.inputs, torch.tensor(index)), self.targets[torch.tensor(index)]


@dataclass(frozen=True, eq=False)
class Loading:
    """Passes over the data, in an order drawn from a generator, or in one that stays the same without.

    A ``DataLoader`` of an indexed data set is walked in our own order, all of it, so that the same seed gives the same
    passes: its sampler is asked once which data there are. A batch sampler keeps its batches, in another order. Inputs
    that are drawn at random are held at one draw. Other iterables are taken as they come.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> loading = Loading.of(TensorDataset(torch.arange(4.0)[:, None], torch.zeros(4)), batch_size=2)
    >>> [x.flatten().tolist() for x, y in loading.walk(None)]
    [[0.0, 1.0], [2.0, 3.0]]
    """

    source: Iterable[Any]
    order: Sequence[Any] | None
    """Indices of the data, or of those of each batch; none where they come as they come."""
    data: Any = None
    """What the indices are of, alike in every pass."""
    steady: bool = False
    """Whether data are known to be the same, and in the same order, in every pass without a generator."""

    @classmethod
    def of(cls, loader: Any, batch_size: int = BATCH) -> Loading:
        """From a loader, a data set, ``(inputs, targets)`` or any iterable of batches that can be walked again."""
        if _is_pair(loader):
            loader = DataLoader(Rows(*loader), batch_size=batch_size, collate_fn=_as_it_is)
        if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
            loader = DataLoader(loader, batch_size=batch_size)
        if isinstance(loader, DataLoader):
            order = _order(loader)
            if order is None:
                return cls(loader, None)
            indices = [i for batch in order for i in batch] if _by_batches(loader) else order
            data, steady = held(loader.dataset, indices)
            single = loader.batch_sampler is None
            # What makes a batch of them may draw numbers too.
            alike = repeats(lambda i: loader.collate_fn(data[i] if single else [data[i]]), indices[:4])
            return cls(loader, order, data, steady and alike)
        if isinstance(loader, Iterator) or not isinstance(loader, Iterable):
            raise TypeError(
                f"loader is {type(loader).__name__}, which cannot be walked more than once; "
                "give a DataLoader, a Dataset, a list of batches or (inputs, targets)"
            )
        return cls(loader, None)

    def walk(self, generator: torch.Generator | None) -> Iterator[tuple[Any, Any]]:
        """One pass: inputs and targets."""
        source: Any = self.source
        if self.order is not None:
            source = _reordered(source, self.data, self.order, generator)
        for batch in source:
            yield parts(batch)


def inputs_of(loader: Iterable[Any]) -> Iterator[Any]:
    """The inputs of every batch, with or without targets beside them."""
    if isinstance(loader, DataLoader) and isinstance(loader.sampler, SHUFFLING):
        warnings.warn(
            "x is a DataLoader that shuffles: predictions are in an order of its own, not that of its data set or of "
            "targets beside it; give one with shuffle=False",
            stacklevel=4,
        )
    for batch in loader:
        if isinstance(batch, Mapping):
            yield {key: value for key, value in batch.items() if key != LABELS}
        else:
            # A TensorDataset of inputs alone gives lists of one.
            yield batch[0] if isinstance(batch, (tuple, list)) and len(batch) <= 2 else batch


def parts(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch: a pair, or a mapping with ``"labels"``."""
    if isinstance(batch, Mapping):
        if LABELS not in batch:
            raise ValueError(
                f"a batch has the keys {list(batch)} but no {LABELS!r}; name the targets so, or give pairs"
            )
        return {key: value for key, value in batch.items() if key != LABELS}, batch[LABELS]
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise ValueError(
        f"a batch is {type(batch).__name__}, not (inputs, targets) nor a mapping with {LABELS!r}; wrap the loader so"
    )


def _is_pair(loader: Any) -> bool:
    """Whether these are all inputs and all targets, rather than two batches, which have parts of their own."""
    if not isinstance(loader, (tuple, list)) or len(loader) != 2:
        return False
    return isinstance(loader[0], Tensor) or not isinstance(loader[1], (tuple, list, Mapping))


def _as_it_is(batch: Any) -> Any:
    return batch


def _by_batches(loader: DataLoader) -> bool:
    """Whether a sampler of the user's own says which data belong together."""
    return loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler


def _order(loader: DataLoader) -> Sequence[Any] | None:
    batches: Any = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset):
        return None
    if _by_batches(loader):
        return [list(batch) for batch in batches]
    sampler = loader.sampler if batches is None else batches.sampler
    if type(sampler) is SubsetRandomSampler:
        return list(sampler.indices)
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return range(len(sampler))
    return range(len(sampler)) if type(sampler) is SequentialSampler else list(sampler)


def _reordered(loader: DataLoader, data: Any, order: Sequence[Any], generator: torch.Generator | None) -> DataLoader:
    if generator is not None:
        order = [order[i] for i in torch.randperm(len(order), generator=generator).tolist()]
    batches = loader.batch_sampler
    if batches is None:
        walked: dict[str, Any] = {"batch_size": None, "sampler": order}
    elif type(batches) is BatchSampler:
        walked = {"batch_size": batches.batch_size, "sampler": order}
    else:
        walked = {"batch_sampler": order}
    # Workers that persist would do so for one pass.
    return DataLoader(
        data,
        **walked,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        # Workers draw their seeds from here; without it they would from the global generator.
        generator=torch.Generator().manual_seed(0),
    )
