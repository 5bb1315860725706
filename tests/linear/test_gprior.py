"""The g-prior's scale against the diagonal of ``ΦᵀBΦ``."""

import pytest
import torch

from matheron.linear import GaussianCurvature, StoredData, g_prior_scale
from matheron.operators import Dense
from tests.linear.twins import DOUBLE, gaussian, softmax


@pytest.mark.parametrize("make", [gaussian, softmax])
def test_many_draws_give_the_diagonal(make, generator):
    data, Phi = make(batch_size=7)[:2]
    M = Phi.mT @ data.curvature.dense() @ Phi
    found = g_prior_scale(data, 20_000, generator)
    torch.testing.assert_close(found.scale.square() * M.diagonal(), torch.ones_like(M.diagonal()), rtol=0.06, atol=0.0)
    assert found.floored == 0


def test_prior_variances_are_right_on_average_for_few_draws(generator):
    """Without the correction five draws would inflate them by 5/3."""
    data, Phi, _ = gaussian(30, 2)
    exact = (2.0 * Phi.square().sum(0)).reciprocal()
    squares = torch.stack([g_prior_scale(data, 12, generator).scale.square() / exact for _ in range(600)])
    error = squares.mean(0) - 1.0
    assert bool((error.abs() < 4.0 * squares.std(0) / 600**0.5).all())


def test_scales_make_the_prior_indifferent_to_units():
    data, Phi, _ = gaussian()
    units = torch.logspace(-4, 4, 8, dtype=DOUBLE)
    groups = torch.arange(8)
    first = g_prior_scale(data, 9, torch.Generator().manual_seed(0), groups)
    other = StoredData(Dense(Phi * units), data.curvature)
    second = g_prior_scale(other, 9, torch.Generator().manual_seed(0), groups)
    torch.testing.assert_close(first.scale, second.scale * units)


def test_weights_that_no_datum_moves_are_floored_by_their_own_tensor(generator):
    Phi = torch.zeros(20, 6, dtype=DOUBLE)
    Phi[:, 0], Phi[:, 1], Phi[:, 2] = 1.0, 1.0, 100.0
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 20, dtype=DOUBLE))
    # Two tensors with one dead weight each, and one that is dead.
    found = g_prior_scale(data, 5000, generator, torch.tensor([0, 0, 1, 0, 1, 2]), floor=1e-2)
    assert found.floored == 3
    assert bool((found.scale > 0).all())
    assert bool(found.scale.isfinite().all())
    expected = torch.tensor([1e-2 * 2 * 20 / 3, 1e-2 * 20 * 1e4 / 2], dtype=DOUBLE).rsqrt()
    torch.testing.assert_close(found.scale[[3, 4]], expected, rtol=0.1, atol=0.0)


@pytest.mark.usefixtures("unchecked")
def test_two_draws_are_too_few(generator):
    with pytest.raises(ValueError, match="at least 3"):
        g_prior_scale(gaussian()[0], 2, generator)
    with pytest.raises(ValueError, match="one index per weight"):
        g_prior_scale(gaussian()[0], 3, generator, torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float64, 1e17), (torch.float32, 1.0)])
def test_a_scale_beyond_the_range_of_the_weights_is_that_of_the_rest(dtype, expected, generator):
    Phi = torch.ones(20, 2, dtype=DOUBLE) * torch.tensor([1.0, 1e-17])
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, size=20, dtype=DOUBLE))
    scale = g_prior_scale(data, 5_000, generator, groups=torch.tensor([0, 1]), dtype=dtype).scale * 20**0.5
    torch.testing.assert_close(scale, torch.tensor([1.0, expected], dtype=DOUBLE), rtol=0.1, atol=0)
