import warnings

import pytest
import torch

from matheron.kernels import RBF, JitterWarning, Linear, Matern32, NoFeaturesError, Tanimoto, sample_prior
from tests.kernels.test_features import Custom, seeded
from tests.kernels.test_stationary import inputs
from tests.kernels.test_tanimoto import fingerprints


@pytest.mark.parametrize("kernel", [Matern32(0.8, 1.5), RBF(0.5) * Linear(), Linear() + RBF(), Custom()])
def test_moments_of_prior_samples(kernel: torch.nn.Module) -> None:
    x, num = inputs(5, 2, 0), 4000
    sample = sample_prior(kernel, x, num, generator=seeded(0), num_features=4000)
    assert sample.shape == (num, 5)
    covariance = kernel(x).detach()
    scale = covariance.diagonal().sqrt()
    error = torch.outer(scale, scale) / num**0.5
    assert (sample.mean(0).abs() < 4.5 * scale / num**0.5).all()
    assert ((sample.mT @ sample / num - covariance).abs() < 8.0 * error).all()


def test_blocks_and_sparse_inputs() -> None:
    x = fingerprints("binary", 5000, 20, 0)
    dense, sparse = (sample_prior(Tanimoto(), v, 2, seeded(0), num_features=50) for v in (x, x.to_sparse_csr()))
    assert dense.shape == (2, 5000)
    assert (dense == sparse).all()


def test_jitter_is_reported_and_only_if_needed() -> None:
    x = inputs(6, 2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_prior(Custom(), x, 2, generator=seeded(0))
    with pytest.warns(JitterWarning, match="of its mean diagonal was added"):
        sample = sample_prior(Custom(), torch.cat([x, x]), 2, generator=seeded(0))
    torch.testing.assert_close(sample[:, :6], sample[:, 6:], atol=1e-4, rtol=0)


def test_seeds_repeat() -> None:
    x = inputs(6, 2, 0).float()
    for kernel in (RBF(), Custom()):
        first, second = (sample_prior(kernel, x, 3, generator=seeded(5)) for _ in range(2))
        assert (first == second).all()
        assert first.dtype == torch.float32


@pytest.mark.usefixtures("unchecked")
def test_refusals() -> None:
    with pytest.raises(NoFeaturesError, match="x has 5001 rows"):
        sample_prior(Custom(), torch.zeros(5001, 1), 1)
    with pytest.raises(ValueError, match="num must be at least 1"):
        sample_prior(RBF(), torch.zeros(2, 1), 0)
    with pytest.raises(ValueError, match="num must be even"):
        sample_prior(RBF(), torch.zeros(2, 1), 1, num_features=3)
