"""Data sets that draw their inputs anew whenever they are asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from matheron import LinearizedLaplace
from matheron.networks import Loading, inference
from matheron.networks.augmentation import held

SOURCES = {
    "torch": lambda: float(torch.rand(())),
    "python": random.random,
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002
}


class Mirrored(Dataset[tuple[Tensor, Tensor]]):
    """Inputs that are turned around every other time."""

    def __init__(self, source: str = "torch", kind: str = "tensor", n: int = 40) -> None:
        generator = torch.Generator().manual_seed(0)
        self.X, self.y = torch.randn(n, 3, generator=generator), torch.randint(2, (n,), generator=generator)
        self.draw, self.kind = SOURCES[source], kind

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: int) -> Any:
        x = self.X[index].flip(0) if self.draw() < 0.5 else self.X[index]
        if self.kind == "mapping":
            return {"x": x.numpy(), "labels": self.y[index]}
        return x, self.y[index]


def inputs(loading: Loading, seed: int | None = None) -> dict[int, list[float]]:
    """By the sum of a row, which a mirror leaves as it is."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    rows = [row for x, _ in loading.walk(generator) for row in (x["x"] if isinstance(x, dict) else x)]
    return {round(1e4 * float(row.double().sum())): row.tolist() for row in rows}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["tensor", "mapping"])
def test_every_pass_sees_the_same_inputs(source: str, kind: str) -> None:
    with pytest.warns(UserWarning, match="held at one draw"):
        loading = Loading.of(DataLoader(Mirrored(source, kind), batch_size=7, shuffle=True))
    assert loading.steady
    assert inputs(loading) == inputs(loading) == inputs(loading, seed=1) == inputs(loading, seed=2)


def test_half_of_them_are_turned() -> None:
    """Each by a draw of its own."""
    data = Mirrored(n=200)
    with pytest.warns(UserWarning, match="held at one draw"):
        found, _ = held(data, range(200))
    turned = sum(not torch.equal(found[i][0], data.X[i]) for i in range(200))
    assert 70 < turned < 130


@pytest.mark.filterwarnings("ignore:the data set draws")
def test_batches_of_indices_are_told_apart() -> None:
    loading = Loading.of(DataLoader(Mirrored(), batch_sampler=[[3, 4], [1], [0, 2]]))
    assert len(inputs(loading)) == 5
    assert inputs(loading) == inputs(loading, seed=1)


@pytest.mark.filterwarnings("ignore:the data set draws")
def test_the_global_generators_are_left_alone() -> None:
    def states() -> tuple[Any, ...]:
        return torch.random.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = states()
    for _ in Loading.of(Mirrored()).walk(None):
        pass
    assert states() == before


def test_a_set_that_stays_the_same_is_taken_as_it_is(recwarn: pytest.WarningsRecorder) -> None:
    X = torch.randn(30, 2)
    X[3, 1] = torch.nan
    data = TensorDataset(X, torch.zeros(30))
    loading = Loading.of(data)
    assert loading.data is data
    assert loading.steady
    assert not recwarn.list


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning", "ignore:the data set draws")
def test_a_fit_repeats_and_agrees_with_one_on_the_inputs_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "KEEP", 0.0)
    data = Mirrored()
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).eval()
    still, _ = held(data, range(len(data)))
    drawn = torch.stack([still[i][0] for i in range(len(data))])

    def deviations(loader: Any) -> Tensor:
        la = LinearizedLaplace(model, "classification")
        la.fit(loader, method="cg", em_steps=1, final_samples=3, generator=torch.Generator().manual_seed(0))
        return la.functional_samples(data.X)

    found = deviations(DataLoader(data, batch_size=128, shuffle=True))
    assert torch.equal(found, deviations(DataLoader(data, batch_size=128, shuffle=True)))
    torch.testing.assert_close(found, deviations((drawn, data.y)), atol=1e-4, rtol=1e-4)


@dataclass
class Pair:
    """What a data set of a user's own may give."""

    x: Tensor
    y: Tensor


class Pairs(Mirrored):
    """The same as objects, which their collation makes a batch of."""

    def __getitem__(self, index: int) -> Pair:
        return Pair(*super().__getitem__(index))


@pytest.mark.filterwarnings("ignore:the data set draws")
def test_objects_are_compared_by_their_parts() -> None:
    def collate(batch: list[Pair]) -> tuple[Tensor, Tensor]:
        return torch.stack([pair.x for pair in batch]), torch.stack([pair.y for pair in batch])

    loading = Loading.of(DataLoader(Pairs(), batch_size=7, collate_fn=collate))
    assert loading.data is not loading.source.dataset
    assert inputs(loading) == inputs(loading, seed=1)


def _shaken(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    X = torch.stack([x for x, _ in batch])
    return X + torch.rand(()), torch.stack([y for _, y in batch])


def test_what_cannot_be_held_is_refused_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "KEEP", 0.0)
    X, y = torch.randn(20, 3), torch.randint(2, (20,))

    class Restless(Dataset[tuple[Tensor, Tensor]]):
        generator = torch.Generator()

        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return X[index] + torch.rand((), generator=self.generator), y[index]

    for loader in (Restless(), DataLoader(TensorDataset(X, y), batch_size=5, collate_fn=_shaken)):
        with pytest.raises(ValueError, match="without augmentation"):
            LinearizedLaplace(nn.Linear(3, 2).eval(), "classification").fit(loader, method="cg", em_steps=1)
