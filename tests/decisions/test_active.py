"""Joint information of labels, against dense algebra."""

from __future__ import annotations

import pytest
import torch

from matheron.decisions import most_informative
from matheron.networks import LinearizedLaplace
from tests.networks import laplace_twin as twin
from tests.networks.test_laplace import covariance, problem


def test_whitened_samples_have_the_covariance_that_information_needs() -> None:
    model, X, y = problem("classification")
    g = torch.Generator().manual_seed(0)
    la = LinearizedLaplace(model).fit((X, y), em_steps=0, final_samples=4000, generator=g)
    rows = la.whitened_samples(X[:4]).flatten(1)
    K = covariance(model, X, "classification", la)[:12, :12]
    B = twin.curvature(model, X[:4], "classification")
    # The root is not unique, determinants are.
    measured = torch.logdet(torch.eye(12).double() + rows.mT @ rows / len(rows))
    torch.testing.assert_close(measured, torch.logdet(torch.eye(12).double() + B @ K), rtol=0.05, atol=0.0)


def test_the_first_choice_is_the_single_most_informative() -> None:
    model, X, y = problem("binary")
    g = torch.Generator().manual_seed(0)
    la = LinearizedLaplace(model, "binary").fit((X, y), em_steps=0, final_samples=4000, generator=g)
    pool = 3 * torch.randn(30, 2, generator=g, dtype=torch.float64)
    J = twin.jacobian(model, pool)
    A = la.prior.precision(torch.eye(J.shape[1], dtype=torch.float64))
    H = twin.jacobian(model, X).mT @ twin.curvature(model, X, "binary") @ twin.jacobian(model, X) + A
    p = model(pool).detach().sigmoid()[:, 0]
    gains = (p * (1 - p) * (J * torch.linalg.solve(H, J.mT).mT).sum(1)).log1p() / 2
    found = most_informative(la, pool, 5, generator=g)
    assert float(gains[found.indices[0]]) >= 0.95 * float(gains.max())


def test_copies_are_chosen_last() -> None:
    model, X, y = problem("classification")
    g = torch.Generator().manual_seed(0)
    la = LinearizedLaplace(model, prior_precision=1e-3).fit((X[:2], y[:2]), em_steps=0, final_samples=500, generator=g)
    best = int(most_informative(la, X, 1, generator=g).indices[0])
    pool = torch.cat([X[best : best + 1].repeat(3, 1), X[:6]])
    chosen = most_informative(la, pool, 4, generator=g).indices.tolist()
    assert sum(i < 3 for i in chosen[:2]) == 1


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_chosen_is_refused_before_the_pool_is_seen() -> None:
    la = LinearizedLaplace(torch.nn.Linear(2, 1).eval(), "regression")
    with pytest.raises(TypeError, match="posterior must be a LinearizedLaplace"):
        most_informative(torch.nn.Linear(2, 1), None, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num must be at least 1"):
        most_informative(la, None, 0)
    with pytest.raises(ValueError, match="criterion must be one of"):
        most_informative(la, None, 2, "entropy")
