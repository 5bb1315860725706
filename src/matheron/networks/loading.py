"""Batches of inputs and targets, from whatever a user trains with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

BATCH = 128
"""Data per batch where only a data set is given."""

LABELS = "labels"
"""Where the targets of a batch that is a mapping stand."""


@dataclass(frozen=True, eq=False)
class Loading:
    """Passes over the data, in an order drawn from a generator, or in one that stays the same without.

    A ``DataLoader`` of an indexed data set with the usual samplers is walked in our own order, all of it, so that the
    same seed gives the same passes; other iterables are taken as they come.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> loading = Loading.of(TensorDataset(torch.arange(4.0)[:, None], torch.zeros(4)), batch_size=2)
    >>> [x.flatten().tolist() for x, y in loading.walk(None)]
    [[0.0, 1.0], [2.0, 3.0]]
    """

    source: Iterable[Any]
    own_order: bool

    @classmethod
    def of(cls, loader: Any, batch_size: int = BATCH) -> Loading:
        """From a loader, a data set, a pair of tensors or any iterable of batches that can be walked again."""
        if isinstance(loader, tuple) and len(loader) == 2 and all(isinstance(part, Tensor) for part in loader):
            loader = torch.utils.data.TensorDataset(*loader)
        if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
            loader = DataLoader(loader, batch_size=batch_size)
        if isinstance(loader, DataLoader):
            return cls(loader, own_order=_usual(loader))
        if isinstance(loader, Iterator) or not isinstance(loader, Iterable):
            raise TypeError(
                f"loader is {type(loader).__name__}, which cannot be walked more than once; "
                "give a DataLoader, a Dataset, a list of batches or (inputs, targets)"
            )
        return cls(loader, own_order=False)

    def walk(self, generator: torch.Generator | None) -> Iterator[tuple[Any, Any]]:
        """One pass: inputs and targets."""
        source: Any = self.source
        if self.own_order:
            source = _reordered(source, generator)
        for batch in source:
            yield parts(batch)


def inputs_of(loader: Iterable[Any]) -> Iterator[Any]:
    """The inputs of every batch, with or without targets beside them."""
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


def _usual(loader: DataLoader) -> bool:
    return (
        not isinstance(loader.dataset, IterableDataset)
        and loader.batch_size is not None
        and type(loader.batch_sampler) is BatchSampler
        and type(loader.sampler) in (RandomSampler, SequentialSampler)
        and len(loader.sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )


def _reordered(loader: DataLoader, generator: torch.Generator | None) -> DataLoader:
    size = len(loader.dataset)  # type: ignore[arg-type]
    order = range(size) if generator is None else torch.randperm(size, generator=generator).tolist()
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=order,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        # Workers draw their seeds from here; without it they would from the global generator.
        generator=torch.Generator().manual_seed(0),
    )
