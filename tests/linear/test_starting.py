"""Where the search for a mode sets out from."""

import pytest
import torch

from matheron.linear import Descent, PrimalSolve, draw_regularizers, solve_dense
from matheron.linear.starting import set_out
from tests.linear.twins import DOUBLE, gaussian, logistic, prior


def objective(data, a, w, F):
    (batch,) = data.batches()
    return float(batch.loss(F)) + 0.5 * a * float(w.square().sum())


@pytest.mark.parametrize(("a", "multiple"), [(0.1, 1.0), (0.1, 100.0), (0.1, -1.0), (50.0, 1.0)])
def test_it_is_the_best_multiple_of_a_guess(a, multiple):
    data, Phi, _ = logistic(batch_size=9)
    whole = logistic()[0]
    guess = multiple * solve_dense(data, prior(0.1, 6), 1, generator=0).mode[:, None]
    w, F = set_out(data, prior(a, 6), guess[:, 0])
    torch.testing.assert_close(F, Phi @ w)
    tried = [objective(whole, a, t * guess, t * Phi @ guess) for t in (0.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)]
    assert objective(whole, a, w, F) <= min(tried) + 1e-9
    assert bool(w.any()) == (multiple > 0.0)


def test_what_overflows_is_not_taken():
    data = logistic()[0]
    assert not set_out(data, prior(1.0, 6), torch.full((6,), 1e308, dtype=DOUBLE))[0].any()


def test_without_a_guess_it_is_zero():
    w, F = set_out(logistic()[0], prior(1.0, 6), None)
    assert (w.shape, F.shape) == ((6, 1), (80, 1))
    assert not w.any()
    assert not F.any()


@pytest.mark.parametrize("multiple", [1.0, -1.0, 30.0])
def test_newtons_steps_arrive_where_they_would_have(multiple):
    data = logistic()[0]
    plain = solve_dense(data, prior(0.1, 6), 1, generator=0).mode
    data.guess = multiple * plain.float()
    torch.testing.assert_close(solve_dense(data, prior(0.1, 6), 1, generator=0).mode, plain)


@pytest.mark.parametrize("make", [gaussian, logistic])
def test_descent_from_the_mode_stays_there(make, generator):
    data = make(80, 6, batch_size=20)[0]
    drawn = draw_regularizers(data, 2, generator, mode=True)
    exact = solve_dense(data, prior(0.1, 6), drawn).mode
    far = {}
    for guess in (None, exact):
        data.guess = guess
        found = Descent(epochs=6.0, tolerance=1e-9).posterior(data, prior(0.1, 6), drawn, generator=generator)
        far[guess is None] = float((found.mode - exact).norm())
    assert far[False] < far[True] / 2.0


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_conjugate_gradients_from_the_mode_stay_there(generator):
    data = gaussian(80, 6)[0]
    exact = data.guess = solve_dense(data, prior(0.1, 6), 1, generator=0).mode
    drawn = draw_regularizers(data, 1, generator, mode=True)
    found = PrimalSolve(epochs=1.0, rank=0).posterior(data, prior(0.1, 6), drawn, generator=generator)
    assert not found.converged
    torch.testing.assert_close(found.mode, exact, rtol=1e-6, atol=1e-6)
