"""Curvatures: roots, draws and pseudo-inverses against dense blocks. The operator contract is tested elsewhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.linear import BernoulliCurvature, BlockCurvature, CategoricalCurvature, GaussianCurvature
from tests.linear.twins import DOUBLE, normal

KINDS = ("gaussian", "bernoulli", "categorical", "block")


def build(kind, n, c, seed):
    g = torch.Generator().manual_seed(seed)
    if kind == "gaussian":
        return GaussianCurvature(normal(n * c, generator=g).square(), outputs=c)
    if kind == "bernoulli":
        return BernoulliCurvature(normal(n * c, generator=g).sigmoid(), outputs=c)
    if kind == "categorical":
        return CategoricalCurvature(normal(n, c, generator=g).softmax(1))
    factors = normal(n, c, max(1, c - 1), generator=g)
    return BlockCurvature(factors @ factors.mT)


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), n=st.integers(1, 5), c=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_root_is_a_root_and_its_inverse_undoes_it_on_its_range(kind, n, c, seed):
    B = build(kind, n, c, seed)
    L = B.root.dense()
    torch.testing.assert_close(L @ L.mT, B.dense(), rtol=1e-10, atol=1e-12)
    V = B @ normal(n * c, 2, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(B.root @ B.root_solve(V), V, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_taking_data_takes_whole_blocks(kind):
    B = build(kind, 4, 3, 0)
    index = torch.tensor([2, 0])
    rows = (index[:, None] * 3 + torch.arange(3)).flatten()
    taken = B.take(index)
    torch.testing.assert_close(taken.dense(), B.dense()[rows][:, rows])
    torch.testing.assert_close(taken.root.dense(), B.root.dense()[rows][:, rows])
    assert (taken.num_data, taken.outputs, type(taken)) == (2, 3, type(B))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_curvature_as_covariance(kind, generator):
    B = build(kind, 2, 3, 1)
    num = 20_000
    draws = B.draw(num, generator)
    error = draws @ draws.mT / num - B.dense()
    diagonal = B.diagonal()
    spread = ((B.dense().square() + diagonal[:, None] * diagonal) / num).sqrt()
    assert bool((error.abs() <= 5.0 * spread + 1e-12).all())


def test_a_softmax_without_a_doubt_has_no_curvature_left():
    B = CategoricalCurvature(torch.tensor([[1.0, 0.0, 0.0]], dtype=DOUBLE))
    assert not bool(B.dense().any())
    assert bool(B.root_solve(torch.ones(3, 1, dtype=DOUBLE)).isfinite().all())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: GaussianCurvature(1.0), "size is missing"),
        (lambda: GaussianCurvature(-1.0, size=2), "precision must be"),
        (lambda: GaussianCurvature(torch.ones(2, 2)), "one value per row"),
        (lambda: GaussianCurvature(1.0, size=5, outputs=2), "whole data of 2 outputs"),
        (lambda: CategoricalCurvature(torch.tensor([[0.5, 0.2]])), "sum"),
        (lambda: CategoricalCurvature(torch.tensor([[-3.0, 4.0]])), "not logits"),
        (lambda: CategoricalCurvature(torch.ones(3)), "shape"),
        (lambda: BernoulliCurvature(torch.tensor([torch.nan])), "probabilities"),
        (lambda: BlockCurvature(-torch.eye(2)[None]), "eigenvalue"),
        (lambda: BlockCurvature(torch.ones(2, 3, 2)), r"\(b, c, c\)"),
    ],
)
def test_what_is_no_curvature_is_refused(build, match):
    with pytest.raises(ValueError, match=match):
        build()
