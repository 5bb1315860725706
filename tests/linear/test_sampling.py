"""Sample-then-optimize against the exact optimum and the exact law."""

import pytest
import torch

from matheron.linear import (
    Descent,
    DiagonalPrior,
    GaussianCurvature,
    StoredData,
    draw_regularizers,
    sample_then_optimize,
    solve_dense,
)
from matheron.linear.exact import Primal
from matheron.operators import Dense
from matheron.solvers import ConvergenceWarning
from tests.linear.twins import DOUBLE, gaussian, logistic, normal, prior, softmax

LONG = Descent(epochs=400.0, tolerance=0.01, cooling=1.0)
quiet = pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def relative(found, exact):
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("objective", ["low-variance", "plain"])
@pytest.mark.parametrize("batch_size", [None, 25])
def test_both_objectives_have_the_exact_optimum(objective, batch_size):
    data, _, _ = gaussian(batch_size=batch_size)
    p = prior(torch.tensor([1.0, 5.0], dtype=DOUBLE), 8, groups=torch.tensor([0, 1] * 4))
    drawn = draw_regularizers(data, 5, seeded(), mode=True, keep_noise=True)
    exact = solve_dense(data, p, drawn)
    found = sample_then_optimize(data, p, drawn, objective=objective, settings=LONG, generator=seeded(1))
    assert found.converged
    assert relative(found.samples, exact.samples) < 0.03
    assert relative(found.mode, exact.mode) < 0.03


def test_samples_have_the_law_of_the_posterior():
    data, Phi, _ = gaussian(40, 4, batch_size=20)
    found = sample_then_optimize(data, prior(1.0, 4), 4000, mode=False, settings=LONG, generator=seeded())
    covariance = Primal(Phi, 1.0, 2.0).covariance
    spread = ((covariance.square() + covariance.diagonal()[:, None] * covariance.diagonal()) / 4000).sqrt()
    second = found.samples.mT @ found.samples / 4000
    assert bool(((second - covariance).abs() < 4.5 * spread).all())
    assert bool((found.samples.mean(0).abs() < 4.5 * (covariance.diagonal() / 4000).sqrt()).all())
    assert found.mode is None
    assert len(found.residual) == 4000


@quiet
@pytest.mark.parametrize("make", [logistic, softmax])
def test_the_mode_of_a_likelihood_that_is_not_gaussian(make):
    data = make(batch_size=20)[0]
    drawn = draw_regularizers(data, 3, seeded(), mode=True)
    exact = solve_dense(data, prior(1.0, 6), drawn)
    found = sample_then_optimize(data, prior(1.0, 6), drawn, settings=LONG, generator=seeded(1))
    assert relative(found.mode, exact.mode) < 0.02
    assert relative(found.samples, exact.samples) < 0.05


@quiet
def test_float32_goes_through():
    data, _, _ = gaussian(batch_size=10, dtype=torch.float32)
    found = sample_then_optimize(data, DiagonalPrior(1.0, num_weights=8), 3, generator=seeded())
    assert found.samples.dtype == found.mode.dtype == torch.float32


@quiet
def test_the_same_seed_gives_the_same_samples_and_another_gives_others():
    data, _, _ = gaussian(batch_size=10)
    settings = Descent(epochs=10.0, tolerance=0.9)
    first, second, third = (
        sample_then_optimize(data, prior(1.0, 8), 2, settings=settings, generator=seeded(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.samples, second.samples)
    assert not torch.equal(first.samples, third.samples)


@quiet
def test_copies_of_the_data_with_noise_to_match_change_nothing():
    """Twice the data, each with half the precision: the same steps and, in full batches, the same path."""
    data, Phi, Y = gaussian()
    copies = StoredData(Dense(Phi.repeat(2, 1)), GaussianCurvature(1.0, 120, dtype=DOUBLE), Y.repeat(2))
    drawn = draw_regularizers(data, 3, seeded(), mode=True)
    settings = Descent(epochs=20.0, tolerance=1e-9)
    one = sample_then_optimize(data, prior(1.0, 8), drawn, settings=settings, generator=seeded())
    two = sample_then_optimize(copies, prior(1.0, 8), drawn, settings=settings, generator=seeded())
    torch.testing.assert_close(one.steepness, two.steepness)
    torch.testing.assert_close(one.samples, two.samples)


@quiet
def test_a_scale_of_the_features_that_the_prior_follows_changes_nothing():
    """Descent is in coordinates where the prior is white."""
    data, Phi, Y = gaussian(batch_size=10)
    scale = torch.logspace(-3, 3, 8, dtype=DOUBLE)
    stretched = StoredData(Dense(Phi * scale), GaussianCurvature(2.0, 60, dtype=DOUBLE), Y, 10)
    settings = Descent(epochs=8.0, tolerance=0.9)
    one = sample_then_optimize(data, prior(1.0, 8), 2, settings=settings, generator=seeded())
    two = sample_then_optimize(stretched, prior(1.0, 8, scale=1.0 / scale), 2, settings=settings, generator=seeded())
    torch.testing.assert_close(one.samples, two.samples * scale)
    torch.testing.assert_close(one.mode, two.mode * scale)


@quiet
def test_directions_that_no_datum_sees_keep_their_prior_sample_at_every_precision():
    g = seeded(7)
    Phi = torch.cat([normal(30, 3, generator=g), torch.zeros(30, 5, dtype=DOUBLE)], dim=1)
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 30, dtype=DOUBLE), normal(30, generator=g), 10)
    drawn = draw_regularizers(data, 3, g, mode=True)
    first = sample_then_optimize(data, prior(1.0, 8), drawn, generator=g)
    torch.testing.assert_close(first.samples[:, 3:], drawn.unit[:, 3:])
    again = sample_then_optimize(data, prior(9.0, 8), drawn, warm=first, generator=g)
    torch.testing.assert_close(again.samples[:, 3:], drawn.unit[:, 3:] / 3.0)


def test_a_warm_start_at_the_solution_stays_there_and_costs_little():
    data, _, _ = gaussian()
    drawn = draw_regularizers(data, 3, seeded(), mode=True)
    exact = solve_dense(data, prior(1.0, 8), drawn)
    settings = Descent(epochs=40.0, tolerance=0.1)
    cold = sample_then_optimize(data, prior(1.0, 8), drawn, settings=settings, generator=seeded(1))
    warm = sample_then_optimize(
        data, prior(1.0, 8), drawn, guess=exact.samples, mode_guess=exact.mode, settings=settings, generator=seeded(1)
    )
    assert warm.epochs < cold.epochs
    assert warm.trace[0]["estimate"] < cold.trace[0]["estimate"]
    # Steps measured before are not measured again.
    carried = sample_then_optimize(data, prior(2.0, 8), drawn, warm=cold, settings=settings, generator=seeded(1))
    torch.testing.assert_close(carried.steepness - 1.0, (cold.steepness - 1.0) / 2.0)


def test_a_step_too_long_is_noticed_and_mended():
    data, _, _ = gaussian()
    settings = Descent(epochs=150.0, tolerance=0.01, step=2.0, clip=1e9)
    found = sample_then_optimize(data, prior(1.0, 8), 3, settings=settings, generator=seeded())
    assert any("halved" in event for event in found.events)
    assert any("event" in record for record in found.trace)
    assert found.converged


def test_what_has_not_converged_says_so():
    data, _, _ = gaussian(batch_size=10)
    with pytest.warns(ConvergenceWarning, match="relative gradient norm"):
        found = sample_then_optimize(
            data, prior(1e-3, 8), 3, settings=Descent(epochs=4.0, tolerance=1e-6), generator=seeded()
        )
    assert not found.converged


class Counted(Dense):
    """Counts rows that were multiplied, and transposed ones."""

    count = 0

    def product(self, V):
        Counted.count += self.shape[0]
        return super().product(V)

    def rows(self, index):
        return Counted(self.matrix[index])

    def transpose(self):
        return Transposed(self.matrix.mT)


class Transposed(Dense):
    def product(self, V):
        Counted.count += self.shape[1]
        return super().product(V)


@quiet
@pytest.mark.parametrize("make", [gaussian, logistic])
@pytest.mark.parametrize("batch_size", [None, 13])
def test_every_pass_is_counted(make, batch_size):
    data = make(batch_size=batch_size)[0]
    data.features = Counted(data.features.dense())
    Counted.count = 0
    found = sample_then_optimize(data, prior(1.0, data.num_weights), 2, generator=seeded())
    assert found.epochs == pytest.approx(Counted.count / (2 * data.num_rows))


@quiet
def test_a_monitor_joins_the_trace():
    data, _, _ = gaussian(batch_size=10)
    found = sample_then_optimize(
        data, prior(1.0, 8), 2, generator=seeded(), monitor=lambda samples, mode: {"norm": float(mode.norm())}
    )
    assert all("norm" in record for record in found.trace)


@pytest.mark.usefixtures("unchecked")
def test_arguments_that_do_not_fit_are_refused():
    data, _, _ = gaussian()
    p, drawn = prior(1.0, 8), draw_regularizers(gaussian()[0], 3, seeded())
    with pytest.raises(ValueError, match="keep_noise=True"):
        sample_then_optimize(data, p, drawn, mode=False, objective="plain")
    with pytest.raises(ValueError, match="mode=True"):
        sample_then_optimize(data, p, drawn)
    with pytest.raises(ValueError, match="guess has shape"):
        sample_then_optimize(data, p, drawn, mode=False, guess=torch.ones(2, 8, dtype=DOUBLE))
    with pytest.raises(ValueError, match="objective"):
        sample_then_optimize(data, p, 3, objective="other")
    with pytest.raises(ValueError, match="step"):
        Descent(step=0.0)
