"""Priors over images: draws have the covariance that products are made with."""

import pytest
import torch

from matheron.kernels import Matern12
from matheron.linear import DiagonalPrior
from matheron.operators import Dense
from matheron.tomography.image_prior import IndependentPixels, StationaryPixels, TangentImages, places


def priors():
    g = torch.Generator().manual_seed(0)
    scale = torch.rand(7, dtype=torch.float64, generator=g) + 0.5
    phi = torch.randn(6, 7, dtype=torch.float64, generator=g)
    grid = places((2, 3), torch.float64)
    distance = (grid[:, None] - grid).norm(dim=-1)
    weights = DiagonalPrior(3.0, num_weights=7, scale=scale)
    return {
        "independent": (IndependentPixels(2.0, torch.zeros(6, dtype=torch.float64)), 2.0 * torch.eye(6).double()),
        "stationary": (StationaryPixels(Matern12(1.5, 2.0), grid), 2.0 * torch.exp(-distance / 1.5)),
        "tangent": (TangentImages(Dense(phi), weights), (phi * scale.square() / 3.0) @ phi.T),
    }


@pytest.mark.parametrize("name", ["independent", "stationary", "tangent"])
def test_draws_and_products_have_one_covariance(name):
    prior, K = priors()[name]
    torch.testing.assert_close(prior.covariance.dense(), K)
    drawn = prior.draw(5000, torch.Generator().manual_seed(1))
    error = ((K.diagonal()[:, None] * K.diagonal() + K.square()) / 5000).sqrt()
    assert float(((drawn.T @ drawn / 5000 - K) / error).abs().max()) < 5.0
