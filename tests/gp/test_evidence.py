"""The evidence is the log density of a multivariate normal, and so is its gradient."""

import pytest
import torch
from torch.distributions import MultivariateNormal

import matheron as mt
from matheron.gp import evidence
from matheron.kernels.contraction import contract, low_rank

KERNELS = {
    "RBF": lambda: mt.kernels.RBF([0.5, 2.0], 1.3),
    "Matern12": lambda: mt.kernels.Matern12([0.5, 2.0], 1.3),
    "Matern32": lambda: mt.kernels.Matern32(0.7, 1.3),
    "Matern52": lambda: mt.kernels.Matern52([0.5, 2.0], 1.3),
    "rational": lambda: mt.kernels.RationalQuadratic(0.8, alpha=2.0),
    "composite": lambda: 2.0 * (mt.kernels.RBF(columns=[0]) + mt.kernels.Linear()) + mt.kernels.Matern32([1.0, 3.0]),
    "product": lambda: mt.kernels.Periodic(period=2.0) * mt.kernels.RBF(3.0),
}


def problem(rows=40, outputs=2, dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 2, generator=g, dtype=dtype)
    X[3] = X[4]
    return X, torch.randn(rows, outputs, generator=g, dtype=dtype)


def dense(gp, X, Y):
    eye = torch.eye(len(X), dtype=torch.float64)
    noise = gp.noise.expand(len(X)) if gp.log_noise.ndim == 0 else gp.noise
    mean = gp.mean.expand(Y.shape[1])
    return sum(
        MultivariateNormal(mean[c].expand(len(X)), gp.kernel(X) + noise * eye).log_prob(Y[:, c])
        for c in range(Y.shape[1])
    )


@pytest.mark.parametrize("name", KERNELS)
def test_value_and_gradient_are_those_of_the_density(name):
    X, Y = problem()
    gp = mt.GaussianProcess(KERNELS[name](), noise=0.3, mean=torch.tensor([0.1, -0.4]))
    ours, twin = gp.log_evidence(X, Y), dense(gp, X, Y)
    torch.testing.assert_close(ours, twin)
    parameters = list(gp.parameters())
    for mine, theirs in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(twin, parameters), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8)


def test_gradients_are_those_of_finite_differences():
    X, Y = problem(12, 1)
    kernel = mt.kernels.Matern32([0.5, 2.0])

    def value(noise, mean):
        return evidence.log_evidence(kernel, X, Y, noise, mean)

    noise = torch.linspace(0.1, 0.5, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(value, (noise, torch.zeros(1, dtype=torch.float64, requires_grad=True)))


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_in_the_data_are_those_of_the_density(name):
    X, Y = problem(1100 if name == "Matern32" else 40)
    X[3] += 0.1
    gp = mt.GaussianProcess(KERNELS[name](), noise=0.3, mean=torch.tensor([0.1, -0.4])).requires_grad_(False)
    leaves = X.requires_grad_(), Y.requires_grad_()
    ours = torch.autograd.grad(gp.log_evidence(X, Y), leaves)
    for mine, theirs in zip(ours, torch.autograd.grad(dense(gp, X, Y), leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def test_features_before_the_kernel_are_learnt_in_units_of_their_own():
    X, Y = problem(dtype=torch.float32)
    scale = torch.tensor(0.7, requires_grad=True)
    gp = mt.GaussianProcess(mt.kernels.RBF(), 0.3, standardize=True).fit(X, Y, "exact", steps=1)
    gp.log_evidence(scale * X, Y).backward()
    step = 1e-2
    up, down = (gp.log_evidence((0.7 + sign * step) * X, Y).item() for sign in (1.0, -1.0))
    torch.testing.assert_close(scale.grad.item(), (up - down) / (2 * step), rtol=1e-2, atol=1e-2)


def test_second_derivatives_are_refused_and_not_wrong():
    X, Y = problem()
    gp = mt.GaussianProcess(mt.kernels.RBF(), noise=0.3)
    with pytest.raises(RuntimeError, match="the log evidence can be differentiated once"):
        torch.autograd.grad(gp.log_evidence(X, Y), gp.log_noise, create_graph=True)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rows", [1, 30, 1100])
def test_contractions_are_gradients_of_the_weighted_sum(name, rows):
    kernel = KERNELS[name]()
    X, U = problem(1100, 3)
    X, U = X[-rows:], U[-rows:]
    V = U * torch.tensor([1.0, -0.5, -0.5], dtype=torch.float64)
    found = contract(kernel, X, low_rank(U, V))
    wanted = torch.autograd.grad(((U @ V.mT) * kernel(X)).sum(), list(kernel.parameters()))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-7)


def test_noise_per_row_and_float32_inputs():
    X, Y = problem(dtype=torch.float32)
    gp = mt.GaussianProcess(mt.kernels.RBF(), noise=torch.linspace(0.1, 1.0, 40))
    torch.testing.assert_close(gp.log_evidence(X, Y), dense(gp, X.double(), Y.double()), rtol=1e-6, atol=1e-5)


def test_units_of_the_targets():
    X, Y = problem()
    inside = mt.GaussianProcess(mt.kernels.RBF(), noise=0.3)
    outside = mt.GaussianProcess(mt.kernels.RBF(), noise=0.3, standardize=True)
    units = mt.gp.standardization.Standardization.of(X, Y)
    expected = inside.log_evidence(units.inputs(X), units.targets(Y)) - 40 * units.y_scale.log().sum()
    torch.testing.assert_close(outside.log_evidence(X, Y), expected)


def test_what_does_not_fit_is_refused_with_sizes(monkeypatch):
    monkeypatch.setattr(evidence, "free_memory", lambda device: 8 * 2**10)
    gp = mt.GaussianProcess(mt.kernels.RBF())
    with pytest.raises(MemoryError, match=r"40 rows needs .* GiB .*'iterative'"):
        gp.log_evidence(*problem())


def test_without_gradients_none_is_computed(monkeypatch):
    monkeypatch.setattr("matheron.gp.evidence.contract", None)
    X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    gp = mt.GaussianProcess(mt.kernels.RBF())
    with torch.no_grad():
        value = gp.log_evidence(X, X[:, 0])
    monkeypatch.undo()
    torch.testing.assert_close(value, gp.log_evidence(X, X[:, 0]).detach())
