"""Regularizers: their law, and how they follow precisions."""

import pytest
import torch

from matheron.linear import draw_regularizers
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
