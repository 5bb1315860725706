"""Samples and modes through the weights by conjugate gradients, against those through ``H``."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.linear import (
    DenseSolve,
    DiagonalPrior,
    PrimalSolve,
    draw_regularizers,
    learn_prior,
    solve_dense,
    solve_primal,
)
from matheron.linear.primal import WeightKernel
from tests.linear.twins import gaussian, logistic, normal, of_data, prior, softmax

TIGHT = PrimalSolve(tolerance=1e-9, epochs=300.0, rank=3, newton_tolerance=1e-8)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 12), d=st.integers(1, 8), batch_size=st.integers(1, 8), seed=st.integers(0, 99))
def test_it_solves_what_the_factorization_solves(n, d, batch_size, seed):
    data, _, _ = gaussian(n, d, seed=seed, batch_size=batch_size)
    drawn = draw_regularizers(data, 2, torch.Generator().manual_seed(seed), mode=True)
    exact, found = solve_dense(data, prior(0.7, d), drawn), solve_primal(data, prior(0.7, d), drawn, settings=TIGHT)
    torch.testing.assert_close(found.samples, exact.samples, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-6, atol=1e-8)
    assert found.converged


@pytest.mark.parametrize("rank", [0, 2, 100])
def test_the_sketch_changes_the_way_and_not_the_answer(rank, generator):
    data, _, _ = gaussian(40, 12)
    drawn = draw_regularizers(data, 3, generator, mode=True)
    settings = PrimalSolve(tolerance=1e-9, epochs=300.0, rank=rank)
    found = solve_primal(data, prior(0.1, 12), drawn, settings=settings)
    torch.testing.assert_close(found.samples, solve_dense(data, prior(0.1, 12), drawn).samples, rtol=1e-6, atol=1e-8)
    assert found.sketch is None if rank == 0 else found.sketch.shape == (12, min(rank, 12))


def test_a_sketch_that_is_lost_in_rounding_is_done_without(monkeypatch, generator):
    def lost(*_):
        raise ValueError("far from positive definite")

    monkeypatch.setattr("matheron.solvers.Sketch.factor", lost)
    data, _, _ = gaussian(40, 12)
    drawn = draw_regularizers(data, 3, generator, mode=True)
    found = solve_primal(data, prior(0.1, 12), drawn, settings=TIGHT)
    torch.testing.assert_close(found.samples, solve_dense(data, prior(0.1, 12), drawn).samples, rtol=1e-6, atol=1e-8)
    assert found.sketch is None
    assert "lost in rounding" in found.events[0]


def test_a_full_sketch_leaves_next_to_nothing_to_do(generator):
    data, _, _ = gaussian(60, 12)
    drawn = draw_regularizers(data, 2, generator)
    passes = {}
    for rank in (0, 12):
        found = solve_primal(
            data,
            prior(1e-3, 12),
            drawn,
            mode=False,
            settings=PrimalSolve(tolerance=1e-6, rank=rank),
            generator=generator,
        )
        passes[rank] = found.trace[-1]["epochs"]
        assert found.converged
    assert passes[12] < passes[0] / 2


@pytest.mark.parametrize("a", [0.05, 1.0])
@pytest.mark.parametrize("make", [logistic, softmax])
def test_modes_by_newton(make, a, generator):
    data = make(batch_size=9)[0]
    drawn = draw_regularizers(data, 2, generator, mode=True)
    exact, found = solve_dense(data, prior(a, 6), drawn), solve_primal(data, prior(a, 6), drawn, settings=TIGHT)
    torch.testing.assert_close(found.samples, exact.samples, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-5, atol=1e-6)


def test_groups_and_scales(generator):
    data, _, _ = gaussian(30, 6)
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    scale = 0.5 + torch.rand(6, dtype=torch.float64, generator=generator)
    a = DiagonalPrior(torch.tensor([0.1, 1.0, 10.0]), num_weights=6, groups=groups, scale=scale)
    drawn = draw_regularizers(data, 2, generator, mode=True)
    found, exact = solve_primal(data, a, drawn, settings=TIGHT), solve_dense(data, a, drawn)
    torch.testing.assert_close(found.samples, exact.samples, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.mode, exact.mode, rtol=1e-6, atol=1e-8)


def test_a_warm_start_is_carried_into_the_units_of_a_new_prior(generator):
    """From the answer at one precision to that at another, with the sketch and the samples of the first."""
    data, _, _ = gaussian(40, 12)
    drawn = draw_regularizers(data, 3, generator, mode=True)
    first = solve_primal(data, prior(1.0, 12), drawn, settings=TIGHT)
    second = solve_primal(data, prior(5.0, 12), drawn, warm=first, settings=TIGHT)
    torch.testing.assert_close(second.samples, solve_dense(data, prior(5.0, 12), drawn).samples, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(second.sketch, first.sketch / 5.0**0.5)


@pytest.mark.parametrize("learn_noise", [False, True])
def test_em_learns_what_exact_steps_learn(learn_noise):
    data, _, _ = gaussian(60, 8)
    found = {
        settings: learn_prior(
            data,
            prior(1.0, 8),
            em_steps=20,
            num_samples=4,
            settings=settings,
            learn_noise=learn_noise,
            generator=of_data(1),
        )
        for settings in (TIGHT, DenseSolve())
    }
    one, other = found.values()
    torch.testing.assert_close(one.prior.values, other.prior.values, rtol=1e-5, atol=0.0)


def test_the_kernel_is_symmetric_and_whitened(generator):
    data, Phi, _ = gaussian(10, 5)
    kernel = WeightKernel(data, prior(4.0, 5))
    K = kernel.dense()
    torch.testing.assert_close(K, K.mT)
    B = torch.stack([data.curvature @ column for column in torch.eye(10, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(K, Phi.mT @ B @ Phi / 4.0)
    V = normal(5, 3, generator=generator)
    torch.testing.assert_close(kernel @ V, K @ V)
    assert kernel.columns == 5 + 3
