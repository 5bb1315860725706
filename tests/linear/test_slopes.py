"""Gradients of the evidence in the parts of the prior covariance: finite differences, and samples beside them."""

import math

import pytest
import torch

from matheron.linear import FactorizedSlopes, FilterPrior, Filters, GaussianCurvature, SampledSlopes, StoredData
from matheron.linear.exact import Dual
from matheron.operators import Dense
from matheron.solvers import CG, RandomizedSVD
from tests.linear.test_filters import PARTS
from tests.linear.twins import DOUBLE, filter_covariance, normal, of_data

A, PSI, B = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE), torch.tensor([0.7, 1.0, 4.0], dtype=DOUBLE), 3.0


def problem(rows=12):
    g = of_data(0)
    return normal(rows, 45, generator=g), 5.0 * normal(rows, generator=g)


def evidence(Phi, y, a, psi, b):
    return float(Dual(Phi @ filter_covariance(PARTS, a, psi) @ Phi.T, b).log_evidence(y))


def prior(a, psi):
    return FilterPrior(a, psi, Filters(PARTS), dtype=DOUBLE)


def test_the_evidence_and_its_gradient():
    Phi, y = problem()
    found = FactorizedSlopes(Filters(PARTS), Phi, y)(prior(A, PSI), B)
    assert found.value == pytest.approx(evidence(Phi, y, A, PSI, B))
    h = 1e-5
    noise = (evidence(Phi, y, A, PSI, 1 / (1 / B + h)) - evidence(Phi, y, A, PSI, 1 / (1 / B - h))) / (2 * h)
    assert found.noise == pytest.approx(noise, rel=1e-6)
    logs = torch.stack([A, PSI]).log().requires_grad_()
    objective = (found.coefficients * Filters(PARTS).coefficients(*logs.exp())).sum()
    slope = torch.autograd.grad(objective, logs)[0]
    for place in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]:
        up, down = logs.detach().clone(), logs.detach().clone()
        up[place] += h
        down[place] -= h
        numeric = (evidence(Phi, y, *up.exp(), B) - evidence(Phi, y, *down.exp(), B)) / (2 * h)
        assert float(slope[place]) == pytest.approx(numeric, rel=1e-5, abs=1e-7)


def test_without_targets_only_the_determinant_is_left():
    Phi, _ = problem()
    filters, p = Filters(PARTS), prior(A, PSI)
    found = FactorizedSlopes(filters, Phi, None)(p, B)
    S = Phi @ filter_covariance(PARTS, A, PSI) @ Phi.T + torch.eye(12, dtype=DOUBLE) / B
    assert found.value == pytest.approx(-0.5 * float(torch.logdet(S)) - 6.0 * math.log(2.0 * math.pi))


@pytest.mark.parametrize("preconditioner", [None, RandomizedSVD(rank=6)])
def test_sampled_gradients_agree_within_their_spread(preconditioner, generator):
    Phi, y = problem(30)
    filters, p = Filters(PARTS), prior(A, PSI)
    exact = FactorizedSlopes(filters, Phi, y)(p, B)
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 30, dtype=DOUBLE), y)
    solver = CG(tolerance=1e-8, preconditioner=preconditioner)
    runs = [SampledSlopes(filters, data, solver, 100, generator)(p, B) for _ in range(16)]
    for found, wanted in (
        (torch.stack([run.coefficients for run in runs]), exact.coefficients),
        (torch.tensor([run.noise for run in runs], dtype=DOUBLE), torch.tensor(exact.noise, dtype=DOUBLE)),
    ):
        error = found.std(0) / 16**0.5
        assert bool(((found.mean(0) - wanted).abs() <= 5.0 * error + 1e-9).all())


def test_a_solve_starts_from_the_last_and_keeps_its_preconditioner(generator):
    Phi, y = problem(30)
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 30, dtype=DOUBLE), y)
    slopes = SampledSlopes(Filters(PARTS), data, CG(tolerance=1e-6, preconditioner=RandomizedSVD(rank=8)), 3, generator)
    first = slopes(prior(A, PSI), B)
    spent = slopes.epochs
    again = slopes(prior(A, PSI), B)
    torch.testing.assert_close(again.coefficients, first.coefficients, rtol=1e-4, atol=1e-6)
    assert slopes.epochs - spent < 0.5 * spent


def test_a_state_that_is_restored_gives_the_same_gradient(generator):
    """Guess, preconditioner, its age and the generator."""
    Phi, y = problem(30)
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 30, dtype=DOUBLE), y)
    solver = CG(tolerance=1e-2, preconditioner=RandomizedSVD(rank=8))

    def fresh():
        return SampledSlopes(Filters(PARTS), data, solver, 3, of_data(4), renewal=2)

    slopes, again = fresh(), fresh()
    for scale in (1.0, 2.0, 3.0):
        slopes(prior(scale * A, PSI), B)
    again.restore({name: value.clone() for name, value in slopes.state().items()})
    for scale in (4.0, 5.0):
        expected, found = (s(prior(scale * A, PSI), B) for s in (slopes, again))
        assert torch.equal(found.coefficients, expected.coefficients)
        assert found.noise == expected.noise
    assert again.epochs == slopes.epochs
    exact = FactorizedSlopes(Filters(PARTS), Phi, y)
    exact.restore(exact.state())


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused(monkeypatch, generator):
    Phi, y = problem()
    data = StoredData(Dense(Phi), GaussianCurvature(1.0, 12, dtype=DOUBLE))
    with pytest.raises(ValueError, match="no targets"):
        SampledSlopes(Filters(PARTS), data, CG(), 2, generator)
    monkeypatch.setattr("matheron.linear.slopes.free_memory", lambda device: 100.0)
    with pytest.raises(MemoryError, match="use method='cg'"):
        FactorizedSlopes(Filters(PARTS), Phi, y)
