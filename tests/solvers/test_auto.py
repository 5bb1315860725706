"""Which solver is taken, and what happens when it does not get anywhere."""

import warnings

import pytest
import torch

import matheron as mt
from matheron.operators import Diagonal, KernelOperator
from matheron.solvers import CG, Auto, Cholesky, ConvergenceWarning, NystromBlocks, SketchAndProject
from matheron.solvers import auto as module
from tests.solvers.problems import exact, regression


@pytest.fixture
def few(monkeypatch):
    """Factorize nothing beyond a hundred rows, so that small problems stand for large ones."""
    monkeypatch.setattr(module, "EXACT_ROWS", 100)


def singular(noise: float) -> tuple[mt.operators.Operator, torch.Tensor]:
    """Six copies of every row with targets that contradict each other."""
    source = torch.Generator().manual_seed(0)
    X = torch.rand(100, 1, generator=source).repeat(6, 1)
    kernel = mt.kernels.RBF(lengthscale=1.0).requires_grad_(False)
    return KernelOperator(kernel, X) + Diagonal(noise), torch.randn(600, 1, generator=source)


def test_small_systems_are_solved_exactly():
    assert isinstance(Auto().choose(regression()[0])[0], Cholesky)


def test_large_systems_take_conjugate_gradients_with_blocks(few, generator):
    system, Z = regression()
    solver, reason = Auto().choose(system)
    assert isinstance(solver, CG)
    assert isinstance(solver.preconditioner, NystromBlocks)
    result = Auto().solve(system, Z, generator=generator)
    assert result.converged
    assert reason in result.solver
    torch.testing.assert_close(result.solution, exact(system, Z), rtol=0.05, atol=0.05)


def test_without_room_for_the_blocks_sketch_and_project(few, monkeypatch):
    monkeypatch.setattr(module, "PRECONDITIONER", 1e-9)
    assert isinstance(Auto().choose(regression()[0])[0], SketchAndProject)


def test_a_stalled_solve_is_given_to_another_solver_within_the_same_epochs(few, generator):
    system, Z = singular(1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = Auto(epochs=40).solve(system, Z, generator=generator)
    assert result.solver.startswith("SketchAndProject")
    assert "stalled" in result.solver
    assert result.epochs <= 41
    assert any("ended CG" in record.get("event", "") for record in result.trace)
    assert [record["epochs"] for record in result.trace] == sorted(record["epochs"] for record in result.trace)


def test_patience_ends_conjugate_gradients(generator):
    system, Z = singular(1e-9)
    with pytest.warns(ConvergenceWarning):
        result = CG(epochs=200, patience=5).solve(system, Z, generator=generator)
    assert result.epochs < 200
    assert "stalled" in result.trace[-1]["event"]
