"""Data in float32 whose noise would drown in rounding errors are solved in float64."""

import pytest
import torch

import matheron as mt
from matheron.gp.fitting.iterative import Climb, Iterative
from matheron.gp.fitting.task import Task
from matheron.gp.rounding import MUCH, rounding
from matheron.solvers import auto
from matheron.solvers.checkpoint import Checkpoint


def problem(noise: float) -> tuple[mt.GaussianProcess, torch.Tensor, torch.Tensor]:
    """A nearly constant kernel matrix, whose largest eigenvalue is that of all rows together."""
    source = torch.Generator().manual_seed(0)
    X = torch.rand(1_500, 3, generator=source)
    y = (3 * X).sin().sum(1)
    kernel = mt.kernels.Matern32(lengthscale=torch.full((3,), 20.0), variance=2.0)
    return mt.GaussianProcess(kernel, noise), X, y


@pytest.fixture(autouse=True)
def iterative(monkeypatch):
    """Factorize nothing here, so that few rows stand for many."""
    monkeypatch.setattr(auto, "EXACT_ROWS", 100)


@pytest.mark.parametrize(("noise", "precision"), [(0.1, "float32"), (1e-6, "float64")])
def test_precision_follows_the_noise(noise, precision, generator):
    process, X, y = problem(noise)
    assert (rounding(process.kernel, process.observations(X, y, None)) > MUCH) == (precision == "float64")
    posterior = process.condition(X, y, num_samples=2, generator=generator)
    assert posterior.report.precision == precision
    assert precision in str(posterior.report)
    assert posterior.report.converged
    assert posterior.mean(X[:5]).dtype == torch.float32


def test_low_noise_is_solved_as_well_as_by_a_factorization(generator):
    process, X, y = problem(1e-6)
    found = process.condition(X, y, num_samples=0, generator=generator).mean(X)
    exact = process.condition(X.double(), y.double(), num_samples=0, solver=mt.solvers.Cholesky()).mean(X.double())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=0.02)


def test_other_solvers_and_float64_are_left_alone(generator):
    process, X, y = problem(1e-6)
    assert rounding(process.kernel, process.observations(X.double(), y.double(), None)) == 0.0
    with pytest.warns(mt.solvers.ConvergenceWarning):
        posterior = process.condition(X, y, num_samples=0, solver=mt.solvers.SDD(epochs=1.0), generator=generator)
    assert posterior.report.precision == "float32"


def test_rounding_grows_with_the_rows():
    process, X, y = problem(1e-4)
    few = rounding(process.kernel, process.observations(X[:100], y[:100], None))
    assert rounding(process.kernel, process.observations(X, y, None)) > few


def test_learning_goes_on_in_float64_where_the_noise_is_low(generator):
    process, X, y = problem(1e-6)
    process.fit(X, y, Iterative(steps=3), start="current", generator=generator)
    assert process.history[0]["precision"] == "float64"
    assert process.warm.solution.dtype == torch.float64
    posterior = process.condition(X, y, num_samples=4, generator=generator)
    assert torch.equal(posterior.paths.prior.weights, process.warm.draws.functions.weights[:, :4])
    easy, X, y = problem(0.1)
    easy.fit(X, y, Iterative(steps=3), start="current", generator=generator)
    assert easy.history[-1]["precision"] == "float32"


def test_what_was_learnt_in_float64_resumes_in_float64(tmp_path):
    def climb() -> Climb:
        process, X, y = problem(1e-6)
        task = Task(process, process.observations(X, y, None), {}, seed=3, checkpoint=Checkpoint(tmp_path / "fit"))
        return Climb(Iterative(steps=4), task)

    whole = climb()
    whole.step()
    whole.save()
    resumed = climb()
    for run in (whole, resumed):
        run.step()
    assert resumed.solution.dtype == torch.float64
    assert torch.equal(whole.vector, resumed.vector)
    assert torch.equal(whole.solution, resumed.solution)
