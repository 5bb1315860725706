"""What every solver promises."""

import dataclasses
import warnings

import pytest
import torch

import matheron as mt
from matheron.operators import Dense, Diagonal, KernelOperator
from matheron.solvers import SDD, SGD, Cholesky, ConvergenceWarning, SketchAndProject
from matheron.solvers.system import System
from tests.solvers.problems import ALL, ITERATIVE, STOCHASTIC, exact, name, regression

every = pytest.mark.parametrize("solver", ALL, ids=name)
iterative = pytest.mark.parametrize("solver", ITERATIVE, ids=name)
stochastic = pytest.mark.parametrize("solver", STOCHASTIC, ids=name)


def assert_within_residual(result, truth, Z, noise):
    """``‖α − α*‖ ≤ ‖r‖ / λ_min``, and ``λ_min`` is at least the smallest noise."""
    bound = 1.05 * result.residual * Z.norm(dim=0) / noise + 1e-4
    assert ((result.solution - truth).norm(dim=0) <= bound).all()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_dense_twin(solver, dtype, generator):
    system, Z = regression(dtype=dtype)
    result = solver.solve(system, Z, generator=generator)
    truth = exact(system, Z)
    assert result.solution.dtype == dtype
    assert result.converged
    assert result.residual_rows == len(Z)
    assert_within_residual(result, truth, Z, 0.1)


@every
def test_residual_is_that_of_the_system(solver, generator):
    system, Z = regression()
    result = solver.solve(system, Z, generator=generator)
    with torch.no_grad():
        measured = (system @ result.solution - Z).norm(dim=0) / Z.norm(dim=0)
    torch.testing.assert_close(result.residual, measured, rtol=1e-6, atol=1e-12)


@every
def test_a_vector_is_one_column(solver, generator):
    system, Z = regression()
    one = solver.solve(system, Z[:, 0], generator=torch.Generator().manual_seed(3))
    column = solver.solve(system, Z[:, :1], generator=torch.Generator().manual_seed(3))
    assert one.solution.shape == Z[:, 0].shape
    torch.testing.assert_close(one.solution, column.solution[:, 0])


@every
def test_the_same_seed_gives_the_same_result(solver):
    system, Z = regression()
    first, second = (solver.solve(system, Z, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.solution, second.solution)
    assert first.epochs == second.epochs


@every
def test_zero_right_hand_sides_give_zero(solver, generator):
    system, Z = regression()
    Z[:, 1] = 0
    result = solver.solve(system, Z, guess=torch.ones_like(Z), generator=generator)
    assert (result.solution[:, 1] == 0).all()
    assert result.residual[1] == 0
    # A guess far worse than nothing is walked away from, not taken for divergence.
    assert result.converged
    assert (solver.solve(system, torch.zeros_like(Z), generator=generator).solution == 0).all()


@every
def test_noise_may_differ_by_row(solver, generator):
    noise = torch.linspace(0.05, 2.0, 300, dtype=torch.float64)
    system, Z = regression(noise=noise)
    result = solver.solve(system, Z, generator=generator)
    assert result.converged
    assert_within_residual(result, exact(system, Z), Z, 0.05)


@every
def test_duplicated_rows_and_constant_columns_work(solver, generator):
    X = torch.randn(100, 2, generator=generator, dtype=torch.float64).repeat(3, 1)
    X = torch.cat([X, torch.full((300, 1), 7.0, dtype=torch.float64)], dim=1)
    system = KernelOperator(mt.kernels.RBF(), X) + Diagonal(0.5)
    assert solver.solve(system, X[:, 0].sin(), generator=generator).converged


@iterative
def test_scaling_the_targets_scales_the_solution(solver):
    system, Z = regression()
    small, large = (solver.solve(system, c * Z, generator=torch.Generator().manual_seed(2)) for c in (1.0, 2.0**20))
    torch.testing.assert_close(large.solution / 2.0**20, small.solution, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(large.residual, small.residual, rtol=1e-6, atol=1e-12)


@stochastic
def test_units_of_the_targets_change_nothing(solver):
    """Kernel variance, noise and targets in other units: the same steps, so the same predictions."""
    c = 1e4
    one, Z = regression(noise=0.1)
    other, _ = regression(noise=0.1 * c**2, scale=c**2)
    first = solver.solve(one, Z, generator=torch.Generator().manual_seed(2))
    second = solver.solve(other, c * Z, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(second.solution * c, first.solution, rtol=1e-5, atol=1e-8)
    assert first.epochs == second.epochs


@iterative
def test_a_warm_start_costs_less(solver):
    system, Z = regression()
    cold = solver.solve(system, Z, generator=torch.Generator().manual_seed(2))
    warm = solver.solve(system, Z, guess=exact(system, Z), generator=torch.Generator().manual_seed(2))
    assert warm.converged
    assert warm.epochs < cold.epochs


@pytest.mark.parametrize("preconditioner", [None, mt.solvers.Nystrom(5)], ids=repr)
def test_conjugate_gradients_leave_a_guess_that_will_do_as_it_is(preconditioner):
    system, Z = regression()
    guess = exact(system, Z)
    result = mt.solvers.CG(preconditioner=preconditioner).solve(system, Z, guess=guess)
    assert result.converged
    assert result.epochs < 1.1
    torch.testing.assert_close(result.solution, guess)
    assert bool((result.residual < 1e-3).all())


@iterative
def test_epochs_are_at_most_those_allowed(solver, generator):
    system, Z = regression(noise=1e-6)
    short = dataclasses.replace(solver, epochs=12, tolerance=1e-9)
    with pytest.warns(ConvergenceWarning, match="above the tolerance"):
        result = short.solve(system, Z, generator=generator)
    assert not result.converged
    assert result.epochs <= 13
    assert result.trace[-1]["epochs"] <= 12


@iterative
def test_every_entry_counts(solver, generator, monkeypatch):
    """The counter against the entries the operator was asked for."""
    system, Z = regression()
    asked = 0
    original = KernelOperator.rows_product

    def counted(self, rows, V):
        nonlocal asked
        asked += len(torch.arange(self.shape[0])[rows]) * self.shape[1]
        return original(self, rows, V)

    kept = Dense.product

    def counted_columns(self, V):
        nonlocal asked
        asked += self.shape[0] * self.shape[1]
        return kept(self, V)

    monkeypatch.setattr(KernelOperator, "rows_product", counted)
    # Columns of a matrix that is kept are the transpose of its rows.
    monkeypatch.setattr(Dense, "product", counted_columns)
    result = solver.solve(system, Z, generator=generator)
    # Blocks for step sizes and preconditioners are counted on top of the products.
    assert result.epochs >= asked / len(Z) ** 2 - 1e-9
    assert result.epochs <= asked / len(Z) ** 2 + 1.5


def function_error(system, solution, truth):
    """``‖K(α − α*)‖ / ‖K α*‖``: the primal objective converges in function values first."""
    with torch.no_grad():
        return float((system.first @ (solution - truth)).norm() / (system.first @ truth).norm())


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_sgd_approaches_the_exact_function(generator):
    system, _ = regression(noise=1.0, columns=1)
    Z = system.first.X[:, :1].sin()
    errors = [
        function_error(
            system, dataclasses.replace(SGD(batch=64), epochs=e).solve(system, Z, generator=g).solution, truth
        )
        for truth in [exact(system, Z)]
        for e, g in [(20, generator), (300, generator)]
    ]
    assert errors[1] < 0.1
    assert errors[1] < errors[0]


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_sgd_low_variance_form_has_the_same_solution(generator):
    system, _ = regression(n=100, noise=0.5, columns=1)
    f = system.first.X[:, :1].sin()
    noise = 0.5**0.5 * torch.randn(f.shape, generator=generator, dtype=f.dtype)
    result = SGD(epochs=2000, batch=50).solve(system, f + noise, noise=noise, generator=generator)
    assert function_error(system, result.solution, exact(system, f + noise)) < 0.15


def test_divergence_is_noticed_and_mended(generator):
    system, Z = regression(noise=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = SDD(epochs=300, batch=64, step=2.0, tolerance=0.05).solve(system, Z, generator=generator)
    events = [record["event"] for record in result.trace if "event" in record]
    assert events
    assert all("step halved" in event for event in events)
    assert torch.isfinite(result.solution).all()
    assert result.residual.max() < 0.5


@pytest.mark.parametrize("solver", [SDD(), SketchAndProject()], ids=name)
def test_very_low_noise_does_not_diverge(solver, generator):
    system, Z = regression(n=2000, noise=1e-6, dtype=torch.float32, columns=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = solver.solve(system, Z, generator=generator)
    assert torch.isfinite(result.solution).all()
    assert result.residual.max() <= 1.0
    assert not any("event" in record for record in result.trace)


def test_large_systems_measure_the_residual_on_random_rows(generator, monkeypatch):
    monkeypatch.setattr("matheron.solvers.system.WHOLE_RESIDUAL", 1000)
    monkeypatch.setattr("matheron.solvers.system.RESIDUAL_ROWS", 1024)
    system, Z = regression(n=3000, noise=1.0, columns=1)
    result = SketchAndProject(tolerance=0.05).solve(system, Z, generator=generator)
    with torch.no_grad():
        whole = (system @ result.solution - Z).norm() / Z.norm()
    assert result.residual_rows == 1024
    assert abs(float(result.residual[0]) - float(whole)) < 0.3 * float(whole)


def test_cholesky_refuses_what_does_not_fit(monkeypatch):
    monkeypatch.setattr("matheron.solvers.cholesky.free_memory", lambda device: 100_000)
    system, Z = regression()
    with pytest.raises(MemoryError, match=r"300 rows needs .* use CG"):
        Cholesky().solve(system, Z)


def test_cholesky_says_when_it_added_jitter():
    ones = Dense(torch.ones(4, 4, dtype=torch.float64))
    result = Cholesky(tolerance=1.0).solve(ones, torch.ones(4, dtype=torch.float64))
    assert "added" in result.trace[0]["event"]


def test_a_sampled_residual_sees_rows_from_everywhere(generator):
    system = System(regression()[0])
    error = torch.zeros(system.n, 1, dtype=system.dtype)
    error[-3:] = 1.0
    with torch.no_grad():
        measured = system.sampled_residual(torch.zeros_like(error), error, system.n, generator)
    torch.testing.assert_close(measured[0], error.norm(dim=0))
    assert measured[1] == system.n


def test_a_seed_that_was_drawn_repeats_the_solve():
    (system, Z), solver = regression(), SDD(epochs=5, batch=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = solver.solve(system, Z)
        assert torch.equal(solver.solve(system, Z, generator=first.seed).solution, first.solution)
