"""Derivatives of linear actions: every mode, every order, batched."""

import pytest
import torch

from tests.operators.test_contract import build, close

LINEAR = ("sparse", "parallel_beam", "fan_beam", "cone_beam", "fourier")


@pytest.fixture(params=LINEAR)
def linear(request):
    case, draw = build(request.param, n=5, m=4)
    return case, draw


def test_the_gradient_is_the_transpose_and_so_is_its_own(linear):
    case, draw = linear
    x = draw.normal(case.twin.shape[1]).requires_grad_()
    u = draw.normal(case.twin.shape[0]).requires_grad_()
    (gradient,) = torch.autograd.grad((case.operator @ x) @ u, x, create_graph=True)
    close(gradient, case.twin.T @ u.detach())
    w = draw.normal(case.twin.shape[1])
    (second,) = torch.autograd.grad(gradient @ w, u)
    close(second, case.twin @ w)


def test_gradcheck(linear):
    case, draw = linear
    X = draw.normal(case.twin.shape[1], 2).requires_grad_()

    def nonlinear(X):
        return (case.operator @ X).tanh()

    assert torch.autograd.gradcheck(nonlinear, X, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(nonlinear, X, check_fwd_over_rev=True)


def test_forward_mode(linear):
    case, draw = linear
    x, tangent = draw.normal(case.twin.shape[1]), draw.normal(case.twin.shape[1])
    value, pushed = torch.func.jvp(lambda x: case.operator @ x, (x,), (tangent,))
    close(value, case.twin @ x)
    close(pushed, case.twin @ tangent)


def test_vmap_over_vectors_columns_and_twice(linear):
    case, draw = linear
    m = case.twin.shape[1]
    X = draw.normal(3, m)
    close(torch.func.vmap(lambda x: case.operator @ x)(X), X @ case.twin.T)
    Y = draw.normal(2, m, 3, 4)
    twice = torch.func.vmap(torch.func.vmap(lambda V: case.operator @ V), in_dims=3)(Y)
    close(twice, torch.einsum("nm,bmsk->kbns", case.twin, Y))


def test_jacobians_by_either_mode(linear):
    case, draw = linear
    x = draw.normal(case.twin.shape[1])
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        close(jacobian(lambda x: case.operator @ x)(x), case.twin)


def test_curvature_of_a_network_through_the_operator(linear):
    """Forward over reverse, as a tangent model needs it."""
    case, draw = linear
    x, tangent, y = draw.normal(case.twin.shape[1]), draw.normal(case.twin.shape[1]), draw.normal(case.twin.shape[0])

    def loss(x):
        return (case.operator @ x.square() - y).square().sum() / 2

    _, pushed = torch.func.jvp(torch.func.grad(loss), (x,), (tangent,))
    close(pushed, torch.func.hessian(lambda x: (case.twin @ x.square() - y).square().sum() / 2)(x) @ tangent)
