"""Random features: moments within their standard error, errors that fall as 1/M, and the hyperparameters followed."""

import copy

import pytest
import torch
from torch import Tensor

from matheron.kernels import (
    RBF,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    NoFeaturesError,
    Periodic,
    RationalQuadratic,
    Tanimoto,
)
from matheron.kernels.features import allot
from tests.kernels.test_stationary import inputs
from tests.kernels.twins import STATIONARY, make

DRAWS = 200


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def estimates(kernel: Kernel, x: Tensor, num: int, draws: int = DRAWS, **kwargs: object) -> Tensor:
    g = seeded(0)
    with torch.no_grad():
        maps = (kernel.features(num, dimension=x.shape[1], generator=g, **kwargs)(x) for _ in range(draws))
        return torch.stack([phi @ phi.mT for phi in maps])


def assert_unbiased(sample: Tensor, expected: Tensor) -> None:
    error = sample.std(0) / len(sample) ** 0.5
    assert ((sample.mean(0) - expected).abs() <= 5.0 * error + 1e-9).all()


def mean_squared_error(sample: Tensor, expected: Tensor) -> float:
    return (sample - expected).square().mean().item()


@pytest.mark.parametrize("d", [1, 3, 10, 20])
@pytest.mark.parametrize("name", STATIONARY)
def test_unbiased_with_error_falling_as_one_over_m(name: str, d: int) -> None:
    x = inputs(6, d, 1)
    kernel = make(name, 1.2 * d**0.5, 1.4)
    few, many = estimates(kernel, x, 8), estimates(kernel, x, 128)
    assert_unbiased(few, kernel(x).detach())
    assert_unbiased(many, kernel(x).detach())
    ratio = mean_squared_error(few, kernel(x).detach()) / mean_squared_error(many, kernel(x).detach())
    assert 16 / 2 < ratio < 16 * 2
    torch.testing.assert_close(few.diagonal(dim1=1, dim2=2), torch.full((DRAWS, 6), 1.4, dtype=torch.float64))


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * RBF(1.1, columns=[0]) + Matern32(0.8),
        RBF(2.0) * Periodic(1.3, 0.9, columns=[1]),
        (Matern52(1.5) + RBF(0.7)) * (0.5 * RationalQuadratic(1.0, columns=[2, 0])),
        Linear([1.0, 2.0, 3.0]) + RBF(1.0),
        3.0 * Linear(columns=[1]) + 0.1 * Linear(columns=[0, 2]) + RBF(1.0),
    ],
)
def test_composites_are_unbiased_and_improve(kernel: Kernel) -> None:
    x = inputs(6, 3, 2)
    few, many = estimates(kernel, x, 24), estimates(kernel, x, 384)
    assert_unbiased(few, kernel(x).detach())
    assert_unbiased(many, kernel(x).detach())
    assert mean_squared_error(many, kernel(x).detach()) < mean_squared_error(few, kernel(x).detach()) / 8


def test_linear_features_are_exact() -> None:
    x, z = inputs(5, 4, 0), inputs(3, 4, 1)
    for kernel, num in ((Linear(), 4), (Linear([0.3, 2.0], 1.7, columns=[1, 3]), 2), (2.0 * Linear() + Linear(), 8)):
        phi = kernel.features(100, dimension=4)
        assert phi.num == num
        assert phi(x).shape == (5, num)
        torch.testing.assert_close(phi(x) @ phi(z).mT, kernel(x, z))


@pytest.mark.parametrize("d", [3, 10, 20])
@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "rational_quadratic"])
def test_orthogonal_blocks_are_unbiased_with_less_variance(name: str, d: int) -> None:
    x = inputs(6, d, 3)
    kernel = make(name, 1.5 * d**0.5)
    plain, orthogonal = estimates(kernel, x, 2 * d), estimates(kernel, x, 2 * d, orthogonal=True)
    assert_unbiased(orthogonal, kernel(x).detach())
    # Heavier tails leave less to gain, as variance then comes from the norms.
    assert mean_squared_error(orthogonal, kernel(x)) < 0.95 * mean_squared_error(plain, kernel(x))


def test_orthogonal_frequencies_are_orthogonal() -> None:
    phi = RBF(lengthscale=2.0).features(14, dimension=3, orthogonal=True, generator=seeded(0))
    base = phi.state_dict()["spectra.0.base"]
    assert base.shape == (7, 3)
    for block in base.split(3):
        gram = block @ block.mT
        torch.testing.assert_close(gram, torch.diag(gram.diagonal()))


@pytest.mark.parametrize("name", STATIONARY)
def test_a_map_follows_its_kernel(name: str) -> None:
    x, kernel = inputs(5, 2, 0), make(name, 0.7)
    phi = kernel.features(40, dimension=2, generator=seeded(1))
    before = phi(x)
    kernel.lengthscale, kernel.variance = 1.9, 3.0
    fresh = make(name, 1.9, 3.0).features(40, dimension=2, generator=seeded(1))
    torch.testing.assert_close(phi(x), fresh(x))
    assert not torch.allclose(phi(x), before)


@pytest.mark.parametrize("name", [name for name in STATIONARY if name != "periodic"])
def test_features_are_differentiable(name: str) -> None:
    kernel = make(name, torch.tensor([0.8, 1.1]), 1.3)
    phi = kernel.features(6, generator=seeded(0))
    parameters = list(kernel.parameters())
    saved = [parameter.detach().clone() for parameter in parameters]
    x = inputs(3, 2, 0).requires_grad_()
    assert torch.autograd.gradcheck(phi, (x,))

    weight = inputs(3, 6, 5)
    (phi(x) * weight).sum().backward()
    for parameter, value in zip(parameters, saved, strict=True):
        for i in range(value.numel()):
            step = torch.zeros_like(value).view(-1)
            step[i] = 1e-5
            ends = []
            for sign in (1, -1):
                parameter.data = value + sign * step.view(value.shape)
                ends.append((phi(x) * weight).sum().item())
            parameter.data = value
            assert parameter.grad is not None
            assert parameter.grad.view(-1)[i].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)


def test_derivatives_of_periodic_features_are_unbiased() -> None:
    kernel, x = Periodic(period=1.3, lengthscale=[0.8, 1.2], variance=1.4), inputs(4, 2, 0)
    weight = inputs(4, 4, 1)
    expected = torch.autograd.grad((kernel(x) * weight).sum(), list(kernel.parameters()))
    g, sampled = seeded(0), []
    for _ in range(DRAWS):
        phi = kernel.features(64, generator=g)(x)
        gradients = torch.autograd.grad((phi @ phi.mT * weight).sum(), list(kernel.parameters()))
        sampled.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    assert_unbiased(torch.stack(sampled), torch.cat([gradient.reshape(-1) for gradient in expected]))


@pytest.mark.parametrize("name", STATIONARY)
def test_float32_phases_are_accurate_far_from_the_origin(name: str) -> None:
    x = inputs(20, 3, 0).float() + 1e4
    phi = make(name, 0.05).features(200, dimension=3, generator=seeded(0))
    torch.testing.assert_close(phi(x).double(), phi(x.double()), atol=1e-6, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(phi(x).double(), phi(x.double()), atol=1e-6, rtol=0)
    assert phi(x).dtype == torch.float32


def test_draws_keep_their_precision_and_travel_by_state_dict() -> None:
    kernel, x = RBF(lengthscale=[0.5, 0.7]), inputs(4, 2, 0)
    phi = kernel.features(10, generator=seeded(0))
    expected = phi(x)
    phi.float()
    torch.testing.assert_close(phi(x), expected)
    other = kernel.features(10, generator=seeded(1))
    assert not torch.allclose(other(x), expected)
    other.load_state_dict(phi.state_dict())
    assert (other(x) == expected).all()
    assert (copy.deepcopy(phi)(x) == expected).all()
    assert list(phi.parameters()) == []


def test_seeds() -> None:
    kernel, x = Matern32(), inputs(4, 2, 0)
    same = [kernel.features(10, dimension=2, generator=seeded(3))(x) for _ in range(2)]
    assert (same[0] == same[1]).all()
    phi = kernel.features(10, dimension=2)
    assert phi.seed is not None
    assert (kernel.features(10, dimension=2, generator=seeded(phi.seed))(x) == phi(x)).all()
    assert not torch.allclose(kernel.features(10, dimension=2)(x), phi(x))
    g = seeded(3)
    assert not torch.allclose(*(kernel.features(10, dimension=2, generator=g)(x) for _ in range(2)))


def test_shares_of_a_sum() -> None:
    assert allot(100, [3, None, None], [False, True, True]) == [3, 48, 48]
    assert allot(10, [None, None, None], [True, True, False]) == [2, 4, 4]
    assert (RBF() + Linear()).features(100, dimension=3).num == 99


class Custom(Kernel):
    def covariance(self, x: Tensor, z: Tensor) -> Tensor:
        return RBF()(x, z)

    def diagonal(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[:, 0])


@pytest.mark.usefixtures("unchecked")
def test_what_has_no_features_says_so() -> None:
    with pytest.raises(NoFeaturesError, match="Custom has no random features"):
        Custom().features(10)
    with pytest.raises(TypeError, match=r"RBF \* Linear has no random features"):
        (RBF() * Linear()).features(10, dimension=2)
    with pytest.raises(NoFeaturesError, match=r"Tanimoto \* RBF"):
        (Tanimoto() * RBF()).features(10, dimension=2)
    with pytest.raises(ValueError, match="dimension is missing"):
        RBF().features(10)
    with pytest.raises(ValueError, match="num must be even"):
        RBF().features(11, dimension=2)
    with pytest.raises(ValueError, match="num must be at least 1"):
        RBF().features(0, dimension=2)
    with pytest.raises(ValueError, match="num is 4 but the terms of this kernel need 5"):
        (RBF() + Linear()).features(4, dimension=3)
    with pytest.raises(ValueError, match="drawn for 2"):
        RBF().features(10, dimension=2)(torch.zeros(3, 5))


def test_columns_make_the_dimension_known() -> None:
    kernel = RBF(columns=[0, 2]) * Matern32(columns=[1])
    assert kernel.features(10)(torch.zeros(4, 3)).shape == (4, 10)
