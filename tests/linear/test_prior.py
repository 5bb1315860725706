"""Diagonal priors against their dense precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.linear import DiagonalPrior
from tests.linear.twins import DOUBLE, normal, prior

FORMS = ("isotropic", "layerwise", "g", "both")


def build(form, d, seed):
    """A prior and the diagonal of its ``A``."""
    g = torch.Generator().manual_seed(seed)
    groups = torch.randint(3, (d,), generator=g)
    a, scale = 0.5 + torch.rand(3, dtype=DOUBLE, generator=g), 0.5 + torch.rand(d, dtype=DOUBLE, generator=g)
    if form == "isotropic":
        return prior(1.7, d), torch.full((d,), 1.7, dtype=DOUBLE)
    if form == "layerwise":
        return prior(a, d, groups=groups), a[groups]
    if form == "g":
        return prior(1.7, d, scale=scale), 1.7 / scale.square()
    return prior(a, d, groups=groups, scale=scale), a[groups] / scale.square()


@settings(max_examples=30, deadline=None)
@given(form=st.sampled_from(FORMS), d=st.integers(1, 9), s=st.integers(1, 3), seed=st.integers(0, 99))
def test_actions_agree_with_the_dense_precision(form, d, s, seed):
    p, diagonal = build(form, d, seed)
    W = normal(s, d, generator=torch.Generator().manual_seed(seed)).mT
    torch.testing.assert_close(p.precision(W), diagonal[:, None] * W)
    torch.testing.assert_close(p.covariance(W), W / diagonal[:, None])
    torch.testing.assert_close(p.root(p.root(W)), W / diagonal[:, None])
    torch.testing.assert_close(p.log_determinant(), diagonal.log().sum())
    torch.testing.assert_close(p.group_sums(W).sum(0), W.sum(0))
    assert float(p.group_sizes.sum()) == d
    factors = 1.0 + torch.arange(len(p.values)).double()
    spread = factors if p.groups is None else factors[p.groups]
    torch.testing.assert_close(p.scaled(factors).precision(W), (spread * diagonal)[:, None] * W)


def test_rows_handed_over_as_columns_come_back_as_rows():
    p = build("both", 5, 0)[0]
    rows = torch.ones(3, 5, dtype=DOUBLE)
    for action in (p.precision, p.covariance, p.root):
        assert action(rows.mT).mT.is_contiguous()


def test_draws_have_the_covariance(generator):
    p, diagonal = build("both", 4, 2)
    variance = p.draw(40_000, generator).square().mean(1)
    assert bool(((variance * diagonal - 1.0).abs() < 5.0 * (2.0 / 40_000) ** 0.5).all())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"precision": 0.0}, "precision must be positive"),
        ({"precision": torch.ones(2)}, "no groups"),
        ({"precision": torch.ones(2), "groups": torch.tensor([0, 1, 2])}, "one precision per group"),
        ({"precision": torch.ones(2), "groups": torch.tensor([0, 1])}, "one per weight"),
        ({"precision": 1.0, "scale": torch.ones(2)}, "one value per weight"),
        ({"precision": 1.0, "scale": torch.zeros(3)}, "scale must be positive"),
    ],
)
def test_what_is_no_prior_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        DiagonalPrior(num_weights=3, **options)


@pytest.mark.parametrize("groups", [None, torch.tensor([0] * 1001 + [1])])
def test_sums_over_many_weights_do_not_stand_still(groups):
    """``2²⁴ + 1`` is ``2²⁴`` in float32."""
    V = torch.ones(1002, 2)
    V[0] = 2.0**24
    V[-1] = 0.0
    p = DiagonalPrior(1.0 if groups is None else torch.ones(2), num_weights=1002, groups=groups)
    assert p.group_sums(V)[0].tolist() == [2.0**24 + 1000.0] * 2


@pytest.mark.parametrize("scale", [None, torch.full((3,), 1e10)])
def test_variances_beyond_the_range_are_refused(scale):
    with pytest.raises(
        ValueError, match=r"precision of 1e-40 makes prior variances beyond the range of torch\.float32"
    ):
        DiagonalPrior(1e-40, num_weights=3, scale=scale)
    wide = DiagonalPrior(1e-40, num_weights=3, scale=None if scale is None else scale.double(), dtype=torch.float64)
    assert bool(wide.covariance(torch.ones(3, 1, dtype=torch.float64)).isfinite().all())
