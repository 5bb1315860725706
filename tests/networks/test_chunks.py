"""Passes of a size that fits: what is planned, what happens when memory runs out, and batches that cannot be split."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from matheron.networks import TangentModel
from matheron.networks.chunks import FAST, FEW, LIVE, Footprint, Plan, out_of_memory, pieces
from tests.networks.architectures import explicit_jacobian, normal


@given(
    memory=st.integers(1, 10**10),
    largest=st.integers(1, 10**8),
    factor=st.integers(1, 100),
    rows=st.integers(1, 512),
    tangents=st.integers(1, 64),
    fast=st.sampled_from([FAST, math.inf]),
)
def test_a_plan_stays_in_memory_or_is_as_small_as_can_be(memory, largest, factor, rows, tangents, fast):
    footprint = Footprint(float(largest * factor), float(largest))
    plan = Plan.within(memory, footprint, rows, tangents, fast)
    assert 1 <= plan.push_rows <= rows
    assert 1 <= plan.pull_rows <= rows
    assert 1 <= plan.tangents <= tangents
    assert 1 <= plan.cotangents <= tangents
    assert plan.pull_rows * footprint.total <= memory or plan.pull_rows == 1
    pushed = plan.push_rows * plan.tangents * footprint.largest
    assert LIVE * pushed <= memory or plan.push_rows * plan.tangents == 1
    assert pushed <= fast or (plan.push_rows == 1 and plan.tangents <= FEW)
    assert plan.halved(20) == Plan(1, 1, 1, 1)


def test_small_problems_go_in_one_pass():
    plan = Plan.within(2**30, Footprint(100.0, 10.0), rows=64, tangents=32, fast=FAST)
    assert plan == Plan(tangents=32, push_rows=64, cotangents=32, pull_rows=64)


@given(length=st.integers(0, 50), size=st.integers(1, 20))
def test_pieces_cover_everything_once(length, size):
    parts = list(pieces(length, size))
    assert [i for piece in parts for i in range(length)[piece]] == list(range(length))
    assert len(parts) == -(-length // size)


def test_the_footprint_counts_what_the_graph_keeps():
    """The input of the first layer, the output of the tanh and that of the last layer, and no parameter."""
    model = nn.Sequential(nn.Linear(1000, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False)).double()
    point = {name: p.detach() for name, p in model.named_parameters()}
    batch = normal(50, 1000)(torch.float64)[:10]

    def g(named):
        return torch.func.functional_call(model, named, (batch,))

    assert Footprint.measure(g, point, 10) == Footprint(8.0 * (1000 + 5 + 2), 8.0 * 1000)


class Greedy(nn.Module):
    """Runs out of memory when more than ``most`` data come at once."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.most = 100

    def forward(self, x):
        if len(x) > self.most:
            raise torch.OutOfMemoryError("tried to allocate 1.00 EiB")
        return torch.tanh(self.head(x))


def test_out_of_memory_halves_the_passes_and_says_so_once(recwarn):
    model, x = Greedy().double().eval(), normal(8, 3)(torch.float64)
    tangent = TangentModel(model)
    W = normal(4, 8)(torch.float64)
    tangents = tangent.jvp(x, W)
    pulled = tangent.vjp(x, tangents)
    model.most = 2
    torch.testing.assert_close(tangent.jvp(x, W), tangents)
    torch.testing.assert_close(tangent.vjp(x, tangents), pulled)
    assert len([w for w in recwarn if "memory ran out" in str(w.message)]) == 1
    model.most = 0
    with pytest.raises(torch.OutOfMemoryError):
        tangent.jvp(x, W)


def test_what_counts_as_out_of_memory():
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"))
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


class Centered(nn.Module):
    """Every output depends on the whole batch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.head(x - x.mean(0)))


class Minute(Centered):
    """The same in units that make outputs tiny."""

    def forward(self, x):
        return 1e-6 * super().forward(x)


class Carried(nn.Module):
    """Every output depends on the data before it, as in a recurrent layer that takes the batch for its time."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.head(x)).cumsum(0)


class Fixed(nn.Module):
    """Takes batches of four and no others."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.head(x.view(4, 3)))


@pytest.mark.parametrize("kind", [Centered, Minute, Carried, Fixed])
@pytest.mark.parametrize("k", [3, 12])
def test_batches_that_cannot_be_split_go_whole(kind, k):
    model, x = kind().double().eval(), normal(4, 3)(torch.float64)
    W = normal(k, 8)(torch.float64)
    outputs, J = explicit_jacobian(model, x)
    tangents = (W @ J.mT).view(k, *outputs.shape)
    close = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-15)
    for tangent in (TangentModel(model), TangentModel(model, memory=1)):
        close(tangent.jvp(x, W), tangents)
        close(tangent.vjp(x, tangents), tangents.flatten(1) @ J)
        close(tangent.jacobian(x), J)


class Watched(nn.Module):
    """Remembers how many data came at once."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.sizes = []

    def forward(self, x):
        self.sizes.append(len(x))
        return torch.tanh(self.head(x))


@pytest.mark.parametrize("what", ["predict", "jacobian", "many tangents", "no tangents"])
def test_outputs_stay_in_memory_too(what):
    model, x = Watched().double().eval(), normal(200, 3)(torch.float64)
    actions = {
        "predict": lambda tangent: tangent.predict(x),
        "jacobian": lambda tangent: tangent.jacobian(x),
        "many tangents": lambda tangent: tangent.value_and_jvp(x, torch.eye(8, dtype=torch.float64))[0],
        "no tangents": lambda tangent: tangent.value_and_jvp(x, torch.zeros(0, 8, dtype=torch.float64))[0],
    }
    tangent = TangentModel(model, memory=20 * LIVE * 3 * 8)  # of inputs of three numbers
    found = actions[what](tangent)
    assert max(model.sizes) <= 20
    torch.testing.assert_close(found, actions[what](TangentModel(model)))
