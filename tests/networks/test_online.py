"""A prior learnt while the network trains."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from matheron.linear import DiagonalPrior
from matheron.networks import Gaussian, LinearizedLaplace, OnlineLaplace, TangentModel
from matheron.networks.online import held_to
from tests.networks.test_laplace import problem


class Normalized(nn.Module):
    """A layer norm cancels the scale of the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 6, bias=False), nn.Linear(6, 3)
        self.norm = nn.LayerNorm(6, elementwise_affine=False, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def normalized(scale: float = 1.0) -> Normalized:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Normalized().double()
    with torch.no_grad():
        model.first.weight.mul_(scale)
    return model


def test_the_penalty_is_that_of_the_prior_and_so_is_its_gradient() -> None:
    model, X, y = problem("classification")
    online = OnlineLaplace(model, prior="g", parameters="all", generator=torch.Generator().manual_seed(0))
    assert online.penalty().item() == 0.0
    online.update((X, y))
    v = TangentModel(model).weights
    A = online._prior.precision(torch.eye(len(v), dtype=torch.float64))
    torch.testing.assert_close(online.penalty().detach(), 0.5 * v @ A @ v / len(X))
    gradient = torch.autograd.grad(online.penalty(), list(model.parameters()))
    torch.testing.assert_close(torch.cat([g.flatten() for g in gradient]), A @ v / len(X))


@pytest.mark.parametrize("step", [1e-6, 1e9])
def test_shrinking_is_the_implicit_step_of_the_penalty(step: float) -> None:
    """``v ← argmin ½‖v − v₀‖² + η penalty(v)``: down its gradient for a small step, to zero for a large one."""
    model, X, y = problem("classification")
    online = OnlineLaplace(model, prior="g", parameters="all", generator=torch.Generator().manual_seed(0))
    before = TangentModel(model).weights
    online.shrink(step)
    torch.testing.assert_close(TangentModel(model).weights, before, rtol=0.0, atol=0.0)
    online.update((X, y))
    online.shrink(step)
    after = TangentModel(model).weights
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(online.penalty(), list(model.parameters()))])
    torch.testing.assert_close(after - before, -step * gradient)
    if step > 1.0:
        assert float(after.norm()) < 1e-3 * float(before.norm())


@pytest.mark.parametrize("prior", ["g", "isotropic"])
def test_updates_without_training_are_expectation_maximization(prior: str) -> None:
    model, X, y = problem("classification")
    g = torch.Generator().manual_seed(0)
    online = OnlineLaplace(
        model, prior=prior, parameters="all", offset="affine", num_samples=200, scale_draws=2000, generator=g
    )
    for _ in range(3):
        online.update((X, y))
    la = LinearizedLaplace(model, prior=prior)
    with pytest.warns(Warning, match="still moved"):
        la.fit((X, y), em_steps=3, num_samples=200, final_samples=2, scale_draws=2000, generator=g)
    torch.testing.assert_close(online.prior_precision, la.prior_precision, rtol=0.25, atol=0.0)


@pytest.mark.parametrize("prior", ["g", "layerwise"])
def test_the_penalty_does_not_see_a_scale_that_is_normalized_away(prior: str) -> None:
    _, X, y = problem("classification", n=60)
    values = []
    for scale in (1.0, 10.0):
        model = normalized(scale)
        online = OnlineLaplace(
            model, prior=prior, parameters="all", num_samples=16, generator=torch.Generator().manual_seed(0)
        )
        for _ in range(40):
            online.update((X, y))
        values.append(online.penalty().item())
    assert values[1] == pytest.approx(values[0], rel=0.05)


def test_precisions_stay_within_a_thousandfold_of_the_weights_own() -> None:
    prior = DiagonalPrior(
        torch.tensor([1e-30, 1.0, 1e30, 7.0]), num_weights=8,
        groups=torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]), dtype=torch.float64,
    )  # fmt: skip
    weights = torch.tensor([1.0, 3.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    found = held_to(prior, weights).values
    torch.testing.assert_close(found, torch.tensor([2e-3 / 10.0, 1.0, 2e3 / 4.0, 7.0], dtype=torch.float64))


def test_an_isotropic_one_does() -> None:
    _, X, y = problem("classification", n=60)
    values = []
    for scale in (1.0, 10.0):
        online = OnlineLaplace(
            normalized(scale), prior="isotropic", parameters="all", generator=torch.Generator().manual_seed(0)
        )
        for _ in range(12):
            online.update((X, y))
        values.append(online.penalty().item())
    assert values[1] > 2 * values[0]


def test_the_model_stays_as_it_is_and_a_posterior_follows() -> None:
    _, X, y = problem("classification")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    online = OnlineLaplace(model, prior="g", parameters="all", generator=torch.Generator().manual_seed(0)).update(
        (X, y)
    )
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    la = online.posterior((X, y), em_steps=0, final_samples=3)
    torch.testing.assert_close(la.prior_precision, online.prior_precision)
    assert la.functional_samples(X).shape == (3, 24, 3)


def test_biases_norms_and_the_scale_that_a_norm_cancels_are_left_alone() -> None:
    _, X, y = problem("classification")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    online = OnlineLaplace(model, generator=torch.Generator().manual_seed(0)).update((X, y))
    assert online.names == ("0.weight", "3.weight")
    assert online.normalized == [("0.weight", "0.bias")]
    online.shrink(10.0)
    after = {name: value.detach() for name, value in model.named_parameters()}
    for name in ("0.bias", "1.weight", "1.bias", "3.bias"):
        torch.testing.assert_close(after[name], before[name], rtol=0.0, atol=0.0)
    # One precision for the whole tensor, whose norm is kept: nothing is left to change.
    torch.testing.assert_close(after["0.weight"], before["0.weight"])
    assert float(after["3.weight"].norm()) < 0.99 * float(before["3.weight"].norm())


def test_bad_arguments() -> None:
    model, X, _ = problem("classification")
    with pytest.raises(ValueError, match="prior must be one of"):
        OnlineLaplace(model, prior="flat")
    with pytest.raises(ValueError, match="num_samples"):
        OnlineLaplace(model, num_samples=0)
    with pytest.raises(ValueError, match="offset must be one of"):
        OnlineLaplace(model, offset="none")
    with pytest.raises(ValueError, match="method must be one of"):
        OnlineLaplace(model, method="newton")
    with pytest.raises(ValueError, match="prior_precision must be positive"):
        OnlineLaplace(model, prior_precision=-1.0)
    with pytest.raises(ValueError, match="scale_draws must be at least 3"):
        OnlineLaplace(model, prior="g", scale_draws=2)
    with pytest.raises(TypeError, match="targets"):
        OnlineLaplace(model).update((X, X[:, 0]))


def test_the_noise_of_a_regression_is_learnt_along() -> None:
    model, X, y = problem("regression", n=200)  # trained, with a noise of 0.09 around it
    online = OnlineLaplace(model, "regression", num_samples=8, generator=torch.Generator().manual_seed(0))
    for _ in range(10):
        online.update((X, y))
    assert online.likelihood.noise == pytest.approx(0.09, rel=0.2)
    given = OnlineLaplace(model, Gaussian(0.5, learn=False), generator=torch.Generator().manual_seed(0))
    assert given.update((X, y)).likelihood.noise == 0.5


def test_outputs_without_a_dimension_are_a_column() -> None:
    model, X, y = problem("binary")
    online = OnlineLaplace(
        model, "binary", forward=lambda model, x: model(x).squeeze(-1), generator=torch.Generator().manual_seed(0)
    )
    assert len(online.update((X, y)).history) == 1


def test_layers_are_learnt_alike_by_descent() -> None:
    model, X, y = problem("regression", n=60)
    found = []
    for method in ("exact", "sgd"):
        online = OnlineLaplace(
            model, "regression", method=method, batch_size=20, generator=torch.Generator().manual_seed(0)
        )
        for _ in range(6):
            online.update((X, y))
        found.append(online.prior_precision.log10())
    torch.testing.assert_close(found[1], found[0], rtol=0.0, atol=0.3)


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_learnt_is_refused_at_once() -> None:
    model, X, y = problem("classification")
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got NoneType"):
        OnlineLaplace(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior_precision has 3 values; prior='g' takes one number"):
        OnlineLaplace(model, prior="g", prior_precision=torch.ones(3))
    with pytest.raises(ValueError, match=r"prior_precision has 3 values; .* one for each"):
        OnlineLaplace(model, prior_precision=torch.ones(3))
    online = OnlineLaplace(model, prior_precision=torch.ones(2), generator=0).update((X, y))
    model[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"parameters were 0\.weight, 2\.weight and now are 2\.weight"):
        online.update((X, y))
