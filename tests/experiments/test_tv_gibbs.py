"""Draws of total variation against its densities."""

import pytest
import torch

from experiments.tv_gibbs import _draw, tv_sample


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (1.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 0.0)])
def test_a_pixel_given_its_neighbors(weights):
    """Quantiles of ``exp(−Σ_i w_i |x − t_i|)`` by numerical integration."""
    t, w = torch.tensor([0.3, -0.5, 1.4, 0.3]).double(), torch.tensor(weights).double()
    number = 40_000
    drawn = _draw(t[:, None].expand(4, number), w[:, None].expand(4, number), torch.Generator().manual_seed(0))
    grid = torch.linspace(-12.0, 13.0, 200_001, dtype=torch.float64)
    density = (-(w[:, None] * (grid - t[:, None]).abs()).sum(0)).exp()
    below = density.cumsum(0) / density.sum()
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        at = grid[int((below < level).sum())]
        share = float((drawn < at).double().mean())
        assert abs(share - level) < 4.0 * (level * (1 - level) / number) ** 0.5


def test_an_image_has_a_mean_of_zero_and_repeats():
    first, second = (tv_sample(6, 20, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert abs(float(first.mean())) < 1e-12
