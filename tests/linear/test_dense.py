"""Samples and modes through ``H``, against closed forms and plain Newton."""

from dataclasses import replace

import pytest
import torch

from matheron.linear import (
    BernoulliCurvature,
    DenseSolve,
    DiagonalPrior,
    GaussianCurvature,
    StoredData,
    draw_regularizers,
    solve_dense,
)
from matheron.linear.dense import curvature_matrix
from matheron.linear.exact import Primal
from matheron.operators import Dense
from tests.linear.twins import DOUBLE, gaussian, logistic, newton, prior, softmax


def test_the_mode_is_the_posterior_mean(generator):
    data, Phi, Y = gaussian(batch_size=7)
    found = solve_dense(data, prior(1.5, 8), 2, generator=generator)
    torch.testing.assert_close(found.mode, Primal(Phi, 1.5, 2.0).weights(Y).mean)
    assert found.converged
    assert float(found.residual.max()) < 1e-10


def test_samples_solve_their_system(generator):
    data, Phi, _ = gaussian()
    drawn = draw_regularizers(data, 3, generator)
    found = solve_dense(data, prior(1.5, 8), drawn, mode=False)
    H = Primal(Phi, 1.5, 2.0).hessian
    torch.testing.assert_close(found.samples, torch.linalg.solve(H, drawn.pull.mT + 1.5**0.5 * drawn.unit.mT).mT)


@pytest.mark.parametrize("singular", [False, True])
def test_samples_have_the_law_of_the_posterior(singular, generator):
    data, Phi = (softmax(10, 3, 4) if singular else gaussian(20, 4))[:2]
    samples = solve_dense(data, prior(0.5, 4), 20_000, mode=False, generator=generator).samples
    covariance = Primal(Phi, 0.5, data.curvature.dense()).covariance
    spread = ((covariance.square() + covariance.diagonal()[:, None] * covariance.diagonal()) / 20_000).sqrt()
    assert bool(((samples.mT @ samples / 20_000 - covariance).abs() < 4.5 * spread).all())


@pytest.mark.parametrize("batch_size", [3, 7, 20])
def test_the_curvature_is_accumulated_over_batches(batch_size):
    data, Phi, _, _ = softmax(20, 3, 6, batch_size=batch_size)
    torch.testing.assert_close(curvature_matrix(data), Phi.mT @ data.curvature.dense() @ Phi)


def test_a_prior_below_rounding_is_made_up_for_and_said(generator):
    """Three weights of one feature under next to no noise: ``H`` has no digit left of the prior."""
    Phi = torch.linspace(1.0, 2.0, 5, dtype=DOUBLE)[:, None] * torch.tensor([1.0, 0.1, 0.3], dtype=DOUBLE)
    data = StoredData(Dense(Phi), GaussianCurvature(1e20, 5, dtype=DOUBLE), Phi[:, 0])
    found = solve_dense(data, prior(1e-3, 3), 3, generator=generator)
    assert any("added" in event for event in found.events)
    torch.testing.assert_close(Phi @ found.mode, Phi[:, 0], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("a", [0.01, 1.0])
def test_the_mode_of_a_softmax(a, generator):
    data, Phi, labels, _ = softmax(batch_size=9)

    def objective(w):
        logits = (Phi @ w).reshape(len(labels), -1)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum") + 0.5 * a * w @ w

    expected = newton(objective, torch.zeros(6, dtype=DOUBLE))
    found = solve_dense(data, prior(a, 6), 1, generator=generator)
    torch.testing.assert_close(found.mode, expected, rtol=1e-5, atol=1e-7)
    assert found.measured.loss == pytest.approx(float(objective(expected) - 0.5 * a * expected @ expected), rel=1e-8)


def test_the_mode_of_a_logistic_likelihood(generator):
    data, Phi, Y = logistic()
    expected = newton(
        lambda w: torch.nn.functional.softplus(-Y * (Phi @ w)).sum() + 0.05 * w @ w, torch.zeros(6, dtype=DOUBLE)
    )
    torch.testing.assert_close(
        solve_dense(data, prior(0.1, 6), 1, generator=generator).mode, expected, rtol=1e-5, atol=0
    )


def test_steps_that_overshoot_are_halved(generator):
    """From far out, where Newton's own steps diverge."""
    data = logistic()[0]
    drawn = draw_regularizers(data, 1, generator, mode=True)
    exact = solve_dense(data, prior(0.1, 6), drawn)
    far = solve_dense(data, prior(0.1, 6), drawn, warm=replace(exact, mode=5.0 * torch.ones_like(exact.mode)))
    torch.testing.assert_close(far.mode, exact.mode, rtol=1e-5, atol=1e-7)


def test_running_out_of_steps_is_recorded(generator):
    data = logistic()[0]
    settings = DenseSolve(newton_steps=1, newton_tolerance=1e-12, tolerance=1.0)
    assert any("all 1 steps" in event for event in solve_dense(data, prior(0.1, 6), 1, settings=settings).events)


def test_newton_in_float32_ends_at_its_rounding(generator):
    data, Phi, Y = logistic()
    coarse = type(data)(Dense(Phi.float()), BernoulliCurvature(torch.full((80,), 0.5)), Y.float())
    found = solve_dense(coarse, DiagonalPrior(0.1, num_weights=6), 1, generator=generator)
    assert not found.events
    exact = solve_dense(data, prior(0.1, 6), 1, generator=generator).mode
    torch.testing.assert_close(found.mode.double(), exact, rtol=1e-2, atol=1e-3)
