"""Where learning a prior starts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from matheron import LinearizedLaplace


def precision_at_start(n: int, prior: str = "g", given: float | None = None) -> float:
    """Of a network of 41 weights."""
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 1)).eval()
    assert sum(p.numel() for p in model.parameters()) == 41
    X = torch.randn(n, 3, generator=g)
    la = LinearizedLaplace(model, "binary", prior, prior_precision=given)
    la.fit((X, (X[:, :1] > 0).float()), em_steps=0, final_samples=2, generator=g)
    return float(la.prior_precision)


def test_a_g_prior_starts_with_at_most_one_effective_dimension_for_each_datum() -> None:
    """``γ ≤ tr(A⁻¹M) = d / a``."""
    assert precision_at_start(10) == pytest.approx(4.1)
    assert precision_at_start(100) == 1.0


def test_a_given_precision_is_kept() -> None:
    assert precision_at_start(10, given=0.5) == 0.5
    assert precision_at_start(10, "isotropic") == 1.0
