"""Preconditioners bring the condition number down as their rank grows."""

import subprocess
import sys

import pytest
import torch

from matheron.operators import Diagonal
from matheron.solvers import Factored, Nystrom, NystromBlocks, PivotedCholesky, RandomizedSVD, Sketch
from matheron.solvers.clusters import clusters
from matheron.solvers.system import System
from tests.solvers.problems import regression


def blocks(rank: int) -> NystromBlocks:
    """With blocks of a few of the rows only."""
    return NystromBlocks(rank, block=20)


KINDS = (PivotedCholesky, Nystrom, RandomizedSVD, Sketch, blocks)


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


def test_a_known_factor_of_full_rank_is_the_inverse_and_one_of_other_rows_is_refused(generator):
    system, _ = regression(n=60)
    with torch.no_grad():
        known = Sketch(60).factor(System(system), generator)
    product = Factored(known=known).build(system, generator).dense() @ system.dense().detach()
    torch.testing.assert_close(product, torch.eye(60, dtype=torch.float64), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="known has 59 rows but the system has 60"):
        Factored(known=known[:-1]).build(system, generator)


@pytest.mark.parametrize("kind", KINDS)
def test_symmetric_and_positive(kind, generator):
    system, _ = regression(n=80, noise=1e-6, dtype=torch.float32)
    inverse = kind(30).build(system, generator).dense().double()
    torch.testing.assert_close(inverse, inverse.mT, rtol=1e-4, atol=1e-4 * float(inverse.abs().max()))
    assert torch.linalg.eigvalsh(0.5 * (inverse + inverse.mT)).min() > 0


@pytest.mark.parametrize(
    ("kind", "epochs"), [(PivotedCholesky, 0.1), (Nystrom, 0.1), (Sketch, 1.0), (RandomizedSVD, 2.0)]
)
def test_entries_are_counted(kind, epochs, generator):
    operator, _ = regression()
    system = System(operator)
    kind(30).factor(system, generator)
    assert system.epochs == pytest.approx(epochs)


def test_blocks_help_where_a_low_rank_does_not(generator):
    system, _ = regression(noise=1e-4)
    dense = system.dense().detach()
    low_rank, with_blocks = (
        condition(how.build(system, generator).dense(), dense) for how in (Nystrom(50), NystromBlocks(50, block=100))
    )
    assert with_blocks < low_rank / 5


def test_one_block_is_the_inverse(generator):
    system, _ = regression(n=60, noise=1e-3)
    product = NystromBlocks(5, block=60).build(system, generator).dense() @ system.dense().detach()
    torch.testing.assert_close(product, torch.eye(60, dtype=torch.float64), rtol=0, atol=1e-6)


def test_blocks_count_their_entries(generator):
    operator, _ = regression(n=256)
    system = System(operator)
    NystromBlocks(32, block=64).build(system, generator)
    assert system.entries == 32 * 256 + 4 * 64**2


def test_clusters_part_the_rows(generator):
    points = torch.randn(1000, 3, generator=generator)
    places = clusters(points, 64)
    rows = places[places < 1000]
    assert torch.equal(rows.sort().values, torch.arange(1000))
    assert places.shape == (16, 63)
    spread = torch.stack([points[place[place < 1000]].std(0).mean() for place in places]).mean()
    assert spread < 0.6 * points.std(0).mean()
    assert clusters(torch.zeros(10, 2), 3).shape == (4, 3)


def test_rank_beyond_the_rows_works(generator):
    system, _ = regression(n=20)
    for kind in KINDS:
        assert kind(50).build(system, generator).shape == (20, 20)


def test_pivoted_cholesky_stops_where_nothing_is_left(generator):
    system, _ = regression(n=40)
    few = system.first.permuted(torch.arange(5).repeat(8))
    factor = PivotedCholesky(30).factor(System(few + Diagonal(0.1)), generator)
    assert factor.shape[1] == 5


def test_blocks_are_built_in_twice_the_memory_they_keep():
    program = """
from resource import RUSAGE_SELF
import torch
import matheron as mt
from experiments.harness import peak_memory

n, how = 30_000, mt.solvers.NystromBlocks(rank=1000, block=64)
X = torch.rand(n, 2, generator=torch.Generator().manual_seed(0))
kernel = mt.kernels.RBF().requires_grad_(False)
system = mt.operators.KernelOperator(kernel, X) + mt.operators.Diagonal(0.1)
mt.solvers.NystromBlocks(rank=10, block=64).build(system, torch.Generator().manual_seed(0))
before = peak_memory(RUSAGE_SELF)
how.build(system, torch.Generator().manual_seed(0))
print((peak_memory(RUSAGE_SELF) - before) / how.bytes(n))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(found.stdout) < 2.6
