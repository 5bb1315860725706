"""The prior of smooth filters against its dense covariance."""

import pytest
import torch

from matheron.linear import FilterPrior, Filters
from matheron.linear.filter_prior import Held
from tests.linear.test_filters import PARTS
from tests.linear.twins import DOUBLE, filter_covariance, normal

A, PSI = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE), torch.tensor([0.7, 1.0, 40.0], dtype=DOUBLE)


def build(dtype=DOUBLE):
    return FilterPrior(A, PSI, Filters(PARTS), dtype=dtype), filter_covariance(PARTS, A, PSI)


def test_actions_agree_with_the_dense_covariance(generator):
    p, C = build()
    W = normal(3, 45, generator=generator).mT
    torch.testing.assert_close(p.covariance(W), C @ W)
    torch.testing.assert_close(p.precision(W), torch.linalg.solve(C, W))
    torch.testing.assert_close(p.root(p.root(W)), C @ W)
    torch.testing.assert_close(p.log_determinant(), -torch.logdet(C))
    torch.testing.assert_close(p.group_sums(W).sum(0), W.sum(0))
    assert p.group_sizes.tolist() == [29.0, 4.0, 12.0]
    factors = torch.tensor([2.0, 3.0, 5.0], dtype=DOUBLE)
    spread = factors[p.groups].sqrt()
    torch.testing.assert_close(p.scaled(factors).covariance(W), (C @ (W / spread[:, None])) / spread[:, None])
    assert p.root(W).mT.is_contiguous()


def test_precision_and_covariance_undo_each_other_in_float32(generator):
    """Smooth filters are nearly dependent; the inverse is taken in float64."""
    p = FilterPrior(1e6 * A, 100.0 * torch.ones(3), Filters(PARTS), dtype=torch.float32)
    W = normal(45, 2, generator=generator).float()
    assert float((p.precision(p.covariance(W)) - W).norm() / W.norm()) < 1e-3


def test_draws_have_the_covariance(generator):
    p, C = build()
    W = p.draw(40_000, generator)
    error = ((C.diagonal()[:, None] * C.diagonal() + C.square()) / 40_000).sqrt()
    assert float(((W @ W.T / 40_000 - C).abs() / error).max()) < 6.0


def test_the_penalty_of_held_weights_and_its_slope(generator):
    w = normal(45, generator=generator)
    held = Held(Filters(PARTS), w)
    C = filter_covariance(PARTS, A, PSI)
    torch.testing.assert_close(held.penalty(A, PSI), -0.5 * w @ torch.linalg.solve(C, w))
    logs = torch.cat([A, PSI]).log()[[0, 1, 2, 3, 5]].requires_grad_()

    def penalty(theta):
        return held.penalty(theta[:3].exp(), torch.stack([theta[3], theta[3] * 0, theta[4]]).exp())

    assert torch.autograd.gradcheck(penalty, (logs,))


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_prior_is_refused():
    with pytest.raises(ValueError, match="lengthscales must be positive"):
        FilterPrior(A, 0.0 * PSI, Filters(PARTS))
    with pytest.raises(ValueError, match="precision has shape"):
        FilterPrior(A[:2], PSI, Filters(PARTS))
