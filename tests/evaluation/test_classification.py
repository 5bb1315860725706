"""Scores against their definitions."""

from __future__ import annotations

import pytest
import torch

from matheron.evaluation import dyadic_log_likelihood, log_likelihood, ranking, reliability


def test_independent_labels_lose_as_many_times_as_there_are() -> None:
    """A single function knows nothing of what labels share: τ times the marginal score."""
    g = torch.Generator().manual_seed(0)
    logs = torch.rand(1, 60, generator=g).log()
    marginal = dyadic_log_likelihood(logs, 1, generator=g)
    assert marginal == pytest.approx(float(logs.mean()), rel=1e-6)
    many = dyadic_log_likelihood(logs, 3, shuffles=400, generator=g)
    assert many == pytest.approx(20 * marginal, rel=0.02)


def test_functions_that_agree_among_themselves_do_better_together() -> None:
    """Either all labels are certain or none: ``log ½`` at best for any number of them."""
    logs = torch.tensor([[0.0], [-100.0]]).expand(2, 40)
    g = torch.Generator().manual_seed(0)
    for kappa in (1, 2, 5):
        assert dyadic_log_likelihood(logs, kappa, generator=g) == pytest.approx(-0.6931, abs=1e-3)


def test_area_is_the_share_of_pairs_in_order() -> None:
    g = torch.Generator().manual_seed(0)
    inside, outside = torch.randint(5, (30,), generator=g).float(), torch.randint(2, 8, (20,), generator=g).float()
    wins = (outside[:, None] > inside).double() + 0.5 * (outside[:, None] == inside).double()
    assert ranking(inside, outside) == pytest.approx(float(wins.mean()), rel=1e-12)


def test_labels_drawn_from_the_probabilities_are_calibrated() -> None:
    g = torch.Generator().manual_seed(0)
    p = (2 * torch.randn(20_000, 4, generator=g)).softmax(1)
    found = reliability(p, torch.multinomial(p, 1, generator=g)[:, 0])
    assert int(found.counts.sum()) == 80_000
    deviation = (found.confidence * (1 - found.confidence) / found.counts).sqrt()
    assert bool(((found.accuracy - found.confidence).abs() <= 4 * deviation).all())
    assert found.error < 0.01


def test_bad_arguments() -> None:
    p, y = torch.full((3, 2), 0.5), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="probabilities"):
        log_likelihood(p * 4, y)
    with pytest.raises(ValueError, match="kappa"):
        dyadic_log_likelihood(torch.zeros(2, 3), 4, generator=torch.Generator())
    with pytest.raises(ValueError, match="no data"):
        log_likelihood(p[:0], y[:0])
    with pytest.raises(ValueError, match="at least one"):
        ranking(torch.zeros(0), torch.zeros(2))
