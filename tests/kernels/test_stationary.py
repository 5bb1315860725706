"""What holds for every kernel with lengthscales: values, tiles, accuracy, gradients, hyperparameters."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels import RBF, Kernel, Periodic
from tests.kernels.twins import KERNELS, STATIONARY, TWINS, make


def inputs(n: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tiles(kernel: Kernel, x: torch.Tensor, z: torch.Tensor, step: int = 3) -> torch.Tensor:
    evaluator = kernel.evaluator(x, z)
    out = x.new_full((x.shape[0], z.shape[0]), float("nan"))
    for i in range(0, x.shape[0], step):
        for j in range(0, z.shape[0], step):
            evaluator.fill(slice(i, i + step), slice(j, j + step), out[i : i + step, j : j + step])
    return out


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 7), m=st.integers(1, 7), d=st.integers(1, 5), seed=st.integers(0, 99))
def test_dense_and_tiles_agree_with_the_twin(name: str, n: int, m: int, d: int, seed: int) -> None:
    x, z = inputs(n, d, seed), inputs(m, d, seed + 1)
    kernel = make(name, 0.8, 1.3)
    expected = 1.3 * TWINS[name](x, z, 0.8)
    torch.testing.assert_close(kernel(x, z), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(tiles(kernel, x, z), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(kernel.diagonal(x), kernel(x).diagonal(), rtol=1e-12, atol=1e-12)
    index = torch.randint(n, (4,), generator=torch.Generator().manual_seed(seed))
    out = torch.empty(4, m, dtype=x.dtype)
    kernel.evaluator(x, z).gather(index).fill(slice(None), slice(None), out)
    torch.testing.assert_close(out, expected[index], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_one_lengthscale_per_input_is_a_rescaling_of_the_inputs(name: str) -> None:
    x, z, scale = inputs(6, 3, 0), inputs(5, 3, 1), torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    if name == "periodic":
        product = Periodic(1.7, 0.3, columns=[0]) * Periodic(1.7, 1.0, columns=[1]) * Periodic(1.7, 4.0, columns=[2])
        expected = product(x, z)
    else:
        expected = make(name, 1.0)(x / scale, z / scale)
    torch.testing.assert_close(make(name, scale)(x, z), expected)
    wide = torch.cat([inputs(6, 2, 7), x], dim=1), torch.cat([inputs(5, 2, 8), z], dim=1)
    kernel = make(name, scale, columns=[2, 3, -1])
    torch.testing.assert_close(kernel(*wide), expected)
    torch.testing.assert_close(tiles(kernel, *wide), expected)


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("lengthscale", [0.01, 1.0])
def test_float32_is_accurate_far_from_the_origin(name: str, lengthscale: float) -> None:
    # A period of 1.7 at 1e4 is as exact as the float32 inputs are, which the twin also sees.
    x = inputs(60, 3, 0, torch.float32) * (3 * lengthscale) + 1e4
    z = torch.cat([x[:20], inputs(20, 3, 1, torch.float32) * (3 * lengthscale) + 1e4])
    kernel, expected = make(name, lengthscale, 2.0), 2.0 * TWINS[name](x, z, lengthscale)
    assert (kernel(x, z) - expected).abs().max() < 2e-4
    assert (tiles(kernel, x, z, 16) - expected).abs().max() < 2e-4


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_rows_have_exactly_the_variance(name: str, dtype: torch.dtype) -> None:
    x = inputs(40, 4, 0, dtype) * 3 + 100
    kernel = make(name, 0.3, 1.7)
    variance = torch.tensor(1.7, dtype=torch.float64).log().exp().to(dtype)
    assert (kernel(x).diagonal() == variance).all()
    torch.testing.assert_close(tiles(kernel, x, x, 16).diagonal(), variance.expand(40), rtol=1e-7, atol=0)
    assert (tiles(kernel, x, x, 16).diagonal() == kernel.variance.item() * torch.ones(40, dtype=dtype)).all()


@pytest.mark.parametrize("name", KERNELS)
def test_symmetric_and_positive_semidefinite(name: str) -> None:
    x = torch.cat([inputs(20, 2, 0), inputs(5, 2, 0)])
    matrix = make(name, 0.5)(x)
    assert (matrix == matrix.mT).all()
    assert torch.linalg.eigvalsh(matrix).min() > -1e-9


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_against_finite_differences(name: str) -> None:
    kernel = make(name, torch.tensor([0.7, 1.4]), 1.3)
    x, z = inputs(4, 2, 0).requires_grad_(), inputs(3, 2, 1).requires_grad_()
    parameters = dict(kernel.named_parameters())

    def call(x: torch.Tensor, z: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(kernel, dict(zip(parameters, values, strict=True)), (x, z))

    values = [parameter.detach().requires_grad_() for parameter in parameters.values()]
    assert torch.autograd.gradcheck(call, (x, z, *values))


@pytest.mark.parametrize("name", STATIONARY)
def test_gradients_at_coincident_rows_are_zero_not_nan(name: str) -> None:
    kernel = make(name, 0.7)
    x = inputs(4, 3, 0).requires_grad_()
    kernel(x, x.detach()).diagonal().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros_like(x), atol=1e-12, rtol=0)
    assert all(torch.isfinite(p.grad).all() for p in kernel.parameters() if p.grad is not None)


def test_hyperparameters_are_in_natural_units() -> None:
    kernel = RBF(lengthscale=[0.3, 7.0], variance=2.5)
    assert kernel.variance.item() == pytest.approx(2.5, rel=1e-15)
    torch.testing.assert_close(kernel.lengthscale, torch.tensor([0.3, 7.0], dtype=torch.float64), rtol=1e-15, atol=0)
    kernel.lengthscale = 0.1
    assert kernel.lengthscale.tolist() == pytest.approx([0.1, 0.1], rel=1e-15)
    kernel.variance = torch.tensor(4.0)
    assert kernel.variance.item() == pytest.approx(4.0, rel=1e-15)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), [[1.0]], []])
@pytest.mark.parametrize("argument", ["lengthscale", "variance"])
def test_bad_hyperparameters_are_named(argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=argument):
        RBF(**{argument: value})
    kernel = RBF()
    with pytest.raises(ValueError, match=argument):
        setattr(kernel, argument, value)


@pytest.mark.usefixtures("unchecked")
def test_bad_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="variance must be a single number"):
        RBF(variance=torch.ones(2))
    with pytest.raises(ValueError, match="lengthscale has 3 values for 2 columns"):
        RBF(lengthscale=[1.0, 1.0, 1.0], columns=[0, 1])
    with pytest.raises(ValueError, match="period has 3 values"):
        Periodic(period=[1.0, 1.0, 1.0], lengthscale=[1.0, 1.0])
    with pytest.raises(ValueError, match="x has 3 columns"):
        RBF(lengthscale=[1.0, 1.0])(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="z must have shape"):
        RBF()(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"reads columns \(5,\)"):
        RBF(columns=[5])(torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"x\.float"):
        RBF()(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="to_dense"):
        RBF()(torch.eye(2).to_sparse_csr())
    with pytest.raises(ValueError, match="columns is empty"):
        RBF(columns=[])
