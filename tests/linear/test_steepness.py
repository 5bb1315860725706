"""Steepness against eigenvalues of dense matrices."""

import pytest
import torch

from matheron.linear.steepness import steepness
from tests.linear.twins import DOUBLE, gaussian, logistic, prior


@pytest.mark.parametrize("batch_size", [None, 15])
def test_it_is_the_largest_eigenvalue(batch_size, generator):
    data, Phi, _ = gaussian(batch_size=batch_size)
    scale = 1.0 + torch.arange(8, dtype=DOUBLE)
    pull = Phi.mT @ torch.randn(60, dtype=DOUBLE, generator=generator)
    found, passes = steepness(data, prior(0.5, 8, scale=scale), pull, None, generator)
    white = Phi * scale / 0.5**0.5
    exact = float(torch.linalg.eigvalsh(2.0 * white.mT @ white)[-1]) + 1.0
    # Power iteration comes from below; all four batches together are all data.
    assert 0.9 * exact < float(found[0, 0]) <= exact * (1 + 1e-12)
    assert passes == pytest.approx(4.0)
    if batch_size is None:
        assert float(found[0, 1]) == pytest.approx(float(found[0, 0]))
    else:
        assert float(found[0, 1]) >= 0.9 * exact


def test_the_loss_has_its_own(generator):
    data, Phi, _ = logistic(batch_size=20)
    pull = Phi.mT @ torch.randn(80, dtype=DOUBLE, generator=generator)
    at = torch.zeros(6, dtype=DOUBLE)
    found, passes = steepness(data, prior(1.0, 6), pull, at, generator)
    exact = float(torch.linalg.eigvalsh(0.25 * Phi.mT @ Phi)[-1]) + 1.0
    assert 0.85 * exact < float(found[1, 0]) <= exact * (1 + 1e-12)
    assert passes == pytest.approx(8.5)


def test_data_without_any_slope_are_flat(generator):
    data, _, _ = gaussian()
    data.features.matrix.zero_()
    found, _ = steepness(data, prior(1.0, 8), torch.zeros(8, dtype=DOUBLE), None, generator)
    assert found.tolist() == [[1.0, 1.0]]
