"""Samples and modes through the rows, against those through ``H``."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.linear import (
    BernoulliCurvature,
    DiagonalPrior,
    DualSolve,
    GaussianCurvature,
    StoredData,
    draw_regularizers,
    solve_dense,
    solve_dual,
)
from matheron.linear.dual import RowKernel
from matheron.operators import Dense
from matheron.solvers import CG, Cholesky
from tests.linear.test_sampling import Counted
from tests.linear.twins import DOUBLE, LogisticData, gaussian, logistic, normal, of_data, prior, softmax

TIGHT = DualSolve(solver=CG(tolerance=1e-9), newton_tolerance=1e-8)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 8), d=st.integers(1, 12), batch_size=st.integers(1, 8), seed=st.integers(0, 99))
def test_it_solves_what_the_weights_solve(n, d, batch_size, seed):
    data, _, _ = gaussian(n, d, seed=seed, batch_size=batch_size)
    drawn = draw_regularizers(data, 2, torch.Generator().manual_seed(seed), mode=True, keep_noise=True)
    exact, found = solve_dense(data, prior(0.7, d), drawn), solve_dual(data, prior(0.7, d), drawn, settings=TIGHT)
    torch.testing.assert_close(found.samples, exact.samples, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-5, atol=1e-7)
    assert found.converged


def test_cholesky_serves_too(generator):
    data, _, _ = gaussian(20, 30)
    drawn = draw_regularizers(data, 2, generator, mode=True, keep_noise=True)
    found = solve_dual(data, prior(0.7, 30), drawn, solver=Cholesky())
    torch.testing.assert_close(found.samples, solve_dense(data, prior(0.7, 30), drawn).samples)


@pytest.mark.parametrize("a", [0.05, 1.0])
@pytest.mark.parametrize("make", [logistic, softmax])
def test_curvature_without_an_inverse_and_modes_by_newton(make, a, generator):
    data = make(batch_size=9)[0]
    drawn = draw_regularizers(data, 2, generator, mode=True, keep_noise=True)
    exact, found = solve_dense(data, prior(a, 6), drawn), solve_dual(data, prior(a, 6), drawn, settings=TIGHT)
    torch.testing.assert_close(found.samples, exact.samples, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-4, atol=1e-6)


def test_data_that_are_sure_of_their_label_still_pull():
    """With ``B`` zero to rounding at some data, their gradient is not in its range."""
    g = of_data(0)
    Phi, Y = 40.0 * normal(6, 9, generator=g), torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0], dtype=DOUBLE)
    data = LogisticData(Dense(Phi), BernoulliCurvature(torch.full((6,), 0.5, dtype=DOUBLE)), Y)
    drawn = draw_regularizers(data, 1, g, mode=True, keep_noise=True)
    exact = solve_dense(data, prior(1e-2, 9), drawn)
    found = solve_dual(data, prior(1e-2, 9), drawn, settings=TIGHT)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_strong_data_do_not_cancel():
    """Samples are as good as the residual, also where what the data leave of them is small."""
    data, _, _ = gaussian(20, 40, precision=1e6)
    drawn = draw_regularizers(data, 4, torch.Generator().manual_seed(0), mode=True, keep_noise=True)
    found = solve_dual(data, prior(1.0, 40), drawn, solver=CG(tolerance=1e-3))
    exact = solve_dense(data, prior(1.0, 40), drawn)
    assert float((found.samples - exact.samples).norm() / exact.samples.norm()) < 1e-2


def test_a_wide_prior_in_single_precision_is_factorized_without_a_fault():
    """``LᵀKL`` of 10⁸ beside ``I``: in float32 rounding alone would make the sum indefinite."""
    once = gaussian(20, 40, dtype=torch.float32)[1]
    Phi = torch.cat([once, once])
    data = StoredData(Dense(Phi), GaussianCurvature(2.0, 40), Phi.sum(1))
    drawn = draw_regularizers(data, 3, torch.Generator().manual_seed(0), mode=True, keep_noise=True)
    wide = DiagonalPrior(1e-7, num_weights=40)
    matrix = 2e7 * (Phi.double() @ Phi.mT.double())
    assert bool(torch.linalg.cholesky_ex(matrix.float() + torch.eye(40)).info)
    torch.testing.assert_close(RowKernel(data, wide).upper(), matrix, rtol=1e-6, atol=1e3)
    found = solve_dual(data, wide, drawn, solver=Cholesky())
    torch.testing.assert_close(Phi @ found.mode, Phi.sum(1), rtol=1e-2, atol=1e-2)


def test_the_matrix_is_made_of_a_few_rows_at_a_time(monkeypatch):
    """All of ``ΦR`` stands there once, and what goes into it and comes out of it in parts."""
    data, Phi, _ = gaussian(20, 30, batch_size=7)
    p, widths = prior(torch.tensor([0.5, 2.0]), 30, groups=torch.arange(30) % 2), []
    root = p.root
    monkeypatch.setattr(p, "root", lambda U: widths.append(U.shape[1]) or root(U))
    monkeypatch.setattr("matheron.linear.dual.ENTRIES", 100)
    kernel = RowKernel(data, p)
    torch.testing.assert_close(kernel.upper(), 2.0 * Phi @ p.covariance(Phi.mT))
    assert widths == [3, 3, 1, 3, 3, 1, 3, 3]
    assert kernel.epochs == 1.0


@pytest.mark.parametrize("make", [gaussian, logistic])
def test_every_pass_is_counted(make):
    data = make(batch_size=13)[0]
    data.features = Counted(data.features.dense())
    Counted.count = 0
    found = solve_dual(data, prior(1.0, data.num_weights), 2, generator=torch.Generator().manual_seed(0))
    assert found.epochs == pytest.approx(Counted.count / (2 * data.num_rows))


@pytest.mark.parametrize("make", [gaussian, logistic])
def test_a_warm_start_saves_work_and_changes_nothing(make, generator):
    data = make(30, batch_size=9)[0]
    d = data.num_weights
    drawn = draw_regularizers(data, 2, generator, mode=True, keep_noise=True)
    first = solve_dual(data, prior(1.0, d), drawn, settings=TIGHT)
    cold = solve_dual(data, prior(1.01, d), drawn, settings=TIGHT)
    warm = solve_dual(data, prior(1.01, d), drawn, warm=first, settings=TIGHT)
    torch.testing.assert_close(warm.samples, cold.samples, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(warm.mode, cold.mode, rtol=1e-5, atol=1e-7)
    assert warm.epochs <= cold.epochs


@pytest.mark.usefixtures("unchecked")
def test_noise_has_to_be_kept(generator):
    data = StoredData(Dense(torch.ones(3, 2, dtype=DOUBLE)), GaussianCurvature(1.0, 3, dtype=DOUBLE))
    with pytest.raises(ValueError, match="keep_noise=True"):
        solve_dual(data, prior(1.0, 2), draw_regularizers(data, 2, generator), mode=False)
