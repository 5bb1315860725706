"""The log evidence from products against dense algebra."""

from __future__ import annotations

import pytest
import torch

from matheron.linear import (
    DiagonalPrior,
    Evidence,
    GaussianCurvature,
    StoredData,
    evidence,
    log_determinant,
    log_evidence,
)
from matheron.linear.exact import Primal
from matheron.operators import Dense


def problem(n: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[StoredData, DiagonalPrior, Primal]:
    g = torch.Generator().manual_seed(0)
    Phi = torch.randn(n, d, generator=g, dtype=dtype) / torch.arange(1, d + 1, dtype=dtype)
    Y, s = torch.randn(n, generator=g, dtype=dtype), 0.5 + torch.rand(d, generator=g, dtype=dtype)
    data = StoredData(Dense(Phi), GaussianCurvature(2.0, size=n, dtype=dtype), Y, batch_size=7)
    return data, DiagonalPrior(3.0, num_weights=d, scale=s, dtype=dtype), Primal(Phi, torch.diag(3.0 / s**2), 2.0)


def test_at_the_mode_it_is_the_log_evidence() -> None:
    data, prior, model = problem(20, 6)
    Y = data.targets
    assert Y is not None
    found = log_evidence(data, prior, model.weights(Y).mean)
    constant = 0.5 * 20 * torch.log(torch.tensor(2.0 / (2 * torch.pi), dtype=torch.float64))
    assert found.value + float(constant) == pytest.approx(float(model.log_evidence(Y)), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(200, 50), (20, 50)])
def test_probes_average_to_the_determinant(shape: tuple[int, int], dtype: torch.dtype) -> None:
    data, prior, model = problem(*shape, dtype)
    values, passes = log_determinant(data, prior, probes=400, steps=24, generator=torch.Generator().manual_seed(1))
    expected = torch.logdet(model.hessian.double()) - torch.logdet(model.prior_precision.double())
    assert float((values.mean() - expected).abs()) <= 4 * float(values.std()) / 20 + 1e-4 * float(expected)
    assert passes == 24


def test_a_recursion_through_all_directions_is_exact() -> None:
    """With as many steps as weights a single probe of one dimension knows everything."""
    data, prior, model = problem(5, 1)
    values, _ = log_determinant(data, prior, probes=3, steps=10, generator=torch.Generator().manual_seed(0))
    expected = torch.logdet(model.hessian) - torch.logdet(model.prior_precision)
    torch.testing.assert_close(values, expected.expand(3))


def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    data, prior, _ = problem(60, 40)
    w = torch.zeros(40, dtype=torch.float64)
    exact = log_evidence(data, prior, w)
    monkeypatch.setattr(evidence, "FEW", 10)
    sampled = log_evidence(data, prior, w, probes=100, generator=torch.Generator().manual_seed(0))
    assert isinstance(sampled, Evidence)
    assert exact.error == 0.0 < sampled.error
    assert sampled.value == pytest.approx(exact.value, abs=2 * sampled.error)
    assert (sampled.loss, sampled.penalty) == (exact.loss, exact.penalty)
