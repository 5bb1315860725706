"""Smooth filters of a fitted U-net, learnt from its scan, against dense algebra."""

import math

import pytest
import torch
from torch import nn

from matheron.linear.exact import Primal
from matheron.networks import JacobianOperator, TangentModel
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography import DeepImagePrior, LinearizedDIP, PredCP, TypeTwoMAP, UNet, filters_of, linearized_dip
from matheron.tomography.inference import ImageModel
from matheron.tomography.tv_prior import learning_method, mode_of, starting_filters
from matheron.tomography.type_two import TypeTwo
from tests.linear.twins import filter_covariance
from tests.tomography.test_dip import problem
from tests.tomography.test_linearized_dip import jacobian
from tests.tomography.twins import edges


@pytest.fixture(scope="module")
def fitted():
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(3)
    net = UNet(scales=2, channels=2, skip_channels=2, groups=2, generator=g).double()
    dip = DeepImagePrior(A, net, shape=(8, 6)).fit(y, steps=100, generator=g)
    return dip, y


def model(dip, y, method="exact"):
    tangent = dip.tangent()
    Phi = dip.A @ JacobianOperator(tangent, dip.input, rows=48)
    targets = y - dip.A @ dip.image.flatten() + Phi @ tangent.weights
    return tangent, ImageModel.of(Phi, targets, 50.0, method)


def test_filters_of_a_u_net(fitted):
    filters = filters_of(fitted[0].tangent())
    assert filters.smooth.tolist() == [True, True, False, True, False]
    assert {part.kernel for part in filters.parts} == {(), (3, 3)}
    volume = filters_of(TangentModel(UNet(dims=3, scales=2, channels=2).eval()))
    assert {part.kernel for part in volume.parts} == {(), (3, 3, 3)}


def test_every_block_starts_with_an_equal_share(fitted):
    dip, y = fitted
    tangent, m = model(dip, y)
    start = starting_filters(tangent, m, torch.Generator().manual_seed(0))
    Phi, groups = m.data.features.matrix, filters_of(tangent).groups
    shares = [float(Phi[:, groups == k].square().sum() / start.values[k]) for k in range(5)]
    assert shares == pytest.approx([float(m.data.targets.square().sum()) / 5] * 5, rel=0.5)


def test_the_mode_is_that_of_dense_algebra(fitted):
    dip, y = fitted
    tangent, m = model(dip, y)
    start = starting_filters(tangent, m, torch.Generator().manual_seed(0))
    held, square = mode_of(m, start, 20.0, torch.Generator().manual_seed(0))
    C = filter_covariance(start.filters.parts, start.values, start.lengthscales)
    w = Primal(m.data.features.matrix, torch.linalg.inv(C), 20.0).weights(m.data.targets).mean
    residual = m.data.targets - m.data.features.matrix @ w
    assert square == pytest.approx(float(residual.square().sum()), rel=1e-6)
    penalty = float(held.penalty(start.values, start.lengthscales))
    assert penalty == pytest.approx(float(-0.5 * w @ torch.linalg.solve(C, w)), rel=1e-6)


def test_the_learnt_record_is_the_objective(fitted):
    """``𝓖(w⋆; a, ψ, b) + Σ_k(−κ_k + log|∂κ_k/∂ψ_k|)`` at the last step, from the Jacobian of PyTorch."""
    dip, y = fitted
    post = LinearizedDIP(dip, "tv").fit(
        y, method="exact", ascent=TypeTwoMAP(em_steps=None), generator=torch.Generator().manual_seed(0)
    )
    phi, v = jacobian(dip)
    record, filters = post.history[-1], post.prior.filters
    a, psi = (torch.tensor(record[name], dtype=torch.float64) for name in ("precision", "lengthscales"))
    C, T = filter_covariance(filters.parts, a, psi), dip.A.dense()
    S = T @ phi @ C @ phi.T @ T.T + torch.eye(len(y), dtype=y.dtype) / record["noise_precision"]
    target = y - T @ (dip.image.flatten() - phi @ v)
    evidence = torch.distributions.MultivariateNormal(torch.zeros_like(y), S).log_prob(target)
    assert record["evidence"] == pytest.approx(float(evidence), rel=1e-6)
    rows, brightest = edges((8, 6)) @ phi, float(dip.image.abs().max())
    own = [(rows[:, filters.groups == k], C[filters.groups == k][:, filters.groups == k]) for k in range(5)]
    kappa = [math.sqrt(2 / math.pi) * float((J @ c @ J.T).diagonal().sqrt().sum()) / brightest for J, c in own]
    assert record["expected_variation"] == pytest.approx(kappa, rel=1e-6)
    known = PredCP.of(filters, JacobianOperator(dip.tangent(), dip.input, rows=48), (8, 6), unit=brightest)
    assert record["objective"] == pytest.approx(float(evidence + known.log_prob(a, psi)), rel=1e-6)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_sampled_gradients_find_the_same_prior(fitted):
    dip, y = fitted
    settings = TypeTwoMAP(steps=60, probes=30, learning_rate=0.2)
    found = {
        method: LinearizedDIP(dip, "tv", noise=0.02).fit(
            y, method=method, ascent=settings, final_samples=4, generator=torch.Generator().manual_seed(0)
        )
        for method in ("exact", "cg")
    }
    exact, sampled = (found[method].prior for method in ("exact", "cg"))
    torch.testing.assert_close(sampled.values.log(), exact.values.log(), atol=0.3, rtol=0.0)
    torch.testing.assert_close(sampled.lengthscales.log(), exact.lengthscales.log(), atol=0.3, rtol=0.0)


def test_predcp_can_be_left_out(fitted):
    dip, y = fitted
    both = [
        LinearizedDIP(dip, "tv", predcp=known).fit(y, method="exact", generator=torch.Generator().manual_seed(0))
        for known in (True, False)
    ]
    assert "expected_variation" not in both[1].history[0]
    assert both[1].history[-1]["evidence"] > both[0].history[-1]["evidence"]


def interrupt_at(gradient, monkeypatch):
    """From now on the learning of a TV prior ends once before that gradient; returns where each was asked for."""
    original, calls = TypeTwo.__call__, []

    def interrupted(self, theta):
        calls.append(theta)
        if len(calls) == gradient:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(TypeTwo, "__call__", interrupted)
    return calls


def test_an_interrupted_fit_goes_on_from_its_em_step(fitted, tmp_path, monkeypatch):
    dip, y = fitted
    path, settings = tmp_path / "fit", TypeTwoMAP(em_steps=2)

    def fit(checkpoint=None):
        post = LinearizedDIP(dip, "tv")
        g = torch.Generator().manual_seed(0)
        return post.fit(y, method="exact", ascent=settings, final_samples=2, generator=g, checkpoint=checkpoint)

    whole = fit()
    calls = interrupt_at(len(whole.history) - 3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(Checkpoint(path, seconds=0.0))
    again = fit(Checkpoint(path, seconds=0.0))
    assert len(calls) == len(whole.history) + 1
    torch.testing.assert_close(again.prior.values, whole.prior.values)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize("method", ["exact", "cg"])
def test_a_checkpoint_of_another_density_or_noise_is_refused(fitted, tmp_path, monkeypatch, method):
    """Their gradients are others, where they start alike."""
    dip, y = fitted

    def fit(**known):
        post, place = LinearizedDIP(dip, "tv", **known), Checkpoint(tmp_path / "fit", seconds=0.0)
        ascent = TypeTwoMAP(steps=6, probes=2)
        return post.fit(y, method=method, ascent=ascent, final_samples=2, generator=7, checkpoint=place)

    with monkeypatch.context() as patch:
        interrupt_at(3, patch)
        with pytest.raises(KeyboardInterrupt):
            fit(noise=0.02)
    with pytest.raises(ValueError, match=r"its noise precision is 50\.0, here it is 25\.0"):
        fit(noise=0.04)
    for other in (0.1, False):
        with pytest.raises(ValueError, match="another solve: its predcp"):
            fit(noise=0.02, predcp=other)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize("method", ["exact", "cg"])
def test_what_was_learnt_outlives_an_interruption_of_the_last_samples(fitted, tmp_path, monkeypatch, method):
    dip, y = fitted

    def fit(checkpoint=None):
        options = {"method": method, "ascent": TypeTwoMAP(steps=6, probes=2), "final_samples": 2}
        return LinearizedDIP(dip, "tv").fit(y, generator=7, checkpoint=checkpoint, **options)

    whole, calls = fit(), interrupt_at(0, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(linearized_dip, "fit_posterior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(Checkpoint(tmp_path / "fit", seconds=3600.0))
    assert len(calls) == len(whole.history)
    again = fit(Checkpoint(tmp_path / "fit", seconds=3600.0))
    assert len(calls) == len(whole.history)
    assert torch.equal(again.deviations, whole.deviations)
    assert not list(tmp_path.iterdir())


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize("gradients", [4, 12])
def test_an_interrupted_fit_by_conjugate_gradients_ends_in_the_same_samples(fitted, tmp_path, monkeypatch, gradients):
    """Before and after the preconditioner was renewed."""
    dip, y = fitted
    path, settings = tmp_path / "fit", TypeTwoMAP(steps=14, probes=2)

    def fit(checkpoint=None):
        g = torch.Generator().manual_seed(0)
        options = {"method": "cg", "ascent": settings, "final_samples": 2, "generator": g}
        return LinearizedDIP(dip, "tv").fit(y, checkpoint=checkpoint, **options)

    whole, calls = fit(), interrupt_at(gradients, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(Checkpoint(path, seconds=0.0))
    again = fit(Checkpoint(path, seconds=0.0))
    assert len(calls) == len(whole.history) + 1
    assert torch.equal(again.prior.values, whole.prior.values)
    assert torch.equal(again.deviations, whole.deviations)
    assert not list(tmp_path.iterdir())


def test_a_rate_holds_images_to_less_variation(fitted):
    dip, y = fitted
    found = [
        LinearizedDIP(dip, "tv", predcp=rate).fit(y, method="exact", generator=torch.Generator().manual_seed(0))
        for rate in (0.01, 1.0)
    ]
    loose, tight = (sum(p.history[-1]["expected_variation"]) / p.predcp for p in found)
    assert tight < loose


def test_how_a_scan_is_learnt_from_goes_by_memory(fitted, monkeypatch):
    tangent = fitted[0].tangent()
    assert learning_method("auto", tangent, 55) == "exact"
    assert learning_method("auto", tangent, 4000) == "cg"
    assert learning_method("exact", tangent, 4000) == "exact"
    monkeypatch.setattr("matheron.tomography.tv_prior.free_memory", lambda device: 1e6)
    assert learning_method("auto", tangent, 55) == "cg"


def test_a_network_without_filters_is_refused():
    A, y, _ = problem()
    dip = DeepImagePrior(A, nn.Conv2d(1, 1, 1), shape=(8, 6)).fit(y, steps=2)
    with pytest.raises(ValueError, match="needs convolution filters"):
        LinearizedDIP(dip, "tv").fit(y)
