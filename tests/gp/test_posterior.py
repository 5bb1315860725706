import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import matheron as mt
from matheron.kernels import RBF, Matern32, Tanimoto
from tests.gp import twins

NOISE = torch.tensor(0.05, dtype=torch.float64)


def problem(n: int = 60, d: int = 2, outputs: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float64):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=dtype) * 4
    y = torch.sin(X.sum(1)) + 0.2 * torch.randn(n, generator=g, dtype=dtype)
    if outputs is not None:
        y = torch.stack([y * (i + 1) + i for i in range(outputs)], 1)
    return X, y, torch.rand(17, d, generator=g, dtype=dtype) * 5


@given(n=st.integers(2, 40), d=st.integers(1, 4), center=st.floats(-2, 2))
def test_exact_posterior_is_that_of_the_dense_twin(n, d, center):
    X, y, x = problem(n, d)
    post = mt.GaussianProcess(RBF(1.3), 0.05, mean=center).condition(X, y, num_samples=2)
    mean, covariance = twins.posterior(twins.rbf(1.3), X, y, NOISE, x, center)
    torch.testing.assert_close(post.mean(x), mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(post.covariance(x), covariance, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(post.variance(x), covariance.diagonal(), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(post.predict(x).variance, covariance.diagonal() + 0.05, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "solver", [mt.solvers.CG(tolerance=1e-6), mt.solvers.SketchAndProject(tolerance=1e-3, epochs=500), "auto"], ids=repr
)
def test_moments_of_the_functions_are_those_of_the_posterior(solver):
    X, y, x = problem()
    g = torch.Generator().manual_seed(1)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(
        X, y, num_samples=4000, num_features=4000, solver=solver, generator=g
    )
    mean, covariance = twins.posterior(twins.rbf(1.0), X, y, NOISE, x)
    variance = covariance.diagonal()
    samples = post.sample(x)
    error = samples.mean(0) - mean
    assert (error.abs() < 5 * (variance / 4000).sqrt() + 2e-3).all()
    spread = (samples - samples.mean(0)).square().mean(0)
    # Four thousand draws, of a prior whose own covariance is right to 1/√features.
    assert ((spread / variance).log().abs() < 5 * math.sqrt(2 / 4000) + 5 / math.sqrt(4000)).all()
    empirical = post.variance(x, exact=False)
    torch.testing.assert_close(empirical, (samples - post.mean(x)).square().mean(0))


def test_mean_and_samples_agree_between_solvers():
    X, y, x = problem(200)
    gp = mt.GaussianProcess(Matern32(torch.ones(2)), 0.05)
    posts = [
        gp.condition(X, y, num_samples=5, solver=solver, generator=torch.Generator().manual_seed(0))
        for solver in (mt.solvers.Cholesky(), mt.solvers.CG(tolerance=1e-8))
    ]
    torch.testing.assert_close(posts[0].sample(x), posts[1].sample(x), rtol=1e-5, atol=1e-5)
    assert posts[0].report.variance == "exact"
    assert "zero-mean" in posts[1].report.variance


def test_primal_descent_is_told_which_part_of_its_targets_is_noise(monkeypatch):
    seen = {}

    def solve(self, system, Z, *, noise, original=mt.solvers.SGD.solve, **options):
        seen.update(targets=Z, noise=noise)
        return original(self, system, Z, noise=noise, **options)

    monkeypatch.setattr(mt.solvers.SGD, "solve", solve)
    X, y, x = problem(120)
    gp, solver = mt.GaussianProcess(RBF(1.0), 0.5), mt.solvers.SGD(epochs=300, batch=32, tolerance=0.2)
    post = gp.condition(X, y, num_samples=30, solver=solver, generator=3)
    assert not seen["noise"][:, 0].any()
    torch.testing.assert_close(seen["targets"][:, 1:] - seen["noise"][:, 1:], post.paths.prior(X))
    assert 0.4 < seen["noise"][:, 1:].var() < 0.6
    exact = gp.condition(X, y, num_samples=30, solver=mt.solvers.Cholesky(), generator=3)
    error = (post.sample(x) - exact.sample(x)).square().mean().sqrt()
    assert error < 0.5 * exact.variance(x).mean().sqrt()


def test_exact_variances_can_be_asked_for_by_one_more_solve():
    X, y, x = problem(100)
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    post = gp.condition(X, y, num_samples=4, solver=mt.solvers.CG(tolerance=1e-8))
    _, covariance = twins.posterior(twins.rbf(1.0), X, y, NOISE, x)
    torch.testing.assert_close(post.variance(x, exact=True), covariance.diagonal(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(post.covariance(x, exact=True), covariance, rtol=1e-4, atol=1e-6)
    leaf = x[:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda at: post.variance(at, exact=True), leaf, atol=1e-4)
    assert torch.autograd.gradcheck(lambda at: post.covariance(at, exact=True), leaf, atol=1e-4)
    with pytest.raises(ValueError, match="at most 1000"):
        post.variance(x.repeat(100, 1), exact=True)


def test_variance_is_never_negative_where_rounding_could_make_it_so():
    X = torch.linspace(0, 1, 400)[:, None]
    post = mt.GaussianProcess(RBF(5.0), 1e-6).condition(X, X[:, 0], num_samples=2)
    assert (post.variance(X) >= 0).all()
    assert (post.predict(X).variance > 0).all()


def test_several_outputs_share_one_solve():
    X, Y, x = problem(outputs=3)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, Y, num_samples=4)
    assert post.mean(x).shape == (17, 3)
    assert post.sample(x).shape == (4, 17, 3)
    assert post.predict(x).variance.shape == (17, 3)
    assert post.paths[1](x).shape == (17, 3)
    for i in range(3):
        mean, covariance = twins.posterior(twins.rbf(1.0), X, Y[:, i], NOISE, x)
        torch.testing.assert_close(post.mean(x)[:, i], mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(post.variance(x)[:, i], covariance.diagonal(), rtol=1e-7, atol=1e-8)
    one = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, Y[:, :1], num_samples=4)
    assert one.sample(x).shape == (4, 17, 1)


def test_noise_per_row():
    X, y, x = problem()
    noise = torch.linspace(0.01, 1.0, len(X), dtype=torch.float64)
    mean, _ = twins.posterior(twins.rbf(1.0), X, y, noise, x)
    for post in (
        mt.GaussianProcess(RBF(1.0), noise).condition(X, y, num_samples=2),
        mt.GaussianProcess(RBF(1.0), 7.0).condition(X, y, num_samples=2, noise=noise),
    ):
        torch.testing.assert_close(post.mean(x), mean, rtol=1e-8, atol=1e-8)
        with pytest.raises(ValueError, match="noise is missing"):
            post.predict(x)
        with pytest.raises(ValueError, match="noise is missing"):
            post.condition_on(x, torch.zeros(len(x), dtype=x.dtype))
        known = post.predict(x, noise=torch.ones(len(x), dtype=x.dtype))
        torch.testing.assert_close(known.variance, post.variance(x) + 1.0)


@pytest.mark.parametrize("noise", [0.05, torch.tensor([0.05])])
def test_one_variance_stands_for_all_rows_however_it_is_given(noise):
    X, y, x = problem()
    wanted = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=2).predict(x).variance
    given = mt.GaussianProcess(RBF(1.0), noise)
    assert given.log_noise.ndim == 0
    assert given.log_noise.requires_grad
    torch.testing.assert_close(given.condition(X, y, num_samples=2).predict(x).variance, wanted)
    post = mt.GaussianProcess(RBF(1.0), 3.0).condition(X, y, num_samples=2, noise=noise)
    torch.testing.assert_close(post.predict(x).variance, wanted)
    assert post.condition_on(X[:2], y[:2]).report.rows == len(X) + 2


def test_known_errors_are_not_learnt_whenever_they_are_given():
    X, y, _ = problem()
    gp = mt.GaussianProcess(RBF(1.0))
    gp.noise = torch.full((len(X),), 0.05)
    gp.fit(X, y)
    torch.testing.assert_close(gp.noise, torch.full((len(X),), 0.05).double())
    gp.noise = 0.1
    assert gp.log_noise.ndim == 0
    assert gp.log_noise.requires_grad


def test_one_noise_for_outputs_of_different_scales_is_refused():
    X, y, _ = problem(outputs=2)
    post = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True).condition(
        X, y * torch.tensor([1.0, 9.0]), num_samples=1
    )
    with pytest.raises(ValueError, match="outputs of one scale"):
        post.condition_on(X, y, noise=1.0)


def test_other_columns_than_in_the_fit_are_refused():
    X, y, _ = problem(d=1)
    gp = mt.GaussianProcess(RBF(1.0), standardize=True).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 columns but the process was fitted to 1"):
        gp.condition(X.expand(-1, 3), y)


def test_a_row_with_a_gradient_leaves_none_in_the_posterior():
    X, y, x = problem()
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=2)
    more = post.condition_on(x[:1].clone().requires_grad_(), y[:1])
    assert not more.mean(x).requires_grad
    assert torch.equal(copy.deepcopy(more).mean(x), more.mean(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inference_mode(dtype):
    X, y, x = problem(dtype=dtype)
    post = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True).condition(X, y, num_samples=2)
    with torch.inference_mode():
        inside = post.predict(x + 0.0).mean
        made = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True).condition(X + 0.0, y + 0.0, num_samples=2)
        made = made.condition_on(X[:2] + 0.0, y[:2])
    torch.testing.assert_close(inside.clone(), post.predict(x).mean)
    for question in (post.variance, made.mean, made.variance, made.paths):
        leaf = x.clone().requires_grad_()
        question(leaf).sum().backward()
        assert leaf.grad.isfinite().all()


def test_a_dtype_is_that_of_inputs_and_answers():
    X, y, x = problem()
    post = mt.GaussianProcess(RBF(1.0), 1e-6).condition(X, y, num_samples=3)
    mean, samples, variance = post.mean(x), post.sample(x), post.variance(x)
    one = post.paths[1].float()
    torch.testing.assert_close(one(x.float()), samples[1].float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(post.sample(x), samples, rtol=0.0, atol=0.0)
    moved = copy.deepcopy(post).float()
    assert moved.sample(x.float()).dtype == torch.float32
    torch.testing.assert_close(moved.mean(x.float()), mean.float(), rtol=1e-4, atol=1e-4)
    assert moved.condition_on(x.float(), y[: len(x)].float()).mean(x.float()).dtype == torch.float32
    back = moved.double()
    torch.testing.assert_close(back.mean(x), mean, rtol=0.0, atol=0.0)
    torch.testing.assert_close(back.variance(x), variance, rtol=1e-12, atol=1e-12)
    with pytest.raises(TypeError, match="too coarse"):
        post.half()


@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_of_numpy_are_whole_numbers():
    X, y, x = problem()
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=np.int64(3), inducing=np.int64(10))
    assert post.sample(x).shape == (3, 17)
    assert post.report.inducing == 10


def test_standardize_makes_units_irrelevant():
    X, y, x = problem()
    plain = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True)
    moved = copy.deepcopy(plain)
    g = torch.Generator()
    first = plain.condition(X, y, num_samples=3, generator=g.manual_seed(0))
    shift, scale = torch.tensor([1e4, -3.0]), torch.tensor([20.0, 1e-3])
    second = moved.condition(X * scale + shift, 100 * y - 7, num_samples=3, generator=g.manual_seed(0))
    other = x * scale + shift
    torch.testing.assert_close(second.mean(other), 100 * first.mean(x) - 7, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(second.sample(other), 100 * first.sample(x) - 7, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(second.predict(other).variance, 1e4 * first.predict(x).variance, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(second.covariance(other), 1e4 * first.covariance(x), rtol=1e-6, atol=1e-6)


def test_constant_columns_constant_targets_and_duplicated_rows_work():
    X = torch.cat([torch.rand(30, 1).repeat(2, 1), torch.full((60, 1), 7.0)], 1)
    post = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True).condition(X, torch.full((60,), 3.0))
    torch.testing.assert_close(post.mean(X), torch.full((60,), 3.0))
    assert post.sample(X).isfinite().all()


def test_paths_are_the_same_functions_at_every_call_and_differentiable():
    X, y, x = problem()
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=3, solver=mt.solvers.CG(tolerance=1e-6))
    torch.testing.assert_close(post.paths(x)[:, 3:9], post.paths(x[3:9]), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(post.paths[2](x), post.paths(x)[2], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.stack([f(x) for f in post.paths]), post.sample(x), rtol=1e-10, atol=1e-10)
    leaf = x[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(post.paths, leaf)
    assert torch.autograd.gradcheck(post.mean, leaf)
    assert torch.autograd.gradcheck(post.variance, leaf)
    exact = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=0)
    assert torch.autograd.gradcheck(exact.variance, leaf)
    with pytest.raises(RuntimeError, match="functions can be differentiated once"):
        torch.autograd.functional.hessian(lambda at: post.paths[0](at[None])[0], x[0])


def test_a_posterior_stays_what_it_is_when_the_process_changes():
    X, y, x = problem()
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    post = gp.condition(X, y, num_samples=2)
    before = post.mean(x), post.sample(x), post.predict(x).variance
    gp.kernel.lengthscale, gp.noise = 3.0, 0.5
    for now, then in zip((post.mean(x), post.sample(x), post.predict(x).variance), before, strict=True):
        assert torch.equal(now, then)


def test_same_seed_same_posterior_and_a_drawn_seed_is_recorded():
    X, y, x = problem()
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    first, second = (gp.condition(X, y, num_samples=2, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.sample(x), second.sample(x))
    fresh = gp.condition(X, y, num_samples=2)
    assert first.report.seed == second.report.seed != fresh.report.seed
    again = gp.condition(X, y, num_samples=2, generator=fresh.report.seed)
    assert torch.equal(again.sample(x), fresh.sample(x))


def test_condition_on_is_conditioning_on_all_rows():
    X, y, x = problem(120)
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    for solver in (mt.solvers.Cholesky(), mt.solvers.CG(tolerance=1e-8)):
        post = gp.condition(X[:100], y[:100], num_samples=3, solver=solver).condition_on(X[100:], y[100:])
        mean, covariance = twins.posterior(twins.rbf(1.0), X, y, NOISE, x)
        torch.testing.assert_close(post.mean(x), mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(post.variance(x, exact=True), covariance.diagonal(), rtol=1e-5, atol=1e-5)
        assert post.report.rows == 120
        assert post.condition_on(x[:1], y[:1]).report.rows == 121


def test_condition_on_keeps_the_functions_behind_the_samples():
    X, y, _ = problem(120)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X[:119], y[:119], num_samples=3)
    far = torch.full((1, 2), 50.0, dtype=torch.float64)
    torch.testing.assert_close(post.condition_on(X[119:], y[119:]).sample(far), post.sample(far))


def test_conditioning_goes_on_where_learning_left_off():
    X, y, _ = problem(400)
    gp, solver = mt.GaussianProcess(RBF(1.0), 0.05), mt.solvers.CG(tolerance=1e-4)
    gp.fit(X, y, "iterative", steps=20, generator=torch.Generator().manual_seed(0))
    functions = gp.warm.draws.functions
    for num in (4, 20):
        warm = gp.condition(X, y, num_samples=num, solver=solver)
        shared = min(num, functions.num)
        assert torch.equal(warm.paths.prior.weights[:, :shared], functions.weights[:, :shared])
    moved = gp.condition(X + 0.1, y, num_samples=4, solver=solver)
    assert not torch.equal(moved.paths.prior.weights, functions.weights[:, :4])
    assert gp.condition(X, y, num_samples=4, inducing=20).report.inducing == 20
    assert warm.report.reused == functions.num
    assert moved.report.reused == 0
    richer = gp.condition(X, y, num_samples=4, solver=solver, num_features=3000).report
    assert (richer.num_features, richer.reused) == (3000, 0)
    few = gp.condition(X, y, num_samples=4, solver=solver).report.epochs
    kernel, gp.kernel = gp.kernel, mt.kernels.Matern12(0.1, variance=9.0)
    other = gp.condition(X, y, num_samples=64)
    far = 1e3 + 1e3 * X
    torch.testing.assert_close(other.sample(far).var(), torch.tensor(9.0, dtype=X.dtype), rtol=0.3, atol=0.0)
    assert other.report.reused == 0
    gp.kernel, gp.warm = kernel, None
    assert few < gp.condition(X, y, num_samples=4, solver=solver).report.epochs


def test_prediction_quantiles_and_density():
    p = mt.gp.Prediction(torch.tensor([1.0]), torch.tensor([4.0]))
    normal = torch.distributions.Normal(1.0, 2.0)
    torch.testing.assert_close(p.quantile(0.1), normal.icdf(torch.tensor([0.1])))
    low, high = p.interval(0.9)
    torch.testing.assert_close(normal.cdf(high) - normal.cdf(low), torch.tensor([0.9]))
    torch.testing.assert_close(p.log_prob(torch.tensor([3.0])), normal.log_prob(torch.tensor([3.0])))
    for wrong in (95.0, 1.0, 0.0):
        with pytest.raises(ValueError, match="p must be a number between 0 and 1"):
            p.interval(wrong)
        with pytest.raises(ValueError, match="p must be a number between 0 and 1"):
            p.quantile(wrong)


def test_tanimoto_on_sparse_rows():
    g = torch.Generator().manual_seed(0)
    X = (torch.rand(40, 30, generator=g) < 0.2).float()
    y = X.sum(1) / 10
    dense = mt.GaussianProcess(Tanimoto(), 0.01).condition(X, y, num_samples=3, generator=g.manual_seed(1))
    sparse = mt.GaussianProcess(Tanimoto(), 0.01).condition(
        X.to_sparse_csr(), y, num_samples=3, generator=g.manual_seed(1)
    )
    torch.testing.assert_close(dense.mean(X), sparse.mean(X.to_sparse_csr()))
    torch.testing.assert_close(dense.sample(X), sparse.sample(X.to_sparse_csr()))


def test_float32_data_with_a_variance_far_above_the_noise_lose_nothing():
    X, y, x = problem(dtype=torch.float32)
    gp = mt.GaussianProcess(Matern32([23.0, 386.0], 1645.0), 0.005)
    post = gp.condition(X, y, num_samples=3)
    exact = gp.condition(X.double(), y.double(), num_samples=0)
    assert post.mean(x).dtype == post.sample(x).dtype == post.predict(x).variance.dtype == torch.float32
    torch.testing.assert_close(post.mean(x), exact.mean(x.double()).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(post.paths(x)[:, 3:9], post.paths(x[3:9]), rtol=1e-5, atol=1e-5)


def test_sparse_rows_can_be_added_and_be_inducing_points():
    g = torch.Generator().manual_seed(0)
    X = (torch.rand(40, 30, generator=g) < 0.3).double()
    y = X[:, :5].sum(1)
    gp, sparse = mt.GaussianProcess(Tanimoto(), 0.1), X.to_sparse_csr()
    more = gp.condition(sparse, y, num_samples=2).condition_on(sparse, y)
    torch.testing.assert_close(more.mean(X), gp.condition(X.repeat(2, 1), y.repeat(2), num_samples=2).mean(X))
    through = gp.condition(sparse, y, num_samples=0, inducing=X[:9].to_sparse_csr())
    torch.testing.assert_close(through.mean(X), gp.condition(X, y, num_samples=0, inducing=X[:9]).mean(X))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": torch.zeros(5)}, ValueError, "y has shape"),
        ({"X": torch.zeros(1, 2), "y": torch.zeros(1)}, ValueError, "X has 1 rows"),
        ({"y": torch.zeros(60).double()}, TypeError, "y is torch.float64 but X is torch.float32"),
        ({"y": torch.zeros(60, dtype=torch.int64)}, TypeError, "y has dtype"),
        ({"y": torch.full((60,), math.nan)}, ValueError, "y has 60 NaN"),
        ({"y": torch.zeros(60, 0)}, ValueError, "y has no columns"),
        ({"X": torch.full((60, 2), math.inf)}, ValueError, "X has 120 NaN or infinite"),
        ({"noise": torch.ones(7)}, ValueError, "noise has shape"),
        ({"noise": -1.0}, ValueError, "noise must be positive"),
        ({"num_samples": -1}, ValueError, "num_samples must be at least 0"),
        ({"solver": "sdd"}, TypeError, "solver must be"),
        ({"generator": "seed"}, TypeError, "generator must be a torch.Generator, a seed or None"),
        ({"noise": "low"}, TypeError, "noise must be a number"),
        ({"num_features": 0}, ValueError, "num_features must be at least 1"),
        ({"checkpoint": 5}, TypeError, "checkpoint must be a path"),
        ({"inducing": np.zeros((3, 2))}, TypeError, "inducing must be a number of points or their locations"),
        ({"X": torch.zeros(60, 2).half()}, TypeError, r"X has dtype torch.float16.*X.float\(\)"),
    ],
)
def test_bad_data_gets_a_clear_error(change, error, message):
    X, y, _ = problem(dtype=torch.float32)
    arguments = {"X": X, "y": y} | change
    with pytest.raises(error, match=message):
        mt.GaussianProcess(RBF(1.0), 0.05).condition(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_bad_questions_get_a_clear_error():
    X, y, x = problem()
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=0)
    for question in (post.sample, post.paths):
        with pytest.raises(ValueError, match="no functions were drawn"):
            question(x)
    with pytest.raises(ValueError, match="x has 3 columns but the training inputs had 2"):
        post.mean(torch.zeros(4, 3, dtype=x.dtype))
    with pytest.raises(TypeError, match=r"x is torch.float32"):
        post.mean(x.float())
    with pytest.raises(ValueError, match="x has no rows"):
        post.mean(x[:0])
    for question in (post.mean, post.covariance):
        with pytest.raises(ValueError, match="x has 34 NaN or infinite entries"):
            question(x / 0.0)
    with pytest.raises(TypeError, match=r"x must be a torch\.Tensor"):
        post.predict(x.numpy(), noise=0.1)
    with pytest.raises(TypeError, match="index must be a whole number"):
        post.paths[0:2]
    for wrong in ({"noise": None}, {"mean": "zero"}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be a number"):
            mt.GaussianProcess(RBF(1.0), **wrong)
    with pytest.raises(ValueError, match=r"noise must be a number or one per row, shape \(n,\)"):
        mt.GaussianProcess(RBF(1.0), noise=torch.ones(2, 2))
    with pytest.raises(TypeError, match="columns must be a sequence of whole numbers"):
        RBF(columns=[0.5])
    with pytest.raises(ValueError, match="y has 2 columns"):
        post.condition_on(x, torch.zeros(len(x), 2, dtype=x.dtype))
    unsolved = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=0, solver=mt.solvers.CG())
    with pytest.raises(ValueError, match="pass exact=True"):
        unsolved.variance(x)
    with pytest.raises(TypeError, match=r"matheron.kernels"):
        mt.GaussianProcess("rbf")
