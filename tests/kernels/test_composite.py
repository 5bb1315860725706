import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels import RBF, Linear, Matern32, Periodic, Product, Scaled, Sum, Tanimoto
from tests.kernels.test_stationary import inputs, tiles


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 7), m=st.integers(1, 7), d=st.integers(2, 5), seed=st.integers(0, 99))
def test_composites_are_entrywise(n: int, m: int, d: int, seed: int) -> None:
    x, z = inputs(n, d, seed), inputs(m, d, seed + 1)
    a, b, c = RBF(0.7, columns=[0]), Matern32(1.3, 0.6), Linear(columns=[1])
    kernel = 2.5 * (a + b * c) * Periodic(2.0) + b
    expected = 2.5 * (a(x, z) + b(x, z) * c(x, z)) * Periodic(2.0)(x, z) + b(x, z)
    torch.testing.assert_close(kernel(x, z), expected)
    torch.testing.assert_close(tiles(kernel, x, z), expected)
    torch.testing.assert_close(kernel.diagonal(x), kernel(x).diagonal())
    out = torch.empty(2, m, dtype=x.dtype)
    kernel.evaluator(x, z).gather(torch.tensor([n - 1, 0])).fill(slice(None), slice(None), out)
    torch.testing.assert_close(out, expected[[n - 1, 0]])


def test_nested_composites_of_one_kind_are_joined() -> None:
    a, b, c = RBF(), Linear(), Periodic()
    assert [*(a + b + c)] == [a, b, c] == [*(a + (b + c))]
    assert [*(a * b * c)] == [a, b, c]
    first, second = a * b + c
    assert isinstance(first, Product)
    assert second is c


def test_scale_is_learnable_and_in_natural_units() -> None:
    kernel = RBF() * 3.0
    assert isinstance(kernel, Scaled)
    assert kernel.scale.item() == pytest.approx(3.0)
    kernel.scale = 0.5
    assert kernel(torch.zeros(1, 1)).item() == pytest.approx(0.5)
    kernel(torch.zeros(1, 1)).sum().backward()
    assert kernel.log_scale.grad.item() == pytest.approx(0.5)


def test_gradients_reach_every_part() -> None:
    x = inputs(4, 2, 0).requires_grad_()
    kernel = 2.0 * RBF() * Periodic() + Linear(columns=[1])
    parameters = dict(kernel.named_parameters())

    def call(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(kernel, dict(zip(parameters, values, strict=True)), (x, x))

    values = [parameter.detach().requires_grad_() for parameter in parameters.values()]
    assert torch.autograd.gradcheck(call, (x, *values))


def test_sums_and_products_are_positive_semidefinite() -> None:
    x = inputs(30, 2, 0)
    for kernel in (RBF(0.3) + Linear(), Periodic() * Matern32(), Tanimoto() * RBF(), 3.0 * Tanimoto()):
        assert torch.linalg.eigvalsh(kernel(x.abs())).min() > -1e-9


@pytest.mark.usefixtures("unchecked")
def test_bad_parts_and_inputs() -> None:
    with pytest.raises(TypeError, match="parts of a Sum must be kernels"):
        Sum(RBF(), 3.0)
    with pytest.raises(TypeError):
        RBF() + 3.0
    with pytest.raises(TypeError):
        RBF() * "3"
    with pytest.raises(ValueError, match="scale must be positive"):
        -1.0 * RBF()
    with pytest.raises(ValueError, match=r"reads columns \(4,\)"):
        (RBF() + RBF(columns=[4]))(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="negative"):
        (RBF() * Tanimoto())(-torch.ones(2, 3))
    with pytest.raises(TypeError, match="RBF cannot read"):
        (Tanimoto() + RBF())(torch.eye(2).to_sparse_csr())


def test_kernels_show_their_hyperparameters() -> None:
    assert repr(Matern32([0.5, 2.0], 3.0, columns=[0, 4])) == (
        "Matern32(variance=3, lengthscale=[0.5, 2], columns=[0, 4])"
    )
    assert "lengthscale=[1, 1, 1, 1, 1, 1, … 9 in all]" in repr(RBF(torch.ones(9)))
    assert "scale=2.5" in repr(2.5 * RBF())
    assert "variance=1" in repr(Tanimoto())
