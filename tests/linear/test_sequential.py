"""Measurement by measurement against all of them at once, by dense algebra."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from matheron.linear import SequentialPosterior
from matheron.operators import Dense


def problem(n: int = 6, samples: int = 4000) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    root = torch.randn(n, n, dtype=torch.float64, generator=g)
    T, y = torch.randn(7, n, dtype=torch.float64, generator=g), torch.randn(7, dtype=torch.float64, generator=g)
    return root @ root.mT, T, y, torch.randn(samples, n, dtype=torch.float64, generator=g) @ root.mT


def dense(K: Tensor, T: Tensor, y: Tensor, b: float) -> tuple[Tensor, Tensor]:
    G = T @ K @ T.mT + torch.eye(len(T), dtype=K.dtype) / b
    return K @ T.mT @ torch.linalg.solve(G, y), K - K @ T.mT @ torch.linalg.solve(G, T @ K)


def fitted(K: Tensor, T: Tensor, y: Tensor, f: Tensor, b: float, parts: list[int]) -> SequentialPosterior:
    found = SequentialPosterior(Dense(K), f, b, generator=torch.Generator().manual_seed(1))
    for rows, part in zip(T.split(parts), y.split(parts), strict=True):
        found.observe(Dense(rows), part)
    return found


@pytest.mark.parametrize("parts", [[7], [2, 4, 1]])
def test_mean_and_covariance_are_those_of_dense_algebra(parts: list[int]) -> None:
    K, T, y, f = problem()
    found = fitted(K, T, y, f, 2.5, parts)
    mean, covariance = dense(K, T, y, 2.5)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.covariance(Dense(torch.eye(6, dtype=K.dtype))), covariance)


@pytest.mark.parametrize("parts", [[7], [2, 4, 1]])
def test_samples_have_the_conditional_covariance(parts: list[int]) -> None:
    K, T, y, f = problem()
    found = fitted(K, T, y, f, 2.5, parts).samples
    _, covariance = dense(K, T, y, 2.5)
    error = ((covariance.diagonal()[:, None] * covariance.diagonal() + covariance.square()) / len(f)).sqrt()
    assert float(((found.mT @ found / len(f) - covariance) / error).abs().max()) < 5.0
    assert float((found.mean(0) / (covariance.diagonal() / len(f)).sqrt()).abs().max()) < 5.0


def test_a_readout_of_samples_is_the_readout_of_conditioned_samples() -> None:
    K, T, y, f = problem(samples=10)
    whole = fitted(K, T, y, f, 2.5, [3, 4])
    found = SequentialPosterior(Dense(K), f @ T.mT, 2.5, readout=Dense(T), generator=torch.Generator().manual_seed(1))
    for rows in (slice(0, 3), slice(3, 7)):
        found.observe(Dense(T[rows]), rows=rows)
    torch.testing.assert_close(found.samples, whole.samples @ T.mT)
    with pytest.raises(ValueError, match="give rows with a readout"):
        found.observe(Dense(T))


def test_only_the_scale_of_noise_and_covariance_together_is_arbitrary() -> None:
    """``K`` and ``b⁻¹`` times four: deviations times two, the same mean."""
    K, T, y, f = problem(samples=10)
    once, scaled = fitted(K, T, y, f, 2.5, [7]), fitted(4.0 * K, T, y, 2.0 * f, 2.5 / 4.0, [7])
    torch.testing.assert_close(scaled.samples, 2.0 * once.samples)
    torch.testing.assert_close(scaled.mean, once.mean)


def test_what_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    K, T, y, f = problem(samples=10)
    with pytest.raises(ValueError, match="samples has shape"):
        SequentialPosterior(Dense(K), f[:, 1:], 1.0)
    with pytest.raises(ValueError, match="noise_precision must be positive"):
        SequentialPosterior(Dense(K), f, 0.0)
    found = SequentialPosterior(Dense(K), f, 1.0)
    with pytest.raises(ValueError, match="T is"):
        found.observe(Dense(T[:, 1:]))
    with pytest.raises(ValueError, match="y has 1 NaN"):
        found.observe(Dense(T), torch.where(y == y[0], torch.nan, y))
    with pytest.raises(ValueError, match="y has shape"):
        found.observe(Dense(T), y[1:])
    assert torch.equal(found.samples, f), "a refusal leaves everything as it was"
    monkeypatch.setattr("matheron.linear.sequential.free_memory", lambda device: 100.0)
    with pytest.raises(MemoryError, match="condition on fewer rows"):
        found.observe(Dense(T))
