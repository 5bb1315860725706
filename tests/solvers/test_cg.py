"""Where conjugate gradients with a Nyström preconditioner set out."""

import pytest
import torch

from matheron.solvers import CG, Nystrom, NystromBlocks
from matheron.solvers.system import System
from tests.solvers.problems import regression

pytestmark = pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")

BLOCKS = NystromBlocks(40, block=20)


@pytest.mark.parametrize("how", [Nystrom(40), BLOCKS])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-3), (torch.float64, 1e-8)])
@torch.no_grad()
def test_from_the_mean_through_inducing_points(how, dtype, rounding):
    """Before the first direction: ``K α = B Bᵀ P⁻¹ z``, with ``α`` zero but for the rows that span ``B``."""
    system, Z = regression(dtype=dtype)
    result = CG(epochs=0.5, preconditioner=how).solve(system, Z, generator=7)
    parts = System(system)
    rows = how.landmarks(parts, torch.Generator().manual_seed(result.seed))
    B = how.spanned(parts, rows)
    mean = B @ (B.mT @ how.invert(B, parts).product(Z).double())
    assert torch.equal((result.solution != 0).any(1).nonzero()[:, 0], rows.sort().values)
    found = parts.kernel.product(result.solution).double()
    torch.testing.assert_close(found, mean, rtol=0, atol=rounding * float(mean.abs().max()))
    assert bool((result.residual < 1.0).all())


@torch.no_grad()
def test_a_solve_that_ends_early_is_nearer_than_from_zero():
    """At low noise: in the function, which is what predictions see."""
    system, Z = regression(noise=1e-5)
    exact = system.first.product(torch.linalg.solve(system.dense(), Z))
    solver = CG(epochs=3.5, tolerance=1e-6, preconditioner=BLOCKS)
    tiny = torch.full_like(Z, 1e-12)  # a guess, and so no start of its own
    ours, zero = (solver.solve(system, Z, guess=guess, generator=7).solution for guess in (None, tiny))
    errors = [(system.first.product(found) - exact).norm(dim=0) for found in (ours, zero)]
    assert bool((errors[0] < errors[1]).all())


@torch.no_grad()
def test_a_guess_is_kept():
    system, Z = regression()
    guess = torch.linalg.solve(system.dense(), Z) + 0.1
    torch.testing.assert_close(CG(epochs=0.5, preconditioner=BLOCKS).solve(system, Z, guess=guess).solution, guess)


def test_a_start_that_does_not_help_is_not_taken(monkeypatch):
    system, Z = regression()
    monkeypatch.setattr(NystromBlocks, "first_weights", lambda *_: torch.full((40, Z.shape[1]), torch.nan))
    assert not bool(CG(epochs=0.5, preconditioner=BLOCKS).solve(system, Z).solution.any())
