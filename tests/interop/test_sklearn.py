import copy
import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'matheron[sklearn]'")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimators_unfitted, parametrize_with_checks

import matheron as mt
from matheron.interop.sklearn import GaussianProcessRegressor
from matheron.kernels import RBF, Kernel, Linear, Matern32
from matheron.kernels.feature_map import NoFeaturesError
from tests.gp import twins


def problem(n: int = 80, d: int = 2, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.uniform(0, 4, (n, d))
    return X, np.sin(X.sum(1)) + 0.1 * random.normal(size=n), random.uniform(0, 4, (11, d))


@pytest.mark.usefixtures("unchecked")
@parametrize_with_checks([GaussianProcessRegressor()])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_an_unfitted_one_says_so():
    # scikit-learn leaves this check out by name, as its own estimator of that name predicts from the prior.
    check_estimators_unfitted("Regressor", GaussianProcessRegressor())
    with pytest.raises(NotFittedError):
        GaussianProcessRegressor().sample_y(np.zeros((2, 1)))


def test_given_hyperparameters_give_the_posterior_of_the_dense_twin():
    X, y, x = problem()
    model = GaussianProcessRegressor(RBF(1.3), noise=0.05, method=None, standardize=False).fit(X, y)
    mean, covariance = twins.posterior(
        twins.rbf(1.3), *map(torch.from_numpy, (X, y)), torch.tensor(0.05).double(), torch.from_numpy(x)
    )
    found, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(std, covariance.diagonal().sqrt(), rtol=1e-6)
    np.testing.assert_allclose(model.predict(x, return_cov=True)[1], covariance, rtol=1e-6, atol=1e-8)
    assert model.noise_ == pytest.approx(0.05)


def test_it_agrees_with_scikit_learn_at_the_hyperparameters_of_either():
    from sklearn.gaussian_process import GaussianProcessRegressor as Theirs
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    X, y, x = problem()
    theirs = Theirs(ConstantKernel(2.0) * Matern([0.7, 1.5], nu=1.5), alpha=0.03, optimizer=None).fit(X, y)
    ours = GaussianProcessRegressor(Matern32([0.7, 1.5], variance=2.0), noise=0.03, method=None, standardize=False).fit(
        X, y
    )
    for a, b in zip(ours.predict(x, return_std=True), theirs.predict(x, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_targets_of_different_scales(dtype):
    X, y, x = problem()
    Y = np.stack([y, 100 * y - 7], 1)
    model = GaussianProcessRegressor(dtype=dtype, random_state=0).fit(X, Y)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (11, 2)
    assert mean.dtype == std.dtype == np.dtype(dtype)
    covariance = model.predict(x, return_cov=True)[1]
    assert covariance.shape == (11, 11, 2)
    np.testing.assert_allclose(np.sqrt(np.einsum("iic->ic", covariance)), std, rtol=1e-3)
    np.testing.assert_allclose(covariance[..., 1], 1e4 * covariance[..., 0], rtol=1e-3)
    assert model.noise_[1] == pytest.approx(1e4 * model.noise_[0])
    assert model.sample_y(x, 3).shape == (11, 2, 3)
    np.testing.assert_array_equal(model.predict(x), mean)


def test_samples_are_the_same_functions_at_every_call():
    X, y, x = problem()
    model = GaussianProcessRegressor(num_samples=8, random_state=0).fit(X, y)
    samples = model.sample_y(x, 8)
    np.testing.assert_allclose(model.sample_y(x[:3], 5), samples[:3, :5], rtol=1e-10)
    shuffled = model.sample_y(x, 8, random_state=1)
    assert not np.array_equal(shuffled, samples)
    np.testing.assert_array_equal(np.sort(shuffled, 1), np.sort(samples, 1))
    again = GaussianProcessRegressor(num_samples=8, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.sample_y(x, 8), samples)
    with pytest.raises(ValueError, match="set num_samples=9"):
        model.sample_y(x, 9)


def test_fit_leaves_the_kernel_it_was_given_alone():
    X, y, _ = problem()
    kernel = Matern32([1.0, 1.0]) + Linear()
    before = copy.deepcopy(kernel.state_dict())
    model = GaussianProcessRegressor(kernel).fit(X, y)
    for name, value in kernel.state_dict().items():
        assert torch.equal(value, before[name])
    assert not torch.equal(model.kernel_.parts[0].lengthscale, kernel.parts[0].lengthscale)
    copied = clone(model)
    assert copied.kernel is not kernel
    assert not hasattr(copied, "posterior_")


def test_a_fitted_one_survives_pickle():
    X, y, x = problem()
    model = GaussianProcessRegressor(RBF([1.0, 1.0]), inducing=20, random_state=0).fit(X, y)
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(x), model.predict(x))
    np.testing.assert_array_equal(restored.sample_y(x, 5), model.sample_y(x, 5))


def test_pipelines_and_searches():
    X, y, x = problem()
    kept = GaussianProcessRegressor(method=None, random_state=0)
    pipeline = make_pipeline(StandardScaler(), PolynomialFeatures(2), kept)
    assert pipeline.fit(X, y).predict(x).shape == (11,)
    grid = {"noise": [0.01, 10.0], "kernel": [RBF(1.0), RBF(0.5) + Linear()]}
    search = GridSearchCV(kept, grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_["noise"] == 0.01
    assert search.best_score_ > 0.8
    assert cross_val_score(GaussianProcessRegressor(random_state=0), X, y, cv=3).min() > 0.8


def test_names_of_columns():
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    X, y, x = problem()
    model = GaussianProcessRegressor(method=None).fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pandas.DataFrame(x, columns=["b", "a"]))


def test_known_noise_and_inducing_points_as_arrays():
    X, y, x = problem()
    known = GaussianProcessRegressor(RBF(1.0), noise=np.full(len(X), 0.02), method=None, inducing=X[:40]).fit(X, y)
    assert known.posterior_.report.inducing == 40
    assert known.predict(x).shape == (11,)
    assert not hasattr(known, "noise_")
    assert hasattr(known.set_params(noise=0.02).fit(X, y), "noise_")
    assert not hasattr(known.set_params(noise=np.full(len(X), 0.02)).fit(X, y), "noise_")


class Brownian(Kernel):
    def covariance(self, x, z):
        return torch.minimum(x, z.mT)

    def diagonal(self, x):
        return x[:, 0]


@pytest.mark.parametrize("solver", ["auto", mt.solvers.CG(tolerance=1e-6)], ids=repr)
def test_a_kernel_without_features(solver):
    X, y, x = problem(d=1)
    model = GaussianProcessRegressor(Brownian(), method=None, standardize=False, solver=solver)
    with pytest.raises(NoFeaturesError, match="num_samples=0"):
        model.fit(X, y)
    _, std = model.set_params(num_samples=0).fit(X, y).predict(x, return_std=True)
    np.testing.assert_allclose(np.diag(model.predict(x, return_cov=True)[1]), std**2, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="0 functions were drawn"):
        model.sample_y(x)


def test_refusals_name_the_argument(unchecked):
    X, y, x = problem()
    with pytest.raises(ValueError, match="dtype must be"):
        GaussianProcessRegressor(dtype="float16").fit(X, y)
    with pytest.raises(ValueError, match="ask for one"):
        GaussianProcessRegressor(method=None).fit(X, y).predict(x, return_std=True, return_cov=True)
    with pytest.raises(TypeError, match=r"kernel must be one of matheron\.kernels"):
        GaussianProcessRegressor("rbf").fit(X, y)
