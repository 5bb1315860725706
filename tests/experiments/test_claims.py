import math

import pytest

from experiments.claims import at_least, at_most, within


@pytest.mark.parametrize(("measured", "holds"), [(1.0, True), (1.2, True), (1.3, False), (math.nan, False)])
def test_at_most(measured, holds):
    assert at_most("ratio", measured=measured, limit=1.2).holds is holds


@pytest.mark.parametrize(("measured", "holds"), [(6.0, True), (5.0, True), (4.9, False), (math.nan, False)])
def test_at_least(measured, holds):
    assert at_least("speed", measured=measured, limit=5.0).holds is holds


@pytest.mark.parametrize(("measured", "holds"), [(0.08, True), (0.1, False), (math.nan, False), (math.inf, False)])
def test_within(measured, holds):
    claim = within("RMSE", measured=measured, target=0.08, tolerance=0.01, published=0.08)
    assert claim.holds is holds
    assert claim.published == 0.08
