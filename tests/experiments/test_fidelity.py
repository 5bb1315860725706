"""The exact posterior of a tangent model and the distances from it, against dense algebra."""

import pytest
import torch

from experiments.full_covariance import FullCovariance, dimension_of, functional_covariance
from experiments.mnist_fidelity import bound, optimum, symmetric_kl, wasserstein
from matheron.linear.dense import curvature_matrix
from tests.linear.twins import DOUBLE, newton, prior, softmax


@pytest.fixture
def problem():
    data, Phi, labels, p = softmax(batch_size=9)
    return FullCovariance(data, curvature_matrix(data)), Phi, labels, p


def objective(Phi, labels, a):
    def value(w):
        logits = (Phi @ w).reshape(len(labels), -1)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum") + 0.5 * (a * w * w).sum()

    return value


def blocks(p):
    return torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p))


@pytest.mark.parametrize("a", [0.1, 3.0])
def test_the_mode_is_newtons(problem, a):
    full, Phi, labels, _ = problem
    chosen = prior(a, 6)
    expected = newton(objective(Phi, labels, a), torch.zeros(6, dtype=DOUBLE))
    factor = full.factor(chosen)
    found = full.mode(chosen, factor, None)
    assert float((factor.mT @ (found - expected)).norm()) < 0.05
    torch.testing.assert_close(full.mode(chosen, factor, expected), expected, rtol=0.0, atol=0.02)


def test_layerwise_em_is_mackays_update_by_group(problem):
    full, Phi, labels, p = problem
    groups, a = torch.tensor([0, 0, 1, 1, 1, 1]), torch.tensor([0.5, 2.0], dtype=DOUBLE)
    start = prior(a, 6, groups=groups)
    found = full.layerwise(start, 1)[-1].values
    M = Phi.mT @ blocks(p) @ Phi
    ratio = torch.linalg.solve(M + torch.diag(a[groups]), M).diagonal()
    w = newton(objective(Phi, labels, a[groups]), torch.zeros(6, dtype=DOUBLE))
    expected = torch.stack([ratio[groups == g].sum() / w[groups == g].square().sum() for g in (0, 1)])
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.0)


def test_em_for_one_precision_ends_at_its_fixed_point(problem):
    full = problem[0]
    dimension = dimension_of(torch.linalg.eigvalsh(full.M))
    path, mode = full.single(dimension, 1.0, 60)
    assert dimension(path[-1]) == pytest.approx(path[-1] * float(mode.square().sum()), rel=0.02)


def test_functional_covariances(problem):
    full = problem[0]
    J = torch.randn(4, 3, 6, dtype=DOUBLE)
    covariance = torch.linalg.inv(full.M + 0.5 * torch.eye(6, dtype=DOUBLE))
    torch.testing.assert_close(functional_covariance(J, full.factor(prior(0.5, 6))), J @ covariance @ J.mT)


def test_the_optimum_has_no_better_neighbor():
    spectrum = torch.tensor([0.1, 1.0, 10.0, 100.0], dtype=DOUBLE)
    best = optimum(spectrum, 2.0)
    values = bound(spectrum, 2.0, best * torch.tensor([0.99, 1.0, 1.01], dtype=DOUBLE))
    assert int(values.argmax()) == 1


def test_distances_of_gaussians():
    """Of matrices that commute the distance is that of the roots; from a point it is the root of the trace."""
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=DOUBLE))[0]
    one, two = (rotation @ torch.diag(torch.tensor(v, dtype=DOUBLE)) @ rotation.mT for v in ([1, 4, 9], [4, 4, 1]))
    torch.testing.assert_close(wasserstein(one, two), torch.tensor(5.0**0.5, dtype=DOUBLE))
    torch.testing.assert_close(wasserstein(two, one), torch.tensor(5.0**0.5, dtype=DOUBLE))
    torch.testing.assert_close(wasserstein(one, 0.0 * two), torch.tensor(14.0**0.5, dtype=DOUBLE))


def test_the_divergence_is_symmetric_and_zero_for_the_same():
    p, q = torch.randn(2, 5, 4, dtype=DOUBLE).log_softmax(-1)
    expected = 0.5 * ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1))
    torch.testing.assert_close(symmetric_kl(p, q), expected)
    assert not bool(symmetric_kl(p, p).any())
