"""Data in float32 whose noise would drown in rounding errors are solved in float64."""

import pytest
import torch

import matheron as mt
from matheron.gp.rounding import MUCH, rounding
from matheron.solvers import auto


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
