"""Batches: every datum once, whole, and losses against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.linear import BernoulliCurvature, GaussianCurvature, StoredData
from matheron.operators import Dense
from tests.linear.twins import DOUBLE, gaussian, logistic, softmax


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 9), c=st.integers(1, 3), size=st.integers(1, 10), shuffled=st.booleans())
def test_a_pass_holds_every_datum_once_and_whole(n, c, size, shuffled):
    Phi = torch.arange(n * c, dtype=DOUBLE)[:, None]
    data = StoredData(Dense(Phi), GaussianCurvature(Phi[:, 0] + 1.0, outputs=c), Phi[:, 0], size)
    batches = list(data.batches(torch.Generator().manual_seed(0) if shuffled else None))
    assert len(batches) == data.num_batches
    for batch in batches:
        rows = batch.features.dense()[:, 0]
        torch.testing.assert_close(rows.reshape(-1, c)[:, 0], c * batch.index.to(DOUBLE))
        torch.testing.assert_close(batch.curvature.diagonal(), rows + 1.0)
        torch.testing.assert_close(batch.targets, rows)
    seen = torch.cat([batch.index for batch in batches])
    assert torch.equal(seen.sort().values, torch.arange(n))
    assert shuffled or torch.equal(seen, torch.arange(n))


def test_orders_follow_the_generator():
    data = gaussian(50, batch_size=10)[0]
    orders = [
        torch.cat([batch.index for batch in data.batches(torch.Generator().manual_seed(seed))]) for seed in (0, 0, 1)
    ]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


@pytest.mark.parametrize("make", [gaussian, logistic, softmax])
def test_the_gradient_is_that_of_the_loss(make, generator):
    batch = next(make()[0].batches())
    F = torch.randn(batch.rows, 2, dtype=DOUBLE, generator=generator)
    slope = torch.func.grad(lambda F: batch.loss(F).sum())(F)
    torch.testing.assert_close(batch.loss_gradient(F), slope)
    hessian = torch.func.hessian(lambda f: batch.loss(f[:, None]).sum())(F[:, 0])
    torch.testing.assert_close(batch.loss_curvature(F[:, 0]).dense(), hessian)


def test_noise_precision():
    data = gaussian(6)[0]
    assert data.noise_precision == 2.0
    again = data.with_noise_precision(5.0)
    assert again.noise_precision == 5.0
    assert torch.equal(again.targets, data.targets)
    uneven = StoredData(data.features, GaussianCurvature(torch.arange(6, dtype=DOUBLE)))
    with pytest.raises(ValueError, match="no single noise precision"):
        _ = uneven.noise_precision


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused():
    Phi = Dense(torch.ones(4, 2))
    with pytest.raises(ValueError, match="curvature has 3 rows"):
        StoredData(Phi, GaussianCurvature(1.0, size=3))
    with pytest.raises(ValueError, match="targets has shape"):
        StoredData(Phi, GaussianCurvature(1.0, size=4), torch.ones(3))
    with pytest.raises(TypeError, match="convert one"):
        StoredData(Phi, BernoulliCurvature(torch.ones(4, dtype=DOUBLE)))
    with pytest.raises(TypeError, match="Operator"):
        StoredData(torch.ones(4, 2), GaussianCurvature(1.0, size=4))
    with pytest.raises(ValueError, match="no targets"):
        next(StoredData(Phi, GaussianCurvature(1.0, size=4)).batches()).loss(torch.ones(4, 1))
