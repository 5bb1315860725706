"""Filters of a network against matrices written out weight by weight."""

import math

import pytest
import torch

from matheron.linear import Filters, Part
from tests.linear.twins import DOUBLE, filter_covariance, normal

PARTS = [Part(18, (3, 3), 0), Part(2, (), 0), Part(4, (1, 1), 1), Part(12, (2, 3), 2), Part(9, (3, 3), 0)]


def test_forms_and_grams_add_up_to_the_covariance(generator):
    filters = Filters(PARTS)
    a, psi = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE), torch.tensor([0.7, 1.0, 4.0], dtype=DOUBLE)
    C, values = filter_covariance(PARTS, a, psi), filters.coefficients(a, psi)
    U, V, Phi = (normal(*shape, generator=generator) for shape in ((45, 3), (45, 3), (6, 45)))
    found = torch.einsum("kc,kcs->s", values, filters.forms(U, V))
    torch.testing.assert_close(found, (U * (C @ V)).sum(0))
    weights = torch.stack([values[pair] for pair in filters.components])
    torch.testing.assert_close(torch.tensordot(weights, filters.grams(Phi), dims=1), Phi @ C @ Phi.T)


def test_what_is_counted():
    filters = Filters(PARTS)
    assert filters.num_weights == 45
    assert filters.smooth.tolist() == [True, False, True]
    assert filters.groups.bincount().tolist() == [29, 4, 12]
    expected = sorted({math.hypot(i, j) for i in range(3) for j in range(3)})
    torch.testing.assert_close(filters.distances, torch.tensor(expected, dtype=DOUBLE))


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_filter_is_refused():
    with pytest.raises(ValueError, match="no whole filters"):
        Filters([Part(10, (3, 3), 0)])
    with pytest.raises(ValueError, match="empty"):
        Filters([])
