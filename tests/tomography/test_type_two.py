"""Learning precisions, lengthscales and noise: the objective's gradient, its maximum, bounds and checkpoints."""

import pytest
import torch

from matheron.linear import FactorizedSlopes, FilterPrior, Filters
from matheron.linear.filter_prior import Held
from matheron.operators import Dense
from matheron.solvers import ConvergenceWarning
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography import PredCP, TypeTwoMAP
from matheron.tomography.type_two import LONGEST, Seen, TypeTwo, learn_filters
from tests.linear.twins import DOUBLE, filter_covariance, normal, of_data
from tests.tomography.test_predcp import PARTS, SHAPE

A, PSI = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE), torch.tensor([0.7, 1.0, 4.0], dtype=DOUBLE)


def objective(*, predcp=True, held=False, learn_noise=True, start=(A, PSI)):
    """Weights drawn from the prior at ``A`` and ``PSI``, 40 measurements, a noise precision of 25."""
    g = of_data(2)
    phi, filters = normal(20, 30, generator=g), Filters(PARTS)
    Phi = normal(40, 20, generator=g) @ phi
    w = torch.linalg.cholesky(filter_covariance(PARTS, A, PSI)) @ normal(30, generator=g)
    y = Phi @ w + 0.2 * normal(40, generator=g)
    kept = (Held(filters, w), float((y - Phi @ w).square().sum())) if held else None
    return TypeTwo(
        FilterPrior(*start, filters, dtype=DOUBLE), FactorizedSlopes(filters, Phi, None if held else y),
        PredCP.of(filters, Dense(phi), SHAPE, unit=30.0) if predcp else None, held=kept, equal=start[0],
        noise_precision=25.0, learn_noise=learn_noise, power=float(y.square().mean()), rows=40,
    )  # fmt: skip


@pytest.mark.parametrize("predcp", [True, False])
@pytest.mark.parametrize("held", [True, False])
def test_the_gradient_is_that_of_finite_differences(predcp, held):
    f = objective(predcp=predcp, held=held)
    theta = f.vector() + 0.1
    record, gradient = f(theta)
    assert len(theta) == 3 + 2 + 1
    for place in range(len(theta)):
        up, down = theta.clone(), theta.clone()
        up[place] += 1e-5
        down[place] -= 1e-5
        numeric = (f(up)[0]["objective"] - f(down)[0]["objective"]) / 2e-5
        assert float(gradient[place]) == pytest.approx(numeric, rel=1e-5, abs=1e-5)
    assert (record["objective"] == record["evidence"]) is (not predcp)


@pytest.mark.parametrize("held", [True, False])
def test_nothing_near_the_end_is_better(held):
    f = objective(held=held, start=(10.0 * A, torch.ones(3, dtype=DOUBLE)))
    learnt = learn_filters(f, TypeTwoMAP(gain=1e-10), exact=True)
    assert learnt.converged
    logs = [learnt.prior.values.log(), learnt.prior.lengthscales[[0, 2]].log()]
    theta = torch.cat([*logs, -torch.tensor([learnt.noise_precision], dtype=DOUBLE).log()])
    best = f(theta)[0]["objective"]
    for place in range(len(theta)):
        for step in (-0.1, 0.1):
            moved = theta.clone()
            moved[place] += step
            moved = torch.minimum(torch.maximum(moved, f.low), f.high)
            assert f(moved)[0]["objective"] <= best + 1e-6


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_steps_by_gradients_alone_end_at_the_same_place():
    f = objective(held=True)
    exact = learn_filters(f, TypeTwoMAP(gain=1e-10), exact=True)
    found = learn_filters(f, TypeTwoMAP(steps=600, learning_rate=0.03, tolerance=1e-3), exact=False)
    torch.testing.assert_close(found.prior.values.log(), exact.prior.values.log(), atol=0.05, rtol=0.0)
    torch.testing.assert_close(found.prior.lengthscales.log(), exact.prior.lengthscales.log(), atol=0.05, rtol=0.0)


def test_bounds_hold(generator):
    """Without PredCP and with weights that are all alike within a filter, lengthscales grow to their bound."""
    f = objective(predcp=False)
    filters = f.start.filters
    alike = torch.cat([torch.full((9,), 1.0), torch.full((9,), -1.0), torch.ones(12)]).double()
    Phi = normal(60, 30, generator=generator)
    flat = TypeTwo(
        f.start, FactorizedSlopes(filters, Phi, Phi @ alike), None, equal=A, noise_precision=1e4, learn_noise=False,
        power=10.0, rows=60,
    )  # fmt: skip
    learnt = learn_filters(flat, TypeTwoMAP(steps=100), exact=True)
    assert float(learnt.prior.lengthscales.max()) == pytest.approx(LONGEST)
    assert learnt.noise_precision == 1e4


@pytest.mark.parametrize("exact", [True, False])
def test_an_interrupted_ascent_goes_on_to_the_same_prior(exact, tmp_path, monkeypatch):
    f, settings = objective(), TypeTwoMAP(steps=12, gain=1e-12)
    whole = _learnt(f, settings, exact)
    path = tmp_path / "ascent"
    original, calls = TypeTwo.__call__, []

    def interrupted(self, theta):
        calls.append(theta)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(TypeTwo, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _learnt(f, settings, exact, Checkpoint(path, seconds=0.0))
    assert path.exists()
    again = _learnt(f, settings, exact, Checkpoint(path, seconds=0.0))
    torch.testing.assert_close(again.prior.values, whole.prior.values)
    assert len(calls) == len(whole.history) + 1
    third = _learnt(f, settings, exact, Checkpoint(path, seconds=0.0))
    assert torch.equal(third.prior.values, again.prior.values)
    assert len(calls) == len(whole.history) + 1


def test_another_point_ends_the_record_of_an_interrupted_ascent(tmp_path):
    """What was recorded after it belongs to another ascent, and cannot win."""
    f, place = objective(), Checkpoint(tmp_path / "ascent", seconds=0.0)
    start = f.vector()
    first = Seen(f, place, {})
    for theta in (start, start + 0.1, start + 0.2):
        first(theta)
    again = Seen(f, place, {})
    again(start)
    again(start - 0.1)
    assert len(again.points) == len(again.gradients) == len(again.history) == 2
    assert torch.equal(again.points[1], start - 0.1)
    assert [record["step"] for record in again.history] == [0, 1]


def _learnt(f, settings, exact, checkpoint=None):
    with pytest.warns(ConvergenceWarning, match="allow more steps"):
        return learn_filters(f, settings, exact=exact, checkpoint=checkpoint)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("options", [{"steps": 0}, {"em_steps": 0}, {"learning_rate": -1.0}, {"window": 2.5}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises((ValueError, TypeError), match=next(iter(options))):
        TypeTwoMAP(**options)
