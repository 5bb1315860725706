"""Plain Gaussian priors over pixels against dense algebra."""

import math

import pytest
import torch

from matheron.operators import Dense
from matheron.tomography import GaussianImage, design_scan
from matheron.tomography.gaussian_image import maximize
from matheron.tomography.image_prior import places
from tests.tomography.test_dip import problem, scan

ANGLES = torch.arange(9) * math.pi / 9 + 0.03


def prior(covariance, variance, lengthscale, shape=(8, 6)):
    i, j = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in shape), indexing="ij")
    i, j = i.flatten(), j.flatten()
    distance = ((i[:, None] - i) ** 2 + (j[:, None] - j) ** 2).sqrt()
    return variance * ((distance == 0).double() if covariance == "isotropic" else torch.exp(-distance / lengthscale))


def evidence(A, y, K, noise):
    G = A.dense() @ K @ A.dense().T + noise * torch.eye(len(y), dtype=y.dtype)
    return float(torch.distributions.MultivariateNormal(torch.zeros_like(y), G).log_prob(y))


def fitted(covariance, samples=8, **given):
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    post = GaussianImage(A, covariance, shape=(8, 6), **given).fit(y, final_samples=samples, generator=g)
    return A, y, post


@pytest.mark.parametrize("covariance", ["isotropic", "matern12"])
def test_mean_and_samples_are_those_of_dense_algebra(covariance):
    A, y, post = fitted(covariance, samples=4000)
    T, K = A.dense(), prior(covariance, post.variance, post.lengthscale)
    G = T @ K @ T.T + torch.eye(len(y), dtype=y.dtype) / post.noise_precision
    torch.testing.assert_close(post.mean.flatten(), K @ T.T @ torch.linalg.solve(G, y))
    expected = K - K @ T.T @ torch.linalg.solve(G, T @ K)
    error = ((expected.diagonal()[:, None] * expected.diagonal() + expected.square()) / 4000).sqrt()
    found = post.deviations.T @ post.deviations / 4000
    assert float(((found - expected) / error).abs().max()) < 6.0
    assert post.log_evidence == pytest.approx(evidence(A, y, K, 1 / post.noise_precision), rel=1e-9)


@pytest.mark.parametrize("covariance", ["isotropic", "matern12"])
def test_what_is_learnt_maximizes_the_evidence(covariance):
    """No step of five percent in any hyperparameter, or two, finds more."""
    A, y, post = fitted(covariance)
    best = [post.variance, 1 / post.noise_precision, post.lengthscale]
    steps = (1 / 1.05, 1.0, 1.05)
    for v in steps:
        for b in steps:
            for ell in steps if covariance == "matern12" else (1.0,):
                K = prior(covariance, v * best[0], ell * best[2])
                assert evidence(A, y, K, b * best[1]) <= post.log_evidence + 1e-9


@pytest.mark.parametrize("given", [{"noise": 0.02}, {"variance": 0.5}, {"noise": 0.02, "variance": 0.5}])
def test_what_is_given_stays_and_the_rest_is_the_best_beside_it(given):
    A, y, post = fitted("matern12", lengthscale=3.0, **given)
    found = {"variance": post.variance, "noise": 1 / post.noise_precision}
    assert post.lengthscale == 3.0
    for name, value in given.items():
        assert found[name] == pytest.approx(value, rel=1e-12)
    for name in found.keys() - given.keys():
        for step in (1 / 1.05, 1.05):
            tried = found | {name: step * found[name]}
            assert evidence(A, y, prior("matern12", tried["variance"], 3.0), tried["noise"]) <= post.log_evidence


def test_a_spectrum_without_noise_is_fitted_by_the_least_noise():
    """And one of noise alone by noise."""
    values, g = torch.linspace(0.5, 2.0, 400, dtype=torch.float64), torch.Generator().manual_seed(0)
    unit = torch.randn(400, dtype=torch.float64, generator=g)
    signal, noise = maximize(values, values.sqrt() * unit), maximize(values, unit)
    assert signal.variance == pytest.approx(1.0, abs=0.25)
    assert signal.noise < 0.3
    assert noise.noise > 0.7
    assert noise.value == pytest.approx(-0.5 * float((unit.square() + math.log(2 * math.pi)).sum()), abs=2.0)


@pytest.mark.parametrize("covariance", ["isotropic", "matern12"])
def test_weighed_rays_are_those_of_dense_algebra(covariance):
    """Noise of precision ``b w``: mean, samples, and an evidence that no other scale or noise exceeds."""
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(len(y), dtype=torch.float64, generator=g) * 30.0 + 0.1
    post = GaussianImage(A, covariance).fit(y, weights=weights, final_samples=4000, generator=g)
    T, N = A.dense(), torch.diag(1.0 / weights)
    K = prior(covariance, post.variance, post.lengthscale)
    G = T @ K @ T.T + N / post.noise_precision
    torch.testing.assert_close(post.mean.flatten(), K @ T.T @ torch.linalg.solve(G, y))
    expected = K - K @ T.T @ torch.linalg.solve(G, T @ K)
    error = ((expected.diagonal()[:, None] * expected.diagonal() + expected.square()) / 4000).sqrt()
    found = post.deviations.T @ post.deviations / 4000
    assert float(((found - expected) / error).abs().max()) < 6.0

    def weighed_evidence(v, b):
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), v * T @ K @ T.T + N / b)
        return float(normal.log_prob(y))

    b = post.noise_precision
    assert post.log_evidence == pytest.approx(weighed_evidence(1.0, b), rel=1e-9)
    assert all(
        weighed_evidence(v, c * b) <= post.log_evidence + 1e-9 for v in (0.95, 1.0, 1.05) for c in (0.95, 1.0, 1.05)
    )


def test_weights_of_one_change_nothing_and_those_of_none_leave_rays_out():
    A, y, post = fitted("matern12")
    g = torch.Generator().manual_seed
    same = GaussianImage(A).fit(y, weights=torch.ones_like(y), final_samples=8, generator=g(0))
    assert torch.equal(same.mean, post.mean)
    assert torch.equal(same.deviations, post.deviations)
    assert same.log_evidence == post.log_evidence
    seen = torch.arange(len(y)) % 5 > 0
    found = GaussianImage(A).fit(y, weights=seen.double(), generator=g(0))
    fewer = GaussianImage(Dense(A.dense()[seen]), shape=(8, 6)).fit(y[seen], generator=g(0))
    assert found.log_evidence == pytest.approx(fewer.log_evidence)
    torch.testing.assert_close(found.mean, fewer.mean)


def test_a_scan_without_noise_is_fitted_in_single_precision():
    """To as little noise as rounding leaves, and good enough to design by."""
    A, _, truth = problem()
    post = GaussianImage(A).fit(A @ truth.flatten(), generator=torch.Generator().manual_seed(0))
    assert 1e3 < post.noise_precision < 1e8
    found = design_scan(post, ANGLES, 3, "eig", num_samples=50, generator=torch.Generator().manual_seed(0))
    assert bool((found.scores > 0).all())


def test_hyperparameters_are_searched_where_the_spectrum_is():
    spectrum, y = torch.linspace(0.5, 2.0, 20, dtype=torch.float64), torch.ones(20, dtype=torch.float64)
    with torch.device("meta"):
        assert math.isfinite(maximize(spectrum, y).value)


def test_large_images_draw_from_features(monkeypatch):
    """Covariances to about a percent and a half: eight thousand features, four thousand draws."""
    monkeypatch.setattr("matheron.tomography.image_prior.MOST_POINTS", 10)
    _, _, post = fitted("matern12", variance=1.0, lengthscale=2.0, noise=0.01)
    drawn = post.image_prior().draw(4000, torch.Generator().manual_seed(0))
    K = prior("matern12", 1.0, 2.0)
    assert float((drawn.T @ drawn / 4000 - K).abs().max()) < 0.1


def test_units_of_the_scan_change_nothing():
    A, y, post = fitted("matern12")
    g = torch.Generator().manual_seed(0)
    other = GaussianImage(Dense(0.01 * A.dense()), "matern12", shape=(8, 6)).fit(3.0 * y, final_samples=8, generator=g)
    torch.testing.assert_close(other.mean, 300.0 * post.mean, rtol=1e-4, atol=1e-4)
    assert other.lengthscale == pytest.approx(post.lengthscale, rel=0.02)


def test_pixels_are_placed_as_columns_come():
    assert places((2, 3))[4].tolist() == [1.0, 1.0]


def test_a_refit_is_a_fit_with_the_same_settings():
    A, _, post = fitted("matern12", noise=0.02)
    fewer = scan(angles=3).operator(dtype=torch.float64)
    again = post.refitted(fewer, fewer @ post.mean.flatten(), generator=torch.Generator().manual_seed(1))
    assert len(again.deviations) == 8
    assert again.noise_precision == pytest.approx(50.0)
    assert again.A is fewer
    assert post.A is A


def test_what_is_refused_by_name(unchecked, monkeypatch):
    A, y, _ = problem(dtype=torch.float64)
    with pytest.raises(ValueError, match="covariance must be one of isotropic, matern12, got 'rbf'"):
        GaussianImage(A, "rbf", shape=(8, 6))
    with pytest.raises(ValueError, match="lengthscale is given"):
        GaussianImage(A, "isotropic", lengthscale=1.0, shape=(8, 6))
    with pytest.raises(ValueError, match="noise must be positive"):
        GaussianImage(A, noise=-1.0, shape=(8, 6))
    with pytest.raises(ValueError, match="give shape="):
        GaussianImage(Dense(A.dense()))
    post = GaussianImage(A, shape=(8, 6))
    for ask in (lambda: post.mean, lambda: post.std, post.image_prior):
        with pytest.raises(RuntimeError, match="call fit"):
            ask()
    with pytest.raises(ValueError, match="y has shape"):
        post.fit(y[:-1])
    with pytest.raises(ValueError, match="y has 1 NaN"):
        post.fit(torch.where(y == y[0], torch.nan, y))
    with pytest.raises(ValueError, match="y is zero"):
        post.fit(torch.zeros_like(y))
    with pytest.raises(TypeError, match="first the real parts"):
        post.fit(y.to(torch.complex128))
    monkeypatch.setattr("matheron.tomography.scan.free_memory", lambda device: 100.0)
    with pytest.raises(MemoryError, match="scan fewer angles"):
        post.fit(y)
