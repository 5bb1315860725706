"""Posterior functions in BoTorch."""

import pytest
import torch

pytest.importorskip("botorch")

from botorch.acquisition import qLogExpectedImprovement, qSimpleRegret
from botorch.optim import optimize_acqf

import matheron as mt
from matheron.interop.botorch import model


def posterior(outputs=1, num_samples=16):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(25, 2, generator=g, dtype=torch.float64)
    y = -(X - 0.4).square().sum(1)
    y = y if outputs == 1 else torch.stack([y, 2.0 * y], 1)
    return mt.GaussianProcess(mt.kernels.RBF(0.5), 1e-4).condition(X, y, num_samples=num_samples, generator=g)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("batch", [(), (3,), (3, 2)])
def test_values_are_those_of_the_functions(outputs, batch, generator):
    post = posterior(outputs)
    X = torch.rand(*batch, 4, 2, generator=generator, dtype=torch.float64)
    values = model(post)(X)
    assert values.shape == (*batch, 16, 4, outputs)
    one = X.reshape(-1, 4, 2)[-1]
    expected = post.paths(one).reshape(16, 4, outputs)
    torch.testing.assert_close(values.reshape(-1, 16, 4, outputs)[-1], expected)


def test_mean_and_variance_are_those_of_the_ensemble(generator):
    post = posterior(num_samples=256)
    X = torch.rand(5, 2, generator=generator, dtype=torch.float64)
    found = model(post).posterior(X)
    torch.testing.assert_close(found.mean[:, 0], post.sample(X).mean(0))
    assert float((found.variance[:, 0] / post.variance(X) - 1.0).abs().max()) < 0.5


def test_an_acquisition_function_finds_the_maximum():
    torch.manual_seed(0)  # BoTorch draws its starts from the global generator
    found, _ = optimize_acqf(
        qSimpleRegret(model(posterior())), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64),
        q=1, num_restarts=2, raw_samples=16,
    )  # fmt: skip
    assert float((found - 0.4).abs().max()) < 0.1


def test_several_points_at_once():
    batch = torch.tensor([[0.4, 0.4], [0.9, 0.9]], dtype=torch.float64)
    improvement = qLogExpectedImprovement(model(posterior()), best_f=-0.01)
    assert improvement(batch) >= improvement(batch[1:])


@pytest.mark.usefixtures("unchecked")
def test_what_has_no_functions_is_refused():
    with pytest.raises(ValueError, match="posterior has no functions"):
        model(posterior(num_samples=0))
    with pytest.raises(TypeError, match="posterior must be that of a Gaussian process, got Linear"):
        model(torch.nn.Linear(1, 1))
