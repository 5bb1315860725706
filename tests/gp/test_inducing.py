import math
import warnings

import pytest
import torch

import matheron as mt
from matheron.gp import condition, inducing, inducing_sgd, selection
from matheron.kernels import RBF
from tests.gp import twins
from tests.gp.test_posterior import NOISE, problem


def test_posterior_and_bound_are_those_of_titsias():
    X, y, x = problem(150)
    Z = X[::10]
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=2, inducing=Z)
    mean, covariance, bound = twins.titsias(twins.rbf(1.0), X, y, NOISE, Z, x)
    torch.testing.assert_close(post.mean(x), mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(post.covariance(x), covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(post.variance(x), covariance.diagonal(), rtol=1e-6, atol=1e-6)
    assert post.report.evidence_bound == pytest.approx(bound.item(), rel=1e-6)
    assert post.report.inducing == 15


def test_all_rows_as_inducing_points_give_the_exact_posterior():
    X, y, x = problem(40)
    post = mt.GaussianProcess(RBF(0.7), 0.05).condition(X, y, num_samples=2, inducing=X)
    mean, covariance = twins.posterior(twins.rbf(0.7), X, y, NOISE, x)
    torch.testing.assert_close(post.mean(x), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(post.variance(x), covariance.diagonal(), rtol=1e-4, atol=1e-5)


def test_functions_have_the_moments_of_the_posterior():
    X, y, x = problem(150)
    g = torch.Generator().manual_seed(0)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(
        X, y, num_samples=4000, num_features=4000, inducing=X[::15], generator=g
    )
    mean, covariance, _ = twins.titsias(twins.rbf(1.0), X, y, NOISE, X[::15], x)
    variance = covariance.diagonal()
    assert ((post.sample(x).mean(0) - mean).abs() < 5 * (variance / 4000).sqrt() + 1e-3).all()
    assert (
        (post.variance(x, exact=False) / variance).log().abs() < 5 * math.sqrt(2 / 4000) + 5 / math.sqrt(4000)
    ).all()


def test_bound_stays_below_the_evidence_and_grows_with_points_in_any_units():
    X, y, _ = problem(100)
    gp = mt.GaussianProcess(RBF(1.0), 0.05, standardize=True)
    bounds = [gp.condition(X, y, num_samples=0, inducing=X[:m]).report.evidence_bound for m in (5, 20, 60)]
    assert bounds[0] < bounds[1] < bounds[2]
    scaled = gp.condition(10 * X, y * 3, num_samples=0, inducing=10 * X[:20]).report.evidence_bound
    assert scaled == pytest.approx(bounds[1] - 100 * math.log(3), rel=1e-6)


def test_descent_comes_close_to_the_factorization():
    X, y, x = problem(600)
    gp, g = mt.GaussianProcess(RBF(0.7), 0.2), torch.Generator()
    exact = gp.condition(X, y, num_samples=20, inducing=X[::6], generator=g.manual_seed(0))
    solver = mt.gp.InducingSGD(epochs=5, batch=64, tolerance=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        descended = gp.condition(X, y, num_samples=20, inducing=X[::6], solver=solver, generator=g.manual_seed(0))
    inside = x[(x < 4).all(1)]
    spread = exact.variance(inside).sqrt()
    assert ((exact.mean(inside) - descended.mean(inside)).abs() < spread).all()
    # Every function descends to its own target; that uses f for its projection on the inducing points.
    difference = (exact.sample(inside) - descended.sample(inside)).square().mean().sqrt()
    assert difference < 1.5 * spread.square().mean().sqrt()
    assert not descended.exact_variance


def test_descent_makes_thirty_passes_whatever_the_number_of_rows():
    X, y, _ = problem(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        post = mt.GaussianProcess(RBF(1.5), 0.2).condition(X, y, inducing=20, solver=mt.gp.InducingSGD(batch=64))
    # A pass is 20 · 500 entries, some of which go into directions, step and residual.
    assert 20 <= len(post.report.trace) <= 30
    assert 30 * 20 / 500 <= post.report.epochs < 1.5 * 30 * 20 / 500


def test_many_inducing_points_stay_in_the_precision_of_the_data(monkeypatch):
    X, y, _ = problem(300, dtype=torch.float32)
    for module in (inducing, condition):
        monkeypatch.setattr(module, "DIRECT", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        report = mt.GaussianProcess(RBF(1.0), 0.2).condition(X, y, inducing=40, num_samples=2).report
    assert report.precision == "float32"
    assert report.solver.startswith("InducingSGD")


@pytest.mark.parametrize("seed", range(6))
def test_descent_gets_further_with_leading_directions(seed):
    """Both go to one solution; where the data crowd, steps in its leading directions hold up those in all others."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(1500, 1, generator=g, dtype=torch.float64)
    y = (3 * X[:, 0]).sin() + 0.01 * torch.randn(1500, generator=g, dtype=torch.float64)
    gp, Z = mt.GaussianProcess(RBF(0.5), 1e-4), mt.gp.eliminate_neighbors(X, 30)
    best = gp.condition(X, y, num_samples=0, inducing=Z).mean(X)
    error = {}
    for rank in (0, 20):
        solver = mt.gp.InducingSGD(epochs=0.5, batch=64, rank=rank)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
            post = gp.condition(X, y, num_samples=0, inducing=Z, solver=solver, generator=seed)
        assert not any("event" in record for record in post.report.trace)
        error[rank] = float((post.mean(X) - best).square().mean().sqrt())
    assert error[20] < 0.5 * error[0]


def test_descent_that_went_astray_starts_again_from_where_it_was_good(monkeypatch):
    measured = inducing_sgd._Descent.curvature
    monkeypatch.setattr(inducing_sgd._Descent, "curvature", lambda self: measured(self) / 300.0)
    X, y, _ = problem(300)
    gp, solver = mt.GaussianProcess(RBF(0.5), 0.01), mt.gp.InducingSGD(epochs=8, batch=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        post = gp.condition(X, y, num_samples=2, inducing=40, solver=solver, generator=0)
    assert "diverged" in post.report.trace[-1]["event"]
    assert (post.mean(X) - y).square().mean() < 0.5 * y.square().mean()


def test_inducing_numbers_are_chosen_for_the_user():
    X, y, x = problem(300)
    g = torch.Generator().manual_seed(0)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, num_samples=2, inducing=50, generator=g)
    mean, covariance = twins.posterior(twins.rbf(1.0), X, y, NOISE, x)
    assert post.report.inducing == 50
    # A small part of what is uncertain anyway, also beyond the data.
    assert ((post.mean(x) - mean).abs() < 0.5 * covariance.diagonal().sqrt()).all()


def test_points_closer_than_the_lengthscale_on_a_long_line_are_factorized_and_said():
    """Squared distances over a line of 1,000 lengthscales are right to 1e-9 only, more than the least eigenvalue."""
    X = 0.1 * torch.arange(5000.0, dtype=torch.float64)[:, None]
    post = mt.GaussianProcess(RBF(0.5), 0.05).condition(X, X[:, 0].sin(), num_samples=0, inducing=X[::2])
    assert "added 1e-07" in post.report.trace[0]["event"]
    x = X[2000:2100] + 0.05
    assert (post.mean(x) - x[:, 0].sin()).abs().max() < 1e-2
    near = twins.posterior(twins.rbf(0.5), X[1900:2200], X[1900:2200, 0].sin(), NOISE, x)
    torch.testing.assert_close(post.mean(x), near[0], rtol=1e-4, atol=1e-4)


def test_condition_on_more_rows_through_the_same_points():
    X, y, x = problem(120)
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    post = gp.condition(X[:100], y[:100], num_samples=2, inducing=X[::10]).condition_on(X[100:], y[100:])
    mean, covariance, _ = twins.titsias(twins.rbf(1.0), X, y, NOISE, X[::10], x)
    torch.testing.assert_close(post.mean(x), mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(post.variance(x), covariance.diagonal(), rtol=1e-6, atol=1e-6)


def test_exact_variances_by_descent_are_those_of_all_rows():
    X, y, x = problem(120)
    solver = mt.gp.InducingSGD(epochs=1.0, tolerance=1.0)
    post = mt.GaussianProcess(RBF(1.0), 0.05).condition(X[:60], y[:60], num_samples=1, inducing=X[::10], solver=solver)
    before = post.variance(x, exact=True)
    more = post.condition_on(X[60:], y[60:])
    _, covariance, _ = twins.titsias(twins.rbf(1.0), X, y, NOISE, X[::10], x)
    torch.testing.assert_close(more.variance(x, exact=True), covariance.diagonal(), rtol=1e-6, atol=1e-6)
    assert torch.equal(post.variance(x, exact=True), before)
    assert more.report.evidence_bound is None


def test_nearest_rows_by_a_tree_are_those_of_the_table(generator):
    X = torch.randn(700, 3, generator=generator, dtype=torch.float64)
    X[-5:] = X[:5]
    rows = torch.randperm(700, generator=generator)[:400]
    by_tree, by_table = selection._nearest_by_tree(X, rows), selection._nearest_by_table(X, rows)
    torch.testing.assert_close(by_tree[0], by_table[0], rtol=1e-9, atol=1e-12)
    assert torch.equal(by_tree[1], by_table[1])
    assert (by_tree[1] != rows).all()


def test_elimination_keeps_the_number_asked_for_and_spreads_it():
    X = torch.rand(400, 2, generator=torch.Generator().manual_seed(0))
    kept = mt.gp.eliminate_neighbors(X, 100)
    assert kept.shape == (100, 2)
    assert torch.pdist(kept).min() > 2 * torch.pdist(X[:100]).min()


def test_elimination_spreads_evenly_what_is_dense_in_one_place():
    X = torch.randn(3000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = mt.gp.eliminate_neighbors(X, 20)[:, 0].sort().values
    assert len(kept) == 20
    assert kept[0] < X.sort(dim=0).values[5, 0]
    inner = kept[2:-2].diff()  # at the ends the rows themselves have gaps
    assert inner.max() < 4.0 * inner.min()


def test_elimination_drops_copies_first_and_keeps_them_if_it_must():
    X = torch.arange(6.0).repeat(50)[:, None]
    assert mt.gp.eliminate_neighbors(X, 6)[:, 0].sort().values.tolist() == list(range(6))
    assert len(mt.gp.eliminate_neighbors(X, 100)) == 100


def test_k_means_makes_room_for_duplicated_rows():
    X = torch.zeros(50, 2)
    assert mt.gp.k_means(X, 5, torch.Generator().manual_seed(0)).shape == (1, 2)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("inducing", "error", "message"),
    [
        (0, ValueError, "inducing must be at least 1"),
        (61, ValueError, "inducing is 61 but there are 60 rows"),
        (torch.zeros(4, 3).double(), ValueError, "inducing has 3 columns"),
        (torch.zeros(4, 2), TypeError, "inducing is torch.float32"),
    ],
)
def test_bad_inducing_points_get_a_clear_error(inducing, error, message):
    X, y, _ = problem()
    with pytest.raises(error, match=message):
        mt.GaussianProcess(RBF(1.0), 0.05).condition(X, y, inducing=inducing)


def test_noise_lost_beside_the_kernel_is_said():
    X = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(ValueError, match="raise the noise"):
        mt.GaussianProcess(RBF(0.5, variance=1e6), 1e-20).condition(X, X[:, 0], inducing=X[:100], num_samples=0)


def test_selections_take_a_seed_and_name_what_is_wrong():
    X, _, _ = problem()
    assert torch.equal(mt.gp.k_means(X, 5, generator=1), mt.gp.k_means(X, 5, torch.Generator().manual_seed(1)))
    assert mt.gp.k_means(X, 5).shape == (5, 2)
    with pytest.raises(ValueError, match="X has 1 NaN"):
        mt.gp.eliminate_neighbors(torch.where(X[0, 0] == X, torch.nan, X), 5)


def test_solvers_that_do_not_fit_are_refused():
    X, y, _ = problem()
    gp = mt.GaussianProcess(RBF(1.0), 0.05)
    with pytest.raises(TypeError, match="inducing="):
        gp.condition(X, y, solver=mt.gp.InducingSGD())
    with pytest.raises(TypeError, match="with inducing points the solver is"):
        gp.condition(X, y, solver=mt.solvers.SDD(), inducing=10)
