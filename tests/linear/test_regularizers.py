"""Regularizers: their law, and how they follow precisions."""

import numpy as np
import pytest
import torch

from matheron.linear import (
    StoredData,
    draw_regularizers,
    learn_prior,
    log_evidence,
    sample_then_optimize,
    solve_dense,
    solve_dual,
    solve_primal,
)
from matheron.operators import Dense
from tests.linear.twins import DOUBLE, gaussian, prior, softmax


@pytest.mark.parametrize("make", [gaussian, softmax])
def test_the_pull_has_the_curvature_of_the_loss_as_covariance(make, generator):
    data, Phi = make(batch_size=7)[:2]
    num = 20_000
    drawn = draw_regularizers(data, num, generator)
    M = Phi.mT @ data.curvature.dense() @ Phi
    spread = ((M.square() + M.diagonal()[:, None] * M.diagonal()) / num).sqrt()
    assert bool(((drawn.pull.mT @ drawn.pull / num - M).abs() < 5.0 * spread).all())
    cross = drawn.unit.mT @ drawn.pull / num
    assert bool((cross.abs() < 5.0 * (M.diagonal() / num).sqrt()).all())


def test_kept_noise_is_that_of_the_pull_and_the_slope_that_of_zero_weights(generator):
    data, Phi, Y = gaussian(batch_size=9)
    drawn = draw_regularizers(data, 3, generator, mode=True, keep_noise=True)
    torch.testing.assert_close((Phi.mT @ (data.curvature.root @ drawn.noise.mT)).mT, drawn.pull)
    torch.testing.assert_close(drawn.slope, -2.0 * Phi.mT @ Y)
    assert drawn.epochs == 0.5


def test_a_new_precision_rescales_in_closed_form(generator):
    data, _, _ = gaussian()
    drawn = draw_regularizers(data, 3, generator)
    for a in (0.1, 1.0, 30.0):
        torch.testing.assert_close(drawn.start(prior(a, 8)), drawn.unit / a**0.5)
        torch.testing.assert_close(drawn.center(prior(a, 8)), drawn.unit / a**0.5 + drawn.pull / a)


def test_a_new_noise_precision_does_too():
    data, _, _ = gaussian()
    first, second = (
        draw_regularizers(d, 3, torch.Generator().manual_seed(0), mode=True)
        for d in (data, data.with_noise_precision(10.0))
    )
    scaled = first.with_noise_scaled(5.0)
    torch.testing.assert_close(scaled.pull, second.pull)
    torch.testing.assert_close(scaled.slope, second.slope)


def test_every_datum_and_sample_has_its_own_noise(generator):
    data, _, _ = gaussian(500)
    noise = draw_regularizers(data, 4, generator, keep_noise=True).noise
    correlation = torch.corrcoef(noise) - torch.eye(4, dtype=DOUBLE)
    assert float(correlation.abs().max()) < 5.0 / 500**0.5
    assert len(noise.unique()) == noise.numel()


SOLVES = [solve_dense, solve_primal, solve_dual, sample_then_optimize]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("solve", SOLVES)
def test_another_prior_than_that_of_the_weights_is_refused(solve):
    data, _, _ = gaussian()
    for what, error, says in (
        (prior(1.0, 9), ValueError, "prior is over 9 weights but the data have 8"),
        (prior(1.0, 8).cast(torch.float32), TypeError, "prior is torch.float32 but data is torch.float64"),
        (1.0, TypeError, "prior must be a Prior such as DiagonalPrior, got float"),
    ):
        with pytest.raises(error, match=says):
            solve(data, what, 2)
        with pytest.raises(error, match=says):
            learn_prior(data, what)
        with pytest.raises(error, match=says):
            log_evidence(data, what, torch.zeros(8, dtype=DOUBLE))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("solve", SOLVES)
def test_counts_are_whole_numbers_of_any_kind(solve):
    data, _, _ = gaussian()
    assert solve(data, prior(1.0, 8), np.int64(2), generator=0).samples.shape == (2, 8)
    with pytest.raises(TypeError, match="num must be a whole number"):
        solve(data, prior(1.0, 8), 2.0)


@pytest.mark.parametrize("solve", SOLVES)
def test_features_that_are_not_finite_are_refused(solve):
    data, Phi, Y = gaussian()
    Phi[3, 2] = torch.nan
    with pytest.raises(ValueError, match="the data have NaN or infinite features"):
        solve(StoredData(Dense(Phi), data.curvature, Y), prior(1.0, 8), 2)


@pytest.mark.usefixtures("unchecked")
def test_learning_is_refused_before_any_pass():
    data, _, _ = gaussian()
    with pytest.raises(ValueError, match="estimator must be one of function, weight, pull, got 'trace'"):
        learn_prior(data, prior(1.0, 8), estimator="trace")
    with pytest.raises(TypeError, match="settings must be an E-step"):
        learn_prior(data, prior(1.0, 8), settings="cg")
