"""Error bars of a deep image prior against dense algebra."""

import copy
import dataclasses
import math

import pytest
import torch

from matheron.linear import Descent, DiagonalPrior, fit_posterior
from matheron.operators import Dense
from matheron.solvers import ConvergenceWarning
from matheron.tomography import DeepImagePrior, ImagePosterior, LinearizedDIP, TypeTwoMAP, UNet, design_scan
from matheron.tomography.inference import ImageModel
from tests.tomography.test_dip import problem


@pytest.fixture(scope="module")
def dip():
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(3)
    net = UNet(scales=2, channels=2, skip_channels=2, groups=2, generator=g).double()
    return DeepImagePrior(A, net, shape=(8, 6)).fit(y, steps=100, generator=g), y


def jacobian(dip):
    """``φ`` by reverse mode of PyTorch, pixel by pixel."""
    names, values = zip(*dip.network.named_parameters(), strict=True)

    def image(*weights):
        return (
            dip.unit
            * torch.func.functional_call(dip.network, dict(zip(names, weights, strict=True)), (dip.input,)).flatten()
        )

    parts = torch.autograd.functional.jacobian(image, tuple(v.detach() for v in values))
    return torch.cat([part.flatten(1) for part in parts], 1), torch.cat([v.detach().flatten() for v in values])


def dense(dip, y, post, weights=None):
    """``K_{x|y} = K − K Tᵀ (T K Tᵀ + (b W)⁻¹)⁻¹ T K`` and ``w⋆``, at the precisions that were learnt."""
    phi, v = jacobian(dip)
    inverse = post.prior.covariance(torch.eye(len(v), dtype=v.dtype))
    T, K = dip.A.dense(), phi @ inverse @ phi.T
    weights = torch.ones_like(y) if weights is None else weights
    G = T @ K @ T.T + torch.diag(1.0 / (post.noise_precision * weights))
    mode = inverse @ phi.T @ T.T @ torch.linalg.solve(G, y + T @ (phi @ v - dip.image.flatten()))
    return K - K @ T.T @ torch.linalg.solve(G, T @ K), mode, T @ phi


@pytest.mark.parametrize("prior", ["g", "isotropic", "blockwise", "tv"])
@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_samples_have_the_covariance_of_dense_algebra(dip, prior):
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, prior).fit(y, em_steps=4, num_samples=64, final_samples=4000, method="exact", generator=g)
    K, mode, _ = dense(dip, y, post)
    found = post.deviations.T @ post.deviations / len(post.deviations)
    error = ((K.diagonal()[:, None] * K.diagonal() + K.square()) / 4000).sqrt()
    assert float((found - K).abs().div(error).max()) < 6.0
    assert torch.allclose(post.std.flatten(), K.diagonal().sqrt(), rtol=0.1)
    assert torch.allclose(post.mode, mode, atol=1e-3 * float(mode.abs().max()))
    assert torch.equal(post.mean, dip.image)
    assert len(post.prior.values) == (5 if prior in ("blockwise", "tv") else 1)


def weighed(y):
    return 0.2 + 3.0 * torch.rand(len(y), dtype=y.dtype, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("prior", ["g", "isotropic", "tv"])
@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_weighed_rays_are_those_of_dense_algebra(dip, prior):
    """Noise of precision ``b w``: covariance and mode, and for the g-prior a curvature of the weighed scan."""
    dip, y = dip
    w, g = weighed(y), torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, prior)
    post.fit(y, weights=w, em_steps=4, final_samples=4000, method="exact", scale_draws=20_000, generator=g)
    K, mode, Phi = dense(dip, y, post, w)
    found = post.deviations.T @ post.deviations / len(post.deviations)
    error = ((K.diagonal()[:, None] * K.diagonal() + K.square()) / 4000).sqrt()
    assert float((found - K).abs().div(error).max()) < 6.0
    assert torch.allclose(post.mode, mode, atol=1e-3 * float(mode.abs().max()))
    if prior == "g":
        M = (w[:, None] * Phi.square()).sum(0)
        level = post.prior.precision(torch.ones(len(M), 1, dtype=M.dtype))[:, 0]
        seen = 0.01 * M.mean() < M  # below, entries are floored
        torch.testing.assert_close(level[seen] / level[seen].sum(), M[seen] / M[seen].sum(), rtol=0.1, atol=0.0)


def test_the_noise_of_weighed_rays_is_at_its_fixed_point(dip):
    """``b = (m − γ) / Σ w (y − T h(w⋆))²``."""
    dip, y = dip
    w, g = weighed(y), torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, "isotropic")
    post.fit(y, weights=w, em_steps=60, num_samples=400, final_samples=2, method="exact", generator=g)
    assert post.report.em_converged
    _, mode, Phi = dense(dip, y, post, w)
    a, b = float(post.prior.values), post.noise_precision
    M = b * Phi.T @ (w[:, None] * Phi)
    gamma = float(torch.linalg.solve(M + a * torch.eye(len(M), dtype=M.dtype), M).trace())
    residual = y - dip.A @ dip.image.flatten() - Phi @ (mode - dip.tangent().weights)
    assert b == pytest.approx((len(y) - gamma) / float((w * residual.square()).sum()), rel=0.15)
    assert a == pytest.approx(gamma / float(mode.square().sum()), rel=0.15)


@pytest.mark.parametrize("method", ["exact", "cg"])
@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_weights_of_one_change_nothing(dip, method):
    dip, y = dip
    options = {"em_steps": 2, "num_samples": 4, "final_samples": 4, "method": method}
    plain, same = (
        LinearizedDIP(dip).fit(y, weights=w, generator=torch.Generator().manual_seed(0), **options)
        for w in (None, torch.ones_like(y))
    )
    assert torch.equal(same.deviations, plain.deviations)
    assert same.noise_precision == plain.noise_precision


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_weights_of_the_network_are_those_of_its_posterior(dip):
    dip, y = dip
    dip = copy.deepcopy(dip)
    options = {"em_steps": 2, "num_samples": 4, "final_samples": 4, "method": "exact"}
    given = LinearizedDIP(dip).fit(y, weights=weighed(y), generator=0, **options)
    dip.weights = weighed(y)  # as if it had been fitted with them
    taken = LinearizedDIP(dip).fit(y, generator=0, **options)
    assert torch.equal(taken.deviations, given.deviations)
    alike = LinearizedDIP(dip).fit(y, weights=torch.ones_like(y), generator=0, **options)
    assert not torch.allclose(alike.std, given.std)
    elsewhere = LinearizedDIP(dip).fit(y, A=dip.A, generator=0, **options)
    assert elsewhere.weights is None


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_one_factor_of_all_weights_is_taken_up_by_the_noise(dip):
    dip, y = dip
    options = {"em_steps": 2, "num_samples": 4, "final_samples": 4, "method": "exact"}
    first, second = (
        LinearizedDIP(dip).fit(y, weights=c * weighed(y), generator=torch.Generator().manual_seed(0), **options)
        for c in (1.0, 1e4)
    )
    torch.testing.assert_close(second.std, first.std, rtol=1e-6, atol=0.0)
    assert second.noise_precision == pytest.approx(1e-4 * first.noise_precision)


def test_conjugate_gradients_find_the_same_posterior(dip):
    """At a given prior and noise."""
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, "isotropic", noise=0.05).fit(y, em_steps=0, final_samples=300, method="cg", generator=g)
    K, mode, _ = dense(dip, y, post)
    assert torch.allclose(post.std.flatten(), K.diagonal().sqrt(), rtol=0.25)
    assert torch.allclose(post.mode, mode, atol=1e-2 * float(mode.abs().max()))
    assert post.report.converged


def test_descent_finds_the_same_posterior(dip, monkeypatch):
    """On the features as a matrix, where passes cost nothing, and in few batches, as there are few measurements."""
    monkeypatch.setattr("matheron.tomography.inference.BATCHES", 2)
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    phi, _ = jacobian(dip)
    Phi = dip.A.dense() @ phi
    model = ImageModel.of(Dense(Phi), y, 20.0, "sgd", Descent(epochs=300.0))
    a = 0.4 * float(torch.linalg.matrix_norm(Phi, 2)) ** 2  # a condition number of 51
    prior = DiagonalPrior(a, num_weights=Phi.shape[1], dtype=torch.float64)
    found = fit_posterior(
        model.data, prior, model.step, em_steps=0, num_samples=1, final_samples=300, mode=True, generator=g
    )
    H = 20.0 * Phi.T @ Phi + a * torch.eye(Phi.shape[1], dtype=torch.float64)
    std = (phi @ torch.linalg.solve(H, phi.T)).diagonal().sqrt()
    assert torch.allclose((phi @ found.final.samples.T).square().mean(1).sqrt(), std, rtol=0.25)
    assert found.final.converged


def test_the_noise_is_at_its_fixed_point(dip):
    """``b = (m − γ) / ‖y − T h(w⋆)‖²`` and ``a = γ / w⋆ᵀ A w⋆ · a`` where EM has converged, by dense algebra."""
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, "isotropic")
    post.fit(y, em_steps=60, num_samples=400, final_samples=2, method="exact", generator=g)
    assert post.report.em_converged
    _, mode, Phi = dense(dip, y, post)
    a, b = float(post.prior.values), post.noise_precision
    M = b * Phi.T @ Phi
    gamma = float(torch.linalg.solve(M + a * torch.eye(len(M), dtype=M.dtype), M).trace())
    v = dip.tangent().weights
    residual = y - dip.A @ dip.image.flatten() - Phi @ (mode - v)
    assert b == pytest.approx((len(y) - gamma) / float(residual.square().sum()), rel=0.15)
    assert a == pytest.approx(gamma / float(mode.square().sum()), rel=0.15)


def test_the_network_s_own_weights_in_place_of_the_optimum(dip):
    """``a = γ / ‖ṽ‖²`` and ``b = (m − γ) / ‖y − T g(ṽ)‖²`` where EM has converged."""
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    post = LinearizedDIP(dip, "isotropic", evidence="network")
    post.fit(y, em_steps=60, num_samples=400, final_samples=2, method="exact", generator=g)
    _, _, Phi = dense(dip, y, post)
    a, b, v = float(post.prior.values), post.noise_precision, dip.tangent().weights
    M = b * Phi.T @ Phi
    gamma = float(torch.linalg.solve(M + a * torch.eye(len(M), dtype=M.dtype), M).trace())
    residual = y - dip.A @ dip.image.flatten()
    assert a == pytest.approx(gamma / float(v.square().sum()), rel=0.15)
    assert b == pytest.approx((len(y) - gamma) / float(residual.square().sum()), rel=0.15)


@pytest.mark.parametrize("prior", ["blockwise", "tv"])
@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_blocks_are_learnt_in_single_precision_too(prior):
    """Blocks that the scan hardly sees leave the model without making its system singular."""
    A, y, _ = problem()
    net = UNet(scales=2, channels=8, skip_channels=2, generator=torch.Generator().manual_seed(3))
    dip = DeepImagePrior(A, net, shape=(8, 6)).fit(y, steps=100, generator=torch.Generator().manual_seed(1))
    post = LinearizedDIP(dip, prior).fit(y, em_steps=12, method="exact", generator=torch.Generator().manual_seed(0))
    assert bool(post.std.isfinite().all())
    assert float(post.std.min()) > 0.0


def test_a_given_noise_stays(dip):
    dip, y = dip
    g = torch.Generator().manual_seed(0)
    with pytest.warns(ConvergenceWarning):
        post = LinearizedDIP(dip, noise=0.25).fit(y, em_steps=1, num_samples=2, final_samples=2, generator=g)
    assert post.noise_precision == pytest.approx(4.0)


def gaussian(samples=3000, shape=(5, 4)):
    g = torch.Generator().manual_seed(0)
    n = math.prod(shape)
    root = torch.eye(n, dtype=torch.float64) + torch.randn(n, n, dtype=torch.float64, generator=g) / (2 * n**0.5)
    found = ImagePosterior()
    deviations = torch.randn(samples, n, dtype=torch.float64, generator=g) @ root.T
    found.adopt(torch.randn(shape, dtype=torch.float64, generator=g), deviations, 1.0)
    return found, torch.randn(shape, dtype=torch.float64, generator=g)


@pytest.mark.parametrize("patch", [1, 2, 3, 9])
@pytest.mark.parametrize("shrinkage", [0.5, 0.0, 1.0])
def test_patches_are_scored_by_their_density(patch, shrinkage):
    post, image = gaussian()
    K = post.deviations.T @ post.deviations / len(post.deviations)
    K = (1 - shrinkage) * K + shrinkage * K.diagonal().diag()
    pixels, total = torch.arange(20).reshape(5, 4), 0.0
    for row in range(0, 5, patch):
        for column in range(0, 4, patch):
            at = pixels[row : row + patch, column : column + patch].flatten()
            normal = torch.distributions.MultivariateNormal(post.mean.flatten()[at], K[at][:, at])
            total += float(normal.log_prob(image.flatten()[at]))
    assert post.log_prob(image, patch, shrinkage=shrinkage) == pytest.approx(total / 20, rel=1e-3)


def test_coverage_counts_pixels():
    post, _ = gaussian()
    for level in (0.5, 0.9):
        shares = [post.coverage(image, level) for image in post.sample(300)]
        assert sum(shares) / 300 == pytest.approx(level, abs=0.03)
    assert post.coverage(1e9 * post.mean, 1.0) == 1.0


def test_what_is_refused_by_name(dip, unchecked):
    dip, y = dip
    with pytest.raises(ValueError, match="g, isotropic, blockwise, tv, got 'smooth'"):
        LinearizedDIP(dip, "smooth")
    with pytest.raises(ValueError, match="predcp is for lengthscales"):
        LinearizedDIP(dip, "g", predcp=False)
    with pytest.raises(ValueError, match="predcp must be zero or positive"):
        LinearizedDIP(dip, "tv", predcp=-1.0)
    with pytest.raises(ValueError, match="evidence must be one of"):
        LinearizedDIP(dip, evidence="both")
    with pytest.raises(ValueError, match="MacKay's update"):
        LinearizedDIP(dip, "tv", evidence="network")
    with pytest.raises(ValueError, match="ascent is for prior='tv'"):
        LinearizedDIP(dip, "g").fit(y, ascent=TypeTwoMAP())
    with pytest.raises(ValueError, match="use method='exact' or 'cg'"):
        LinearizedDIP(dip, "tv").fit(y, method="sgd")
    with pytest.raises(RuntimeError, match="call fit"):
        LinearizedDIP(DeepImagePrior(dip.A, dip.network, shape=(8, 6)))
    post = LinearizedDIP(dip)
    with pytest.raises(RuntimeError, match="call fit"):
        _ = post.std
    with pytest.raises(ValueError, match="y has shape"):
        post.fit(y[:-2])
    with pytest.raises(ValueError, match="A scans 4 pixels, but the network's image has 48"):
        post.fit(y, A=Dense(torch.ones(len(y), 4, dtype=y.dtype)))
    with pytest.raises(ValueError, match="method must be one of"):
        post.fit(y, method="best")
    with pytest.raises(ValueError, match="descent is for method='sgd'"):
        post.fit(y, method="exact", descent=Descent())
    with pytest.raises(ValueError, match="scale_draws must be at least 3"):
        post.fit(y, scale_draws=2)
    with pytest.raises(TypeError, match="A is a ParallelBeam"):
        post.fit(y, A=dip.A.origin)
    with pytest.raises(TypeError, match="dip must be a fitted DeepImagePrior"):
        LinearizedDIP(dip.A)
    scored, image = gaussian(10)
    with pytest.raises(ValueError, match="image has shape"):
        scored.log_prob(image[:2])
    with pytest.raises(ValueError, match="num is 11 but 10"):
        scored.sample(11)


def test_a_matrix_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("matheron.tomography.inference.free_memory", lambda device: 100.0)
    with pytest.raises(MemoryError, match="use method='cg'"):
        ImageModel.of(Dense(torch.ones(4, 4)), torch.ones(4), 1.0, "exact")


def test_a_scan_of_other_images_is_refused(dip, unchecked):
    """As many pixels, but as high as the image is wide."""
    dip, y = dip
    turned = dataclasses.replace(dip.A.origin, size=(6, 8)).operator(dtype=torch.float64)
    with pytest.raises(ValueError, match=r"shape is \(8, 6\) but images of the scan are \(6, 8\)"):
        LinearizedDIP(dip).fit(y, A=turned)
    with pytest.raises(TypeError, match=r"A is torch\.float32 but the network is torch\.float64"):
        LinearizedDIP(dip).fit(y, A=dip.A.origin.operator())


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_a_posterior_can_be_copied(dip):
    dip, y = dip
    post = LinearizedDIP(dip).fit(y, em_steps=1, generator=0)
    twin = copy.deepcopy(post)
    assert torch.equal(twin.mean, post.mean)
    assert twin.dip.network is not dip.network
    assert twin.A.origin == dip.A.origin
    assert torch.equal(twin.A.dense(), dip.A.dense())
    plans = [design_scan(one, [0.1, 0.4], 2, num_samples=50, generator=0) for one in (post, twin)]
    assert torch.equal(plans[0].scores, plans[1].scores)


def test_samples_that_are_all_the_same_have_no_density():
    found = ImagePosterior()
    found.adopt(torch.zeros(2, 3), torch.zeros(5, 6), noise_precision=1.0)
    with pytest.raises(ValueError, match="all samples are the same image"):
        found.log_prob(torch.zeros(2, 3))
