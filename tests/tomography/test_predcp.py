"""The expected total variation of prior images, its derivatives, and the prior over lengthscales they make."""

import math

import pytest
import torch

from matheron.linear import FilterPrior, Filters, Part
from matheron.operators import Dense
from matheron.tomography import PredCP, sampled_variation
from tests.linear.twins import DOUBLE, filter_covariance, normal, of_data
from tests.tomography.twins import edges

PARTS = [Part(18, (3, 3), 0), Part(3, (), 1), Part(9, (3, 3), 2)]
A, PSI = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE), torch.tensor([0.7, 1.0, 4.0], dtype=DOUBLE)
SHAPE = (4, 5)


@pytest.fixture(scope="module")
def phi():
    return normal(20, 30, generator=of_data(1))


def dense(phi, a, psi, unit=1.0):
    """``κ`` block by block, from the covariance of differences."""
    C, D, found = filter_covariance(PARTS, a, psi), edges(SHAPE), []
    groups = Filters(PARTS).groups
    for block in range(3):
        own = (D @ phi)[:, groups == block]
        variance = (own @ C[groups == block][:, groups == block] @ own.T).diagonal()
        found.append(math.sqrt(2 / math.pi) * float(variance.sqrt().sum()) / unit)
    return torch.tensor(found, dtype=DOUBLE)


def test_the_closed_form_is_that_of_dense_algebra(phi):
    found = PredCP.of(Filters(PARTS), Dense(phi), SHAPE, unit=2.0)
    torch.testing.assert_close(found.expected_variation(A, PSI), dense(phi, A, PSI, unit=2.0))


def test_draws_agree_within_their_standard_error(phi, generator):
    prior = FilterPrior(A, PSI, Filters(PARTS), dtype=DOUBLE)
    drawn = sampled_variation(prior, Dense(phi), SHAPE, 4000, generator)
    exact = PredCP.of(Filters(PARTS), Dense(phi), SHAPE).expected_variation(A, PSI)
    error = drawn.std(0) / 4000**0.5
    assert bool(((drawn.mean(0) - exact).abs() < 4.0 * error).all())


def test_the_slope_is_that_of_finite_differences(phi):
    found, h = PredCP.of(Filters(PARTS), Dense(phi), SHAPE), 1e-5
    numeric = (dense(phi, A, PSI + h) - dense(phi, A, PSI - h)) / (2 * h)
    torch.testing.assert_close(found.slope(A, PSI), numeric, rtol=1e-6, atol=1e-8)


def test_the_density_and_its_gradient(phi):
    """``Σ_k −κ_k + log|∂κ_k/∂ψ_k|`` over blocks with filters; its gradient has the second derivative of ``κ``."""
    found, h = PredCP.of(Filters(PARTS), Dense(phi), SHAPE), 1e-4
    kappa, slope = dense(phi, A, PSI), (dense(phi, A, PSI + h) - dense(phi, A, PSI - h)) / (2 * h)
    expected = sum(float(slope[k].abs().log() - kappa[k]) for k in (0, 2))
    assert float(found.log_prob(A, PSI)) == pytest.approx(expected, rel=1e-6)
    logs = torch.stack([A, PSI]).log().requires_grad_()
    assert torch.autograd.gradcheck(lambda theta: found.log_prob(*theta.exp()), (logs,))


def test_some_neighbors_stand_for_all(phi):
    everything = PredCP.of(Filters(PARTS), Dense(phi), SHAPE).expected_variation(A, PSI)
    runs = torch.stack(
        [
            PredCP.of(
                Filters(PARTS), Dense(phi), SHAPE, edges=10, generator=torch.Generator().manual_seed(seed)
            ).expected_variation(A, PSI)
            for seed in range(200)
        ]
    )
    assert bool(((runs.mean(0) - everything).abs() < 4.0 * runs.std(0) / 200**0.5).all())


def test_blocks_that_move_nothing_have_no_say(phi):
    still = phi.clone()
    still[:, 21:] = 0.0
    whole, part = (PredCP.of(Filters(PARTS), Dense(p), SHAPE) for p in (phi, still))
    assert bool(part.log_prob(A, PSI).isfinite())
    assert float(part.log_prob(A, PSI)) > float(whole.log_prob(A, PSI))
    logs = torch.stack([A, PSI]).log().requires_grad_()
    slope = torch.autograd.grad(part.log_prob(*logs.exp()), logs)[0]
    assert bool(slope.isfinite().all())


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused(phi):
    with pytest.raises(ValueError, match="single pixel"):
        PredCP.of(Filters(PARTS), Dense(phi[:1]), (1, 1))
    with pytest.raises(ValueError, match="unit must be positive"):
        PredCP.of(Filters(PARTS), Dense(phi), SHAPE, unit=0.0)
