"""Bounds on the evidence and the updates that maximize them."""

import math

import pytest
import torch

from matheron.linear.bounds import fixed_mean_bound, precision_path, updated_precision
from matheron.linear.exact import Primal
from tests.linear.twins import gaussian

GRID = torch.logspace(-3, 3, 61).tolist()


@pytest.fixture
def problem():
    _, Phi, Y = gaussian(30, 10)
    return Phi, Y


def test_the_order_of_the_bounds(problem):
    """The decoupled ELBO is at most ``𝓜``, ``𝓜`` at most the evidence; all touch where they were made."""
    Phi, Y = problem
    posterior = Primal(Phi, 3.0, 2.0).weights(Y)
    for a in [*GRID, 3.0]:
        model = Primal(Phi, a, 2.0)
        elbo, bound = model.elbo(posterior, Y), fixed_mean_bound(model, posterior.mean, Y)
        evidence = model.log_evidence(Y)
        assert float(elbo) <= float(bound) + 1e-9
        assert float(bound) <= float(evidence) + 1e-9
        if a == 3.0:
            torch.testing.assert_close(elbo, evidence)
            torch.testing.assert_close(bound, evidence)


@pytest.mark.parametrize("update", ["evidence", "bound", "elbo"])
def test_updates_maximize_what_they_say(problem, update):
    Phi, Y = problem
    start = Primal(Phi, 30.0, 2.0)
    posterior = start.weights(Y)

    def value(a):
        model = Primal(Phi, a, 2.0)
        if update == "evidence":
            return float(model.log_evidence(Y))
        return float(model.elbo(posterior, Y) if update == "elbo" else fixed_mean_bound(model, posterior.mean, Y))

    best = updated_precision(start, Y, update)
    assert all(value(best) >= value(a) - 1e-9 for a in [*GRID, 0.99 * best, 1.01 * best])


@pytest.mark.parametrize("update", ["mackay", "bound", "elbo"])
@pytest.mark.parametrize("start", [5e-3, 500.0])
def test_every_update_ends_at_the_maximum_of_the_evidence(problem, update, start):
    Phi, Y = problem
    best = updated_precision(Primal(Phi, 1.0, 2.0), Y, "evidence")
    path = precision_path(Phi, 2.0, Y, start, 60, update)
    assert path[-1] == pytest.approx(best, rel=1e-4)


def test_mackay_needs_fewer_steps_than_the_decoupled_bound():
    """With more weights than data, whose covariance under the prior the decoupled bound holds on to."""
    _, Phi, Y = gaussian(10, 50)
    best = updated_precision(Primal(Phi, 1.0, 2.0), Y, "evidence")

    def steps(update):
        path = precision_path(Phi, 2.0, Y, 500.0, 100, update)
        return next(i for i, a in enumerate(path) if abs(math.log(a / best)) < 0.05)

    assert steps("evidence") == 1
    assert steps("mackay") <= steps("bound") < steps("elbo")


@pytest.mark.usefixtures("unchecked")
def test_other_updates_are_refused(problem):
    with pytest.raises(ValueError, match="update must be"):
        updated_precision(Primal(problem[0], 1.0, 2.0), problem[1], "other")
