import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import matheron as mt
from matheron.gp import conditioning, neighbors


@given(n=st.integers(1, 40), m=st.integers(1, 40), each=st.integers(0, 5), block=st.integers(1, 50))
def test_neighbors_are_those_of_largest_correlation(n, m, each, block):
    g = torch.Generator().manual_seed(n * m + each)
    X, Z = (torch.randn(rows, 2, dtype=torch.float64, generator=g) for rows in (n, m))
    kernel = mt.kernels.Linear() + mt.kernels.Matern32(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "BLOCK", block)
        found = neighbors.neighbors(kernel, X, Z, each)
    correlation = kernel(X, Z).abs() / kernel.diagonal(Z).sqrt()
    expected = correlation.argsort(dim=1, descending=True)[:, :each].unique()
    assert found.tolist() == expected.tolist()


def two_posteriors(solver):
    """Of 400 rows, and of 40 more, with the systems behind them."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(440, 2, dtype=torch.float64, generator=g)
    y = (6 * X).sin().sum(1) + 0.1 * torch.randn(440, dtype=torch.float64, generator=g)
    gp = mt.GaussianProcess(mt.kernels.Matern32(0.3), noise=0.01)
    first = gp.condition(X[:400], y[:400], num_samples=3, solver=solver, generator=g)
    return first, first.condition_on(X[400:], y[400:], generator=g)


def left_over(system, weights):
    """``[y − m | f(X) + ε] − (K + N) α``."""
    return system.targets - system.system() @ weights


def test_new_rows_begin_where_their_own_equations_hold():
    first, more = two_posteriors(mt.solvers.CG(tolerance=1e-6))
    system = more.conditioning
    old = torch.cat([first.paths.mean_weights, first.paths.sample_weights], dim=1)
    guess, entries = system.padded(old)
    assert entries < 0.3 * 440**2
    zero = torch.cat([old, old.new_zeros(40, old.shape[1])])
    begun, from_zero = left_over(system, guess), left_over(system, zero)
    assert float(begun[400:].abs().max()) < 1e-9
    touched = (guess - zero).abs().sum(1) > 0
    near = neighbors.neighbors(system.kernel, system.X[400:], system.X[:400], 1)
    assert touched.nonzero()[:, 0].tolist() == [*near.tolist(), *range(400, 440)]
    torch.testing.assert_close(begun[near], from_zero[near], atol=1e-9, rtol=0)
    # Conjugate gradients go down in energy, and so does a solve of some equations with all else held fixed.
    alone = zero.clone()
    alone[400:] = torch.linalg.solve(system.system().block(slice(400, 440)), from_zero[400:])
    assert bool((energy(system, guess) < energy(system, alone)).all())
    assert bool((energy(system, alone) < energy(system, zero)).all())


def energy(system, weights):
    """``½ αᵀ(K + N)α − αᵀz``, least at the solution."""
    return (weights * (0.5 * (system.system() @ weights) - system.targets)).sum(0)


def test_a_factorization_needs_no_guess(monkeypatch):
    monkeypatch.setattr(conditioning, "neighbors", lambda *arguments: pytest.fail("looked for neighbors"))
    for solver in ("auto", mt.solvers.Cholesky()):
        assert two_posteriors(solver)[1].report.converged


def test_very_many_new_rows_begin_at_zero(monkeypatch):
    monkeypatch.setattr(conditioning, "MOST_PADDED", 39)
    first, more = two_posteriors(mt.solvers.CG(tolerance=1e-4))
    old = torch.cat([first.paths.mean_weights, first.paths.sample_weights], dim=1)
    guess, entries = more.conditioning.padded(old)
    assert entries == 0
    assert not guess[400:].any()
