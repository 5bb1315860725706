"""Monte Carlo dropout: which units, which moments, which randomness."""

import pytest
import torch
from torch import nn

from matheron.tomography import DeepImagePrior, MonteCarloDropout
from matheron.tomography.mc_dropout import leaving_out
from tests.tomography.test_dip import net, problem


def fitted(seed=0, rate=0.1, samples=40, steps=30):
    A, y, _ = problem()
    post = MonteCarloDropout(A, net(), rate=rate, shape=(8, 6))
    return post.fit(y, steps=steps, final_samples=samples, generator=torch.Generator().manual_seed(seed)), y


def test_units_are_left_out_and_the_mean_kept(generator):
    layer = nn.Conv2d(1, 4, 3, padding=1).double()
    x = torch.randn(1, 1, 9, 9, dtype=torch.float64, generator=generator)
    with leaving_out(layer, 0.2, generator), torch.no_grad():
        drawn = torch.stack([layer(x) for _ in range(4000)])
    plain = layer(x).detach()
    assert float((drawn == 0).double().mean()) == pytest.approx(0.2, abs=0.01)
    error = plain.abs() * (0.2 / 0.8 / 4000) ** 0.5
    assert bool(((drawn.mean(0) - plain).abs() <= 5.0 * error).all())


def test_the_network_is_left_without_dropout():
    post, _ = fitted()
    z = torch.rand(1, 1, 8, 6)
    assert torch.equal(post.network(z), post.network(z))


def test_moments_are_those_of_the_images_drawn():
    post, y = fitted()
    images = post.sample()
    assert images.shape == (40, 8, 6)
    torch.testing.assert_close(images.mean(0), post.mean, atol=1e-5, rtol=1e-4)
    # Deviations are a little larger than those of the draws around their own mean.
    torch.testing.assert_close(post.std, images.std(0) * (39 / 40) ** 0.5, rtol=1e-3, atol=1e-6)
    A = problem()[0]
    residual = (y - A @ post.mean.flatten()).square().mean()
    assert post.noise_precision == pytest.approx(1.0 / float(residual), rel=1e-4)


def test_rays_are_weighed():
    A, y, _ = problem()
    weights = torch.linspace(0.1, 2.0, len(y))
    post = MonteCarloDropout(A, net())
    post.fit(y, weights=weights, steps=30, final_samples=4, generator=torch.Generator().manual_seed(0))
    residual = (weights * (y - A @ post.mean.flatten()).square()).mean()
    assert post.noise_precision == pytest.approx(1.0 / float(residual), rel=1e-4)


def test_a_seed_repeats_everything():
    before = torch.random.get_rng_state()
    first, second = fitted()[0], fitted()[0]
    assert torch.equal(first.sample(), second.sample())
    assert not torch.equal(first.sample(), fitted(seed=1)[0].sample())
    assert torch.equal(before, torch.random.get_rng_state())


def test_more_units_left_out_vary_more():
    assert float(fitted(rate=0.4)[0].std.mean()) > 1.5 * float(fitted(rate=0.02)[0].std.mean())


def test_scores_are_those_of_other_posteriors():
    post, _ = fitted()
    truth = problem()[2]
    assert post.log_prob(truth, patch=3) > post.log_prob(truth + 10.0, patch=3)
    assert 0.0 <= post.coverage(truth, 0.9) <= 1.0


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused():
    A, y, _ = problem()
    with pytest.raises(ValueError, match="rate must lie in"):
        MonteCarloDropout(A, net(), rate=1.0, shape=(8, 6))
    with pytest.raises(ValueError, match="no convolution"):
        MonteCarloDropout(A, nn.Conv2d(1, 1, 1), shape=(8, 6))
    post = MonteCarloDropout(A, net(), shape=(8, 6))
    with pytest.raises(RuntimeError, match="call fit"):
        _ = post.mean
    with pytest.raises(ValueError, match="y has shape"):
        post.fit(y[:-1])
    with pytest.raises(ValueError, match="final_samples"):
        post.fit(y, final_samples=1)
    with pytest.raises(ValueError, match="Dropout"):
        DeepImagePrior(A, nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Dropout(0.1)), shape=(8, 6))
