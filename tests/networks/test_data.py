"""Passes over the data of a network: where inputs go, what is kept, and what a checkpoint knows them by."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from matheron.linear import Descent, PrimalSolve
from matheron.networks import (
    Bernoulli,
    Categorical,
    Gaussian,
    LinearizedLaplace,
    Loading,
    NetworkData,
    TangentModel,
    inference,
)
from matheron.networks import data as data_module
from tests.networks.test_laplace import agree, covariance, problem


def observed(model: nn.Module, loader: Any, **options: Any) -> NetworkData:
    return NetworkData(TangentModel(model), Loading.of(loader, 7), Categorical(), **options)


class Shuffled:
    """Batches in another order at every pass."""

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self.X, self.y, self.passes = X, y, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(self.passes))
        for part in order.split(7):
            yield self.X[part], self.y[part]


def test_every_pass_brings_the_inputs_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = problem("classification")
    moves: list[torch.device] = []
    before = data_module.moved

    def moved(x: Any, device: torch.device) -> Any:
        moves.append(device)
        return before(x, device)

    monkeypatch.setattr(data_module, "moved", moved)
    data = observed(model, (X, y))
    assert len(moves) == data.num_batches == 4
    list(data.batches())
    assert len(moves) == 8
    assert set(moves) == {data.device}


def test_inputs_are_let_go_while_the_jacobian_is_kept() -> None:
    model, X, y = problem("classification", n=40)
    alive: list[weakref.ref[Tensor]] = []
    most = [0]

    class Watched:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            for part, labels in zip(X.split(4), y.split(4), strict=True):
                batch = part.clone()
                alive.append(weakref.ref(batch))
                most[0] = max(most[0], sum(there() is not None for there in alive))
                yield batch, labels

    kept = observed(model, Watched()).kept()
    assert most[0] <= 3
    torch.testing.assert_close(kept.features.matrix, TangentModel(model).jacobian(X))


def test_a_solve_that_does_not_fit_is_refused_with_all_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = problem("classification", n=6)  # 18 outputs, 27 weights
    data = observed(model, (X, y))
    size = 8 * 18 * 27
    monkeypatch.setattr(inference, "free_memory", lambda device: 2 * (2 * size + 24 * 18**2) - 2)
    with pytest.raises(MemoryError, match="18 outputs by 27 weights"):
        inference.choose("exact", data, None)
    monkeypatch.setattr(inference, "free_memory", lambda device: 2 * (2 * size + 24 * 18**2))
    assert inference.choose("exact", data, None).keep


def test_conjugate_gradients_have_their_sketch_also_where_outputs_are_fewer() -> None:
    for n in (6, 40):  # 18 and 120 outputs, 27 weights
        model, X, y = problem("classification", n=n)
        assert isinstance(inference.choose("cg", observed(model, (X, y)), None).step, PrimalSolve)


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("n", [6, 40])
def test_a_random_subset_is_solved_by_place(kind: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer outputs than weights and with more, neither with the Jacobian in memory."""
    monkeypatch.setattr(inference, "KEEP", 0.0)
    model, X, y = problem(kind, n=2 * n)
    loader = DataLoader(TensorDataset(X, y), batch_size=5, sampler=SubsetRandomSampler(range(n)))
    likelihood = Gaussian(0.1, learn=False) if kind == "regression" else kind
    la = LinearizedLaplace(model, likelihood, "isotropic", prior_precision=2.0)
    la.fit(loader, method="cg", em_steps=0, final_samples=400, generator=torch.Generator().manual_seed(0))
    assert la.report is not None
    assert la.report.converged
    agree(la.functional_samples(X[:n]) - model(X[:n]).detach(), covariance(model, X[:n], kind, la))


def test_an_order_that_changes_is_refused_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "KEEP", 0.0)
    model, X, y = problem("classification", n=40)
    la = LinearizedLaplace(model, "classification")
    with pytest.raises(ValueError, match="in another order, in every pass"):
        la.fit(Shuffled(X, y), method="cg", em_steps=1, final_samples=2)
    la.fit(
        Shuffled(X, y), method="sgd", em_steps=0, final_samples=2, descent=Descent(epochs=20.0, tolerance=0.9),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert la.functional_samples(X).shape == (2, 40, 3)


@pytest.mark.parametrize("keep", [False, True])
def test_a_checkpoint_knows_network_targets_and_likelihood(keep: bool) -> None:
    model, X, y = problem("binary")

    def identity(likelihood: Any, y: Tensor, **options: Any) -> dict[str, Any]:
        data = NetworkData(TangentModel(model), Loading.of((X, y), 7), likelihood, **options)
        return (data.kept() if keep else data).identity()

    same = identity(Bernoulli(), y)
    assert same == identity(Bernoulli(), y)
    assert same["data"] != identity(Bernoulli(), 1 - y)["data"]
    assert same["offset"] != identity(Bernoulli(), y, affine=False)["offset"]
    assert same["curvature"] != identity(Bernoulli(), y, follow=True)["curvature"]
    assert same["likelihood"] != identity(Gaussian(), y.double())["likelihood"]
    assert identity(Gaussian(0.1), y.double()) != identity(Gaussian(0.2), y.double())
    with torch.no_grad():
        model[0].weight.add_(0.1)
    assert same["network"] != identity(Bernoulli(), y)["network"]


def test_the_search_for_a_mode_sets_out_from_the_networks_weights() -> None:
    model, X, y = problem("classification")
    data = observed(model, (X, y), follow=True)
    weights = data.tangent.weights
    kept = data.kept()
    for found in (data, kept, data.following(weights), kept.following(weights), data.kept(torch.float32)):
        assert found.guess is not None
        torch.testing.assert_close(found.guess, weights.to(found.dtype))
