"""Effective dimensions and learned precisions against closed forms."""

from dataclasses import replace

import pytest
import torch

from matheron.linear import (
    DenseSolve,
    Descent,
    DiagonalPrior,
    DualSolve,
    GaussianCurvature,
    StoredData,
    draw_regularizers,
    effective_dimension,
    learn_prior,
    noise_factor,
    precision_factors,
    solve_dense,
)
from matheron.linear.bounds import updated_precision
from matheron.linear.exact import Primal
from matheron.linear.mackay import LEAST_NOISE, settling
from matheron.operators import Dense
from matheron.solvers import CG, ConvergenceWarning
from tests.linear.twins import DOUBLE, gaussian, normal, of_data, prior, softmax

GROUPS = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])


def grouped(seed=0):
    """Three groups of weights that were drawn with precisions of 0.1, 1 and 10."""
    g = of_data(seed)
    groups = torch.arange(3).repeat_interleave(20)
    Phi = normal(400, 60, generator=g)
    w = normal(60, generator=g) / torch.tensor([0.1, 1.0, 10.0], dtype=DOUBLE)[groups].sqrt()
    Y = Phi @ w + normal(400, generator=g)
    return StoredData(Dense(Phi), GaussianCurvature(1.0, 400, dtype=DOUBLE), Y), Phi, Y, groups


@pytest.mark.parametrize("estimator", ["function", "weight", "pull"])
def test_the_effective_dimension_by_group(estimator, generator):
    data, Phi, _ = gaussian(20, 8, precision=0.3, batch_size=6)
    a = torch.tensor([1.0, 4.0, 9.0], dtype=DOUBLE)
    p = prior(a, 8, groups=GROUPS)
    model = Primal(Phi, a[GROUPS], 0.3)
    exact = (model.covariance @ model.curvature).diagonal()
    exact = torch.stack([exact[g == GROUPS].sum() for g in range(3)])
    num = 10_000
    measured = solve_dense(data, p, num, mode=False, generator=generator).measured
    found = effective_dimension(measured, p, data.num_rows, estimator)
    forms = {"function": measured.curvature_forms, "weight": measured.prior_forms, "pull": measured.pulled_forms}[
        estimator
    ]
    spread = forms.std(1) / num**0.5
    assert bool(((found.by_group - exact).abs() < 4.5 * spread).all())
    assert found.clipped == 0


def test_fits_vary_less_than_weights_where_few_directions_are_seen(generator):
    data, _, _ = gaussian(10, 60, precision=0.05)
    measured = solve_dense(data, prior(1.0, 60), 500, mode=False, generator=generator).measured
    assert float(measured.fits.var()) < 0.3 * float(measured.prior_forms.sum(0).var())
    assert bool((measured.fits >= 0).all())


def test_groups_that_stand_in_for_each_other_have_steady_dimensions(generator):
    """Two groups of the same features: the data say little of either alone, and ``ζ_gᵀ(Mζ)_g`` even less."""
    half = normal(30, 10, generator=of_data(3))
    data = StoredData(Dense(torch.cat([half, half], 1)), GaussianCurvature(50.0, 30, dtype=DOUBLE))
    p = prior(torch.ones(2, dtype=DOUBLE), 20, groups=torch.arange(2).repeat_interleave(10))
    measured = solve_dense(data, p, 500, mode=False, generator=generator).measured
    assert bool((measured.pulled_forms >= 0).all())
    assert bool((measured.curvature_forms < 0).any())
    assert bool((measured.pulled_forms.var(1) < 0.05 * measured.curvature_forms.var(1)).all())


def test_estimates_beyond_their_bounds_are_clipped_and_said_so(generator):
    data, _, _ = gaussian(5, 8)
    measured = solve_dense(data, prior(1.0, 8), 3, mode=False, generator=generator).measured
    large = replace(measured, fits=torch.full((3,), 9.0, dtype=DOUBLE))
    found = effective_dimension(large, prior(1.0, 8), 5)
    assert (found.total, found.clipped) == (5.0, 1)
    heavy = replace(measured, prior_forms=torch.full((1, 3), 10.0, dtype=DOUBLE))
    found = effective_dimension(heavy, prior(1.0, 8), 5, "weight")
    assert found.clipped == 1
    assert float(found.raw) == -2.0
    assert 0.0 < found.total < 1e-3


def test_the_updates(generator):
    data, Phi, Y = gaussian()
    p = prior(1.5, 8, scale=1.0 + torch.arange(8, dtype=DOUBLE))
    found = solve_dense(data, p, 3, generator=generator)
    gamma = effective_dimension(found.measured, p, 60)
    expected = gamma.total / float((found.mode / p.scale).square().sum())
    assert float(p.scaled(precision_factors(found.measured, gamma)[0]).values) == pytest.approx(expected)
    b = (60 - gamma.total) / float((Y - Phi @ found.mode).square().sum())
    assert 2.0 * noise_factor(found.measured, gamma, 60) == pytest.approx(b)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("settings", [DenseSolve(), DualSolve()])
def test_data_that_are_fitted_to_the_last_digit_keep_a_little_noise(settings, dtype):
    """Weights that stand in for each other, and no noise at all: the learned noise would go on to zero."""
    Phi = normal(12, 2, generator=of_data(0)).to(dtype)
    data = StoredData(Dense(torch.cat([Phi, Phi[:, :1]], 1)), GaussianCurvature(1.0, 12, dtype=dtype), Phi[:, 0])
    start = DiagonalPrior(1.0, num_weights=3, dtype=dtype)
    learned = learn_prior(data, start, settings=settings, learn_noise=True, generator=0)
    power = float(Phi[:, 0].double().square().mean())
    assert 1.0 / learned.data.noise_precision == pytest.approx(LEAST_NOISE * power, rel=1e-3)
    assert "noise held" in learned.history[-1]["events"][-1]
    assert bool(learned.samples.samples.isfinite().all())


def test_without_anything_to_explain_the_noise_stays(generator):
    Phi, Y = normal(12, 2, generator=of_data(0)), torch.zeros(12, dtype=DOUBLE)
    data = StoredData(Dense(Phi), GaussianCurvature(3.0, 12, dtype=DOUBLE), Y)
    learned = learn_prior(data, prior(1.0, 2), settings=DenseSolve(), learn_noise=True, generator=generator)
    assert learned.data.noise_precision == pytest.approx(3.0)


@pytest.mark.parametrize("start", [0.01, 100.0])
def test_em_ends_at_the_maximum_of_the_evidence(start, generator):
    data, Phi, Y = gaussian(40, 12)
    learned = learn_prior(
        data,
        prior(start, 12),
        em_steps=60,
        num_samples=8000,
        settings=DenseSolve(),
        tolerance=1e-5,
        generator=generator,
    )
    best = updated_precision(Primal(Phi, 1.0, 2.0), Y, "evidence")
    assert learned.converged
    assert float(learned.prior.values) == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize(
    "settings", [Descent(epochs=60.0, tolerance=0.05), DualSolve(solver=CG(tolerance=1e-6)), DenseSolve()], ids=repr
)
def test_every_e_step_learns_the_same(settings, generator):
    data, _, _ = gaussian(100, 12, precision=0.5, batch_size=50)
    drawn = draw_regularizers(data, 30, generator, mode=True, keep_noise=True)
    exact = learn_prior(data, prior(50.0, 12), settings=DenseSolve(), regularizers=drawn, tolerance=1e-3, em_steps=30)
    found = learn_prior(data, prior(50.0, 12), settings=settings, regularizers=drawn, tolerance=0.02, em_steps=30)
    assert float(found.prior.values) == pytest.approx(float(exact.prior.values), rel=0.1)


def test_softmax_goes_through(generator):
    data, _, _, _ = softmax(60, 3, 6, batch_size=20)
    results = [
        float(
            learn_prior(
                data, prior(1.0, 6), settings=settings, num_samples=50, em_steps=3, tolerance=9.0,
                generator=torch.Generator().manual_seed(0),
            ).prior.values
        )
        for settings in (DenseSolve(), DualSolve(solver=CG(tolerance=1e-6), newton_tolerance=1e-6))
    ]  # fmt: skip
    assert results[0] == pytest.approx(results[1], rel=1e-3)


def test_precisions_that_turn_back_go_half_of_the_way():
    before = [{"precision": [1.0, 4.0, 2.0]}]
    now = DiagonalPrior(torch.tensor([2.0, 2.0, 2.0]), groups=torch.tensor([0, 1, 2]), num_weights=3)
    factors = torch.tensor([0.25, 0.25, 0.25], dtype=DOUBLE)
    # The first had risen and would fall; the second falls on; the third had stood still.
    torch.testing.assert_close(settling(factors, now, before), torch.tensor([0.5, 0.25, 0.25], dtype=DOUBLE))
    torch.testing.assert_close(settling(factors, now, []), factors)


def test_groups_find_their_own_precisions(generator):
    data, Phi, Y, groups = grouped()
    learned = learn_prior(
        data, prior(torch.ones(3, dtype=DOUBLE), 60, groups=groups), settings=DenseSolve(), num_samples=2000,
        em_steps=40, tolerance=1e-3, generator=generator,
    )  # fmt: skip
    assert learned.converged
    # No precision can be moved by a tenth without losing evidence.
    values = learned.prior.values
    best = Primal(Phi, values[groups], 1.0).log_evidence(Y)
    for group in range(3):
        for factor in (0.8, 1.25):
            moved = values.clone()
            moved[group] *= factor
            assert float(Primal(Phi, moved[groups], 1.0).log_evidence(Y)) < float(best)


def test_the_noise_is_learned_with_the_prior(generator):
    data, Phi, Y = gaussian(300, 10, precision=4.0)
    learned = learn_prior(
        data.with_noise_precision(0.5), prior(1.0, 10), settings=DenseSolve(), num_samples=3000, em_steps=40,
        tolerance=1e-4, learn_noise=True, generator=generator,
    )  # fmt: skip
    a, b = float(learned.prior.values), learned.data.noise_precision
    best = float(Primal(Phi, a, b).log_evidence(Y))
    for c in (0.9, 1.1):
        assert float(Primal(Phi, c * a, b).log_evidence(Y)) < best
        assert float(Primal(Phi, a, c * b).log_evidence(Y)) < best
    assert learned.history[0]["noise_precision"] == 0.5


def test_noise_and_steps_are_learned_by_descent_too(generator):
    data, _, _ = gaussian(300, 10, precision=4.0, batch_size=100)
    exact, found = (
        learn_prior(
            data.with_noise_precision(0.5), prior(1.0, 10), settings=settings, num_samples=20, em_steps=15,
            tolerance=0.02, learn_noise=True, generator=torch.Generator().manual_seed(0),
        )
        for settings in (DenseSolve(), Descent(epochs=60.0))
    )  # fmt: skip
    assert found.data.noise_precision == pytest.approx(exact.data.noise_precision, rel=0.05)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_history_and_passes(generator):
    data, _, _ = gaussian(60, 8, batch_size=30)
    learned = learn_prior(data, prior(5.0, 8), em_steps=20, tolerance=0.1, settings=Descent(epochs=60.0))
    assert learned.converged
    assert len(learned.history) < 20
    first, last = learned.history[0], learned.history[-1]
    assert first["precision"] == [5.0]
    assert set(first["effective_dimension"]) == {"function", "weight", "pull"}
    assert last["moved"] <= 0.1 < first["moved"]
    assert learned.epochs == last["epochs"] > first["epochs"]
    again = learn_prior(
        data,
        prior(5.0, 8),
        em_steps=20,
        tolerance=0.1,
        settings=Descent(epochs=60.0),
        regularizers=learned.regularizers,
    )
    assert float(again.prior.values) == pytest.approx(float(learned.prior.values), rel=0.1)


def test_what_has_not_converged_says_so(generator):
    data, _, _ = gaussian()
    with pytest.warns(ConvergenceWarning, match="still moved"):
        learned = learn_prior(data, prior(1e3, 8), em_steps=1, settings=DenseSolve(), generator=generator)
    assert not learned.converged


def test_targets_of_zero_do_not_break_it(generator):
    """The evidence then has no maximum: the precision grows by a bounded factor, and that is said."""
    data, _, _ = gaussian()
    data.targets = torch.zeros_like(data.targets)
    with pytest.warns(ConvergenceWarning):
        learned = learn_prior(data, prior(1.0, 8), em_steps=2, settings=DenseSolve(), generator=generator)
    assert any("held to a change" in event for event in learned.history[0]["events"])
    assert bool(learned.prior.values.isfinite().all())


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_learned_is_refused(generator):
    data = softmax()[0]
    with pytest.raises(ValueError, match="no single noise precision"):
        learn_prior(data, prior(1.0, 6), learn_noise=True)
    with pytest.raises(ValueError, match="em_steps"):
        learn_prior(data, prior(1.0, 6), em_steps=0)
    measured = solve_dense(gaussian()[0], prior(1.0, 8), 1, mode=False).measured
    with pytest.raises(ValueError, match="needs the mode"):
        precision_factors(measured, effective_dimension(measured, prior(1.0, 8), 60))
    with pytest.raises(ValueError, match="estimator"):
        effective_dimension(measured, prior(1.0, 8), 60, "other")


def test_the_dimension_in_all_is_clipped_as_a_whole(generator):
    """Groups of 5, −3 and 1 have 3 together, which is what the noise is learned with."""
    data, _, _ = gaussian(60, 8)
    p = prior(torch.ones(3, dtype=DOUBLE), 8, groups=GROUPS)
    measured = solve_dense(data, p, 2, generator=generator).measured
    forms = torch.tensor([[5.0, 5.0], [-3.0, -3.0], [1.0, 1.0]], dtype=DOUBLE)
    found = effective_dimension(replace(measured, curvature_forms=forms), p, 60)
    assert found.by_group.tolist() == [2.0, 1e-6, 1.0]
    assert found.total == 3.0
    assert found.clipped == 2


def test_weights_that_the_data_can_do_without_keep_their_precision(generator):
    """The evidence has no maximum in it; in single precision a larger and larger one would end in an infinite one."""
    g = of_data(5)
    Phi = normal(80, 6, generator=g).float()
    Y = Phi[:, :3] @ torch.ones(3)
    Phi[:, 3:] *= 1e-3
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 80), Y)
    start = DiagonalPrior(torch.ones(2), num_weights=6, groups=torch.arange(6) // 3)
    learned = learn_prior(
        data, start, settings=DenseSolve(), num_samples=6, estimator="pull", em_steps=60, generator=generator
    )
    assert learned.converged
    assert any("say nothing of their weights" in event for event in learned.history[-1]["events"])
    assert float(learned.prior.values[0]) == pytest.approx(1.0, rel=0.5)
