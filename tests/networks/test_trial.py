"""What is taken where a layer lacks a derivative rule, and what is said where nothing works."""

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from matheron.networks import TangentModel
from tests.networks.architectures import explicit_jacobian, normal

x = normal(4, 3)(torch.float64)


class Square(torch.autograd.Function):
    """Reverse mode only, as often as one likes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, u):
        (x,) = ctx.saved_tensors
        return 2.0 * x * u


class BothModes(torch.autograd.Function):
    """Forward and reverse mode, but no batching rule."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, u):
        return 2.0 * ctx.saved_tensors[0] * u

    @staticmethod
    def jvp(ctx, t):
        return 2.0 * ctx.saved_tensors[0] * t


class WrongForward(BothModes):
    """A forward-mode rule that is not the adjoint of the reverse one."""

    generate_vmap_rule = True

    @staticmethod
    def jvp(ctx, t):
        return torch.zeros_like(t)


class Once(torch.autograd.Function):
    """Reverse mode, once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, u):
        return 2.0 * ctx.saved_tensors[0] * u


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def network(function):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), Apply(function), nn.Linear(4, 2)).double().eval()


@pytest.mark.parametrize(
    ("function", "used"),
    [
        (torch.square, "forward"),
        (BothModes.apply, "forward in turn"),
        (Square.apply, "double-vjp"),
        (WrongForward.apply, "double-vjp"),
    ],
    ids=["both modes", "no batching rule", "no forward rule", "wrong forward rule"],
)
def test_auto_takes_the_first_way_that_works(function, used):
    model = network(function)
    outputs, J = explicit_jacobian(model, x)
    tangent = TangentModel(model)
    W = torch.randn(3, J.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tangents = tangent.jvp(x, W)
    assert tangent.used == used
    torch.testing.assert_close(tangents, (W @ J.mT).view(3, *outputs.shape), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(tangent.vjp(x, tangents), tangents.flatten(1) @ J, rtol=1e-8, atol=1e-8)


def test_where_nothing_works_the_layer_is_named_and_finite_differences_remain():
    model = network(Once.apply)
    with pytest.raises(RuntimeError, match=r"1 \(Apply\).*finite-differences"):
        TangentModel(model).jvp(x, torch.zeros(1, 26, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"forward in 1 \(Apply\)"):
        TangentModel(model, method="forward").predict(x)
    tangent = TangentModel(model, method="finite-differences")
    outputs, J = explicit_jacobian(model, x)
    W = torch.ones(1, 26, dtype=torch.float64)
    torch.testing.assert_close(tangent.jvp(x, W), (W @ J.mT).view(1, *outputs.shape), rtol=1e-6, atol=1e-6)


def test_a_network_that_detaches_its_parameters_is_refused():
    with pytest.raises(ValueError, match="do not depend"):
        TangentModel(network(lambda x: x.detach()), parameters=lambda name: name.startswith("0")).predict(x)


def test_a_random_network_is_refused():
    with pytest.raises(RuntimeError, match="randomness off"):
        TangentModel(network(lambda x: nn.functional.dropout(x, 0.5)), method="double-vjp").predict(x)


def test_an_error_of_the_model_itself_comes_through():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        TangentModel(network(torch.square)).predict(x[:, :2])


def test_derivatives_that_are_not_finite_are_said():
    class Root(nn.Linear):
        def forward(self, x):
            return super().forward(x) + (0.0 * super().forward(x)).sqrt()

    with pytest.raises(RuntimeError, match="forward: its products are NaN or infinite, as that of a square root"):
        TangentModel(Root(3, 2).double().eval()).jvp(x, torch.ones(1, 8, dtype=torch.float64))
