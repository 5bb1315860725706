"""Variances by one more solve: of second order in its error, the same at every call, from factors if there are some."""

import warnings

import pytest
import torch

import matheron as mt
from matheron.kernels import RBF
from tests.gp import twins
from tests.gp.test_posterior import NOISE, problem


@pytest.fixture(scope="module")
def rough():
    """A posterior by a solver that stops early, points, and their true covariance."""
    X, y, x = problem(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        post = mt.GaussianProcess(RBF(0.7), 0.05).condition(
            X, y, num_samples=2, solver=mt.solvers.SDD(epochs=150, batch=64, tolerance=1e-4)
        )
        covariance = post.covariance(x, exact=True)
        assert torch.equal(post.covariance(x, exact=True), covariance)
    return covariance, twins.posterior(twins.rbf(0.7), X, y, NOISE, x)[1]


def test_a_rough_solve_errs_towards_more_variance_and_symmetrically(rough):
    found, truth = rough
    assert torch.equal(found, found.mT)
    surplus = torch.linalg.eigvalsh(found - truth)
    assert surplus.min() > -1e-9
    # Far from solved, as the test means it to be, and yet close.
    assert 1e-6 < surplus.max() < 0.05 * truth.diagonal().max()


def test_inducing_points_by_descent_have_exact_variances_too():
    X, y, x = problem(300)
    gp, Z = mt.GaussianProcess(RBF(1.0), 0.05), X[::10]
    factorized = gp.condition(X, y, inducing=Z, num_samples=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        descended = gp.condition(X, y, inducing=Z, num_samples=2, solver=mt.gp.InducingSGD(epochs=1, batch=64))
    torch.testing.assert_close(descended.variance(x, exact=True), factorized.variance(x))
    torch.testing.assert_close(descended.covariance(x, exact=True), factorized.covariance(x))


def test_outputs_of_different_scales_have_a_covariance_each():
    X, y, x = problem(50)
    Y = torch.stack([y, 10 * y], 1)
    post = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True).condition(X, Y, num_samples=2)
    found = post.covariance(x)
    assert found.shape == (17, 17, 2)
    torch.testing.assert_close(found[..., 1], 100 * found[..., 0])
    torch.testing.assert_close(found.diagonal().mT, post.variance(x))


def test_the_jitter_of_the_solve_is_that_of_its_variances():
    X = torch.ones(6, 1, dtype=torch.float64)
    solver = mt.solvers.Cholesky(jitter=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        post = mt.GaussianProcess(RBF(1.0), 1e-18).condition(X, X[:, 0], num_samples=2, solver=solver)
    assert post.variance(X).isfinite().all()
