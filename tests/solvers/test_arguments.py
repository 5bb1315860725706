"""Bad input gets an error before any work that names the argument and the cure."""

import pytest
import torch

import matheron as mt
from matheron.operators import Dense, Diagonal, KernelOperator
from matheron.solvers import CG, SDD, SGD, Cholesky, SketchAndProject
from tests.solvers.problems import ALL, name, regression

pytestmark = pytest.mark.usefixtures("unchecked")
every = pytest.mark.parametrize("solver", [*ALL, SGD()], ids=name)


@every
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_targets_that_are_not_finite(solver, bad):
    system, Z = regression()
    Z[7, 1] = bad
    with pytest.raises(ValueError, match=r"Z has 1 NaN or infinite entries, the first at index \(7, 1\)"):
        solver.solve(system, Z)


@every
def test_targets_of_the_wrong_shape(solver):
    system, Z = regression()
    with pytest.raises(ValueError, match=r"Z has shape .* but the system has 300 rows"):
        solver.solve(system, Z[:-1])


@every
def test_targets_of_the_wrong_dtype(solver):
    system, Z = regression()
    with pytest.raises(TypeError, match=r"Z has dtype torch\.int64; convert"):
        solver.solve(system, Z.long())
    with pytest.raises(TypeError, match=r"Z is torch\.float32 but the system is torch\.float64"):
        solver.solve(system, Z.float())
    with pytest.raises(TypeError, match=r"Z must be a torch\.Tensor, got list"):
        solver.solve(system, Z.tolist())


@every
def test_a_guess_of_another_shape(solver):
    if isinstance(solver, Cholesky | mt.solvers.Auto):
        pytest.skip("an exact solve needs no guess")
    system, Z = regression()
    with pytest.raises(ValueError, match="guess has shape"):
        solver.solve(system, Z, guess=Z[:, :1])


@every
@pytest.mark.parametrize("noise", [0.0, -0.1])
def test_noise_that_is_not_positive(solver, noise):
    system, Z = regression(noise=noise)
    with pytest.raises(ValueError, match="noise variance of the system must be positive"):
        solver.solve(system, Z)


@pytest.mark.parametrize("solver", [SDD(), SGD(), SketchAndProject()], ids=name)
def test_no_noise_at_all(solver):
    system, Z = regression()
    with pytest.raises(ValueError, match=r"system has no noise; give the solver K \+ Diagonal"):
        solver.solve(system.first, Z)


@every
def test_a_system_that_is_not_one(solver):
    with pytest.raises(TypeError, match="system must be an operator"):
        solver.solve(torch.eye(3), torch.ones(3))
    with pytest.raises(ValueError, match="system must be square"):
        solver.solve(Dense(torch.ones(3, 2)), torch.ones(3))
    with pytest.raises(ValueError, match="only a Diagonal"):
        solver.solve(Diagonal(torch.ones(3)), torch.ones(3))


def test_sgd_needs_a_kernel():
    with pytest.raises(TypeError, match="SGD needs KernelOperator"):
        SGD().solve(Dense(torch.eye(3)) + Diagonal(1.0), torch.ones(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SDD(epochs=0), "epochs"),
        (lambda: SDD(tolerance=-1.0), "tolerance"),
        (lambda: SDD(batch=0), "batch"),
        (lambda: SDD(momentum=1.5), "momentum"),
        (lambda: SDD(step=0.0), "step"),
        (lambda: SketchAndProject(rank=0), "rank"),
        (lambda: SketchAndProject(block=-5), "block"),
        (lambda: CG(refresh=0), "refresh"),
        (lambda: CG(preconditioner="nystrom"), "preconditioner"),
        (lambda: SGD(features=0), "features"),
    ],
)
def test_settings_out_of_range(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_lengthscales_that_are_not_positive(bad):
    with pytest.raises(ValueError, match="lengthscale"):
        KernelOperator(mt.kernels.RBF(lengthscale=bad), torch.zeros(3, 1))
