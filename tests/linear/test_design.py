"""Criteria of design against dense covariances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from matheron.linear import greedy_design, information_gain, squared_error, variance_reduction
from matheron.linear.design import conditioned, scores


def covariance(k: int, c: int) -> Tensor:
    g = torch.Generator().manual_seed(0)
    root = torch.randn(k * c, 6, generator=g, dtype=torch.float64) * torch.linspace(0.3, 2.0, k * c)[:, None]
    return root @ root.mT


def samples(K: Tensor, k: int, c: int, s: int) -> Tensor:
    g = torch.Generator().manual_seed(1)
    values, vectors = torch.linalg.eigh(K)
    draws = torch.randn(s, len(K), generator=g, dtype=torch.float64)
    return (draws * values.clamp(min=0).sqrt() @ vectors.mT).reshape(s, k, c)


def dense_design(K: Tensor, k: int, c: int, num: int, criterion: str) -> list[int]:
    """``T K Tᵀ`` of each block, conditioned by the textbook formula."""
    chosen: list[int] = []
    for _ in range(num):
        scores = []
        for i in range(k):
            rows = slice(i * c, (i + 1) * c)
            noisy = K[rows, rows] + torch.eye(c).double()
            score = {
                "ese": K[rows, rows].trace(),
                "eig": 0.5 * torch.logdet(noisy),
                "evr": (K[:, rows] @ torch.linalg.solve(noisy, K[rows])).trace(),
            }[criterion]
            scores.append(-torch.inf if i in chosen else float(score))
        best = max(range(k), key=scores.__getitem__)
        chosen.append(best)
        rows = slice(best * c, (best + 1) * c)
        K = K - K[:, rows] @ torch.linalg.solve(K[rows, rows] + torch.eye(c).double(), K[rows])
    return chosen


@pytest.mark.parametrize("shape", [(5, 3, 20), (5, 20, 7)])
def test_scores_are_those_of_the_samples_covariance(shape: tuple[int, int, int]) -> None:
    k, c, s = shape
    F = samples(covariance(k, c), k, c, s)
    for i in range(k):
        C = F[:, i].mT @ F[:, i] / s
        torch.testing.assert_close(squared_error(F)[i], C.trace())
        expected = 0.5 * torch.logdet(C + torch.eye(c, dtype=torch.float64))
        torch.testing.assert_close(information_gain(F)[i], expected)
        cross = F.flatten(1).mT @ F[:, i] / s
        taken = (cross @ torch.linalg.solve(C + torch.eye(c, dtype=torch.float64), cross.mT)).trace()
        torch.testing.assert_close(variance_reduction(F)[i], taken)


def test_candidates_scored_some_at_a_time_are_scored_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    F = samples(covariance(7, 3), 7, 3, 30)
    whole = {criterion: scores(F, criterion, unit=0.5) for criterion in ("ese", "eig", "evr")}
    monkeypatch.setattr("matheron.linear.design.ENTRIES", 2 * 3 * 30)
    for criterion, expected in whole.items():
        torch.testing.assert_close(scores(F, criterion, unit=0.5), expected)
    torch.testing.assert_close(whole["evr"], variance_reduction(2.0 * F))


@pytest.mark.parametrize("criterion", ["ese", "eig", "evr"])
def test_greedy_choice_is_that_of_dense_covariances(criterion: str) -> None:
    k, c = 7, 2
    K = covariance(k, c)
    F = samples(K, k, c, 40_000)
    found = greedy_design(F, 4, criterion, generator=torch.Generator().manual_seed(2))
    assert found.indices.tolist() == dense_design(K, k, c, 4, criterion)


def test_conditioned_samples_have_the_conditional_covariance() -> None:
    k, c = 4, 2
    K = covariance(k, c)
    F = samples(K, k, c, 40_000)
    rows = slice(c, 2 * c)
    observed = F.flatten(1)[:, rows]
    factor = torch.linalg.cholesky(K[rows, rows] + torch.eye(c, dtype=K.dtype))
    after = conditioned(F.flatten(1), observed, factor, K[rows], torch.Generator().manual_seed(3))
    expected = K - K[:, rows] @ torch.linalg.solve(K[rows, rows] + torch.eye(c).double(), K[rows])
    error = ((expected.diagonal()[:, None] * expected.diagonal() + expected.square()) / len(after)).sqrt()
    assert bool(((after.mT @ after / len(after) - expected).abs() <= 6 * error + 1e-9).all())


def test_information_is_never_negative_and_adds_up() -> None:
    """The gains of a whole design sum to the information of all of it together."""
    k, c = 3, 2
    K = covariance(k, c)
    F = samples(K, k, c, 40_000)
    found = greedy_design(F, 3, "eig", generator=torch.Generator().manual_seed(4))
    assert bool((found.scores > 0).all())
    whole = 0.5 * torch.logdet(K + torch.eye(k * c, dtype=torch.float64))
    assert float(found.scores.sum()) == pytest.approx(float(whole), rel=0.01)


def test_bad_arguments() -> None:
    F = torch.randn(4, 3, 1)
    with pytest.raises(ValueError, match="num is 4"):
        greedy_design(F, 4)
    with pytest.raises(ValueError, match="criterion"):
        greedy_design(F, 1, "bald")
    with pytest.raises(ValueError, match="NaN"):
        greedy_design(F / 0, 1)
    with pytest.raises(ValueError, match="shape"):
        greedy_design(F[:, :0], 1)


@pytest.mark.parametrize("c", [1, 183])
def test_little_noise_is_not_lost_in_single_precision(c: int) -> None:
    """A variance of 10⁸ shared by all entries, and one of 10⁻⁴ of each."""
    g = torch.Generator().manual_seed(0)
    F = 1e4 * torch.randn(1000, 2, 1, generator=g) + 0.01 * torch.randn(1000, 2, c, generator=g)
    for criterion in ("eig", "evr"):
        torch.testing.assert_close(scores(F, criterion), scores(F.double(), criterion).float(), rtol=1e-4, atol=0.0)
        assert greedy_design(F, 2, criterion, generator=g).scores.isfinite().all()


def test_noise_that_is_lost_even_in_double_precision_is_named() -> None:
    with pytest.raises(ValueError, match="give the noise a larger variance"):
        information_gain(1e12 * torch.randn(50, 1, 1, generator=torch.Generator().manual_seed(0)) * torch.ones(20))
