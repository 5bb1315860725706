"""Preconditioners bring the condition number down as their rank grows."""

import pytest
import torch

from matheron.operators import Diagonal
from matheron.solvers import Nystrom, PivotedCholesky, RandomizedSVD
from matheron.solvers.system import System
from tests.solvers.problems import regression

KINDS = (PivotedCholesky, Nystrom, RandomizedSVD)


def condition(inverse: torch.Tensor, system: torch.Tensor) -> float:
    values = torch.linalg.eigvals(inverse @ system).real
    return float(values.max() / values.min())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", ["scalar", "by row"])
def test_condition_number_falls_with_rank(kind, noise, generator):
    values = torch.linspace(0.005, 0.02, 300, dtype=torch.float64) if noise == "by row" else 0.01
    system, _ = regression(noise=values)
    dense = system.dense().detach()
    plain = float(torch.linalg.cond(dense))
    found = [condition(kind(rank).build(system, generator).dense(), dense) for rank in (10, 50, 200)]
    assert plain > found[0] > found[1] > found[2]
    assert found[2] < plain / 20


@pytest.mark.parametrize("kind", [PivotedCholesky, RandomizedSVD])
def test_full_rank_is_the_inverse(kind, generator):
    system, _ = regression(n=60)
    product = kind(60).build(system, generator).dense() @ system.dense().detach()
    torch.testing.assert_close(product, torch.eye(60, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_symmetric_and_positive(kind, generator):
    system, _ = regression(n=80, noise=1e-6, dtype=torch.float32)
    inverse = kind(30).build(system, generator).dense().double()
    torch.testing.assert_close(inverse, inverse.mT, rtol=1e-4, atol=1e-4 * float(inverse.abs().max()))
    assert torch.linalg.eigvalsh(0.5 * (inverse + inverse.mT)).min() > 0


@pytest.mark.parametrize(("kind", "epochs"), [(PivotedCholesky, 0.1), (Nystrom, 0.1), (RandomizedSVD, 2.0)])
def test_entries_are_counted(kind, epochs, generator):
    operator, _ = regression()
    system = System(operator)
    kind(30).factor(system, generator)
    assert system.epochs == pytest.approx(epochs)


def test_rank_beyond_the_rows_works(generator):
    system, _ = regression(n=20)
    for kind in KINDS:
        assert kind(50).build(system, generator).shape == (20, 20)


def test_pivoted_cholesky_stops_where_nothing_is_left(generator):
    system, _ = regression(n=40)
    few = system.first.permuted(torch.arange(5).repeat(8))
    factor = PivotedCholesky(30).factor(System(few + Diagonal(0.1)), generator)
    assert factor.shape[1] == 5
