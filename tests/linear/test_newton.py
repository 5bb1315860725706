"""How far Newton's steps go, and when they have arrived."""

import math

import torch

from matheron.linear.newton import SHORTEST, below_rounding, step_length, total_loss
from tests.linear.twins import gaussian, normal


def test_a_full_step_that_falls_is_taken():
    assert step_length(lambda t: 1.0 - t, 1.0) == (1.0, 0.0)


def test_steps_are_halved_past_values_that_are_no_numbers():
    assert step_length(lambda t: math.nan if t > 0.3 else 0.5, 1.0) == (0.25, 0.5)


def test_steps_too_long_by_many_powers_of_ten_are_shortened_to_the_lowest_point():
    size, found = step_length(lambda t: abs(1e6 * t - 1.0), 1.0)
    assert 0.5e-6 < size < 2e-6
    assert found < 0.5


def test_the_shortest_step_is_the_last():
    size, found = step_length(lambda t: 2.0, 1.0)
    assert SHORTEST / 2 < size <= SHORTEST
    assert found == 2.0


def test_rounding_is_that_of_the_objective():
    assert below_rounding(1e-4, 1e2, torch.float32)
    assert not below_rounding(1e-4, 1e2, torch.float64)


def test_the_loss_is_that_of_all_batches(generator):
    data = gaussian(11, 3, batch_size=4)[0]
    F = normal(11, 1, generator=generator)
    whole = gaussian(11, 3)[0]
    (batch,) = whole.batches()
    torch.testing.assert_close(total_loss(data, F), float(batch.loss(F)))
