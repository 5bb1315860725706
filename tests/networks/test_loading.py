"""Passes over whatever a user trains with, in an order of our own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from matheron.networks.loading import Loading, _reordered

DATA = TensorDataset(torch.arange(20.0)[:, None], torch.arange(20))


def walked(loading: Loading, seed: int | None = None) -> list[list[int]]:
    """The targets of every batch."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return [y.tolist() for _, y in loading.walk(generator)]


def flat(batches: list[list[int]]) -> list[int]:
    return [target for batch in batches for target in batch]


def test_a_random_subset_is_walked_in_its_own_order() -> None:
    chosen = [3, 17, 4, 11, 0]
    loading = Loading.of(DataLoader(DATA, batch_size=2, sampler=SubsetRandomSampler(chosen)))
    assert walked(loading) == walked(loading) == [[3, 17], [4, 11], [0]]
    assert walked(loading, seed=0) == walked(loading, seed=0) != walked(loading, seed=1)
    assert sorted(flat(walked(loading, seed=0))) == sorted(chosen)


def test_a_subset_in_a_batch_sampler_too() -> None:
    loading = Loading.of(DataLoader(DATA, batch_sampler=BatchSampler(SubsetRandomSampler([3, 17, 4]), 2, False)))
    assert walked(loading) == [[3, 17], [4]]


def test_other_samplers_are_asked_once() -> None:
    sampler = WeightedRandomSampler([1.0] * 10 + [0.0] * 10, 12, generator=torch.Generator().manual_seed(0))
    loading = Loading.of(DataLoader(DATA, batch_size=5, sampler=sampler))
    first = walked(loading)
    assert walked(loading) == first
    assert [len(batch) for batch in first] == [5, 5, 2]
    assert max(flat(first)) < 10
    assert sorted(flat(walked(loading, seed=0))) == sorted(flat(first))


def test_batches_that_belong_together_stay_together() -> None:
    batches = [[0, 1, 2], [7, 5], [9]]
    loading = Loading.of(DataLoader(DATA, batch_sampler=batches))
    assert walked(loading) == batches
    assert sorted(walked(loading, seed=3)) == sorted(batches)


def test_a_data_set_of_whole_batches() -> None:
    whole = [(torch.ones(2, 1), torch.tensor([0, 1])), (torch.ones(1, 1), torch.tensor([2]))]
    assert walked(Loading.of(DataLoader(whole, batch_size=None, shuffle=True))) == [[0, 1], [2]]


def _nothing(worker: int) -> None:
    pass


def test_workers_are_those_of_the_loader() -> None:
    loader = DataLoader(
        DATA, batch_size=4, shuffle=True, num_workers=1, worker_init_fn=_nothing, timeout=7.0, prefetch_factor=3,
        multiprocessing_context="spawn",
    )  # fmt: skip
    ours = _reordered(loader, DATA, range(20), None)
    assert ours.worker_init_fn is _nothing
    assert (ours.timeout, ours.prefetch_factor, ours.num_workers, ours.batch_size) == (7.0, 3, 1, 4)
    assert ours.multiprocessing_context is loader.multiprocessing_context


@pytest.mark.parametrize("kind", ["tensor", "mapping", "tuple"])
def test_inputs_and_targets_are_a_data_set(kind: str) -> None:
    ids, mask = torch.arange(10).reshape(5, 2), torch.ones(5, 2)
    inputs = {"tensor": ids, "mapping": {"ids": ids, "mask": mask}, "tuple": (ids, mask)}[kind]
    batches = list(Loading.of((inputs, torch.arange(5)), 3).walk(None))
    assert [y.tolist() for _, y in batches] == [[0, 1, 2], [3, 4]]

    def first(x: object) -> Tensor:
        return x["ids"] if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x  # type: ignore[return-value]

    torch.testing.assert_close(torch.cat([first(x) for x, _ in batches]), ids)


def test_a_single_batch_is_a_data_set_too() -> None:
    batch = next(iter(DataLoader(DATA, batch_size=20)))
    assert isinstance(batch, list)
    assert [len(y) for _, y in Loading.of(batch, 8).walk(None)] == [8, 8, 4]
    assert [len(y) for _, y in Loading.of([batch, batch], 8).walk(None)] == [20, 20]


def test_as_many_targets_as_inputs() -> None:
    with pytest.raises(ValueError, match="there are 5 inputs"):
        Loading.of((torch.ones(5, 2), torch.zeros(4)))
