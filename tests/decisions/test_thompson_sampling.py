"""Maxima of posterior functions."""

import pytest
import torch

import matheron as mt


def posterior(num_samples=6, d=2, n=30, seed=0, **options):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    y = torch.sin(5.0 * X).sum(1)
    gp = mt.GaussianProcess(mt.kernels.Matern32(torch.full((d,), 0.4)), 1e-3, **options)
    return gp.condition(X, y, num_samples=num_samples, generator=g)


@pytest.mark.parametrize("standardize", [False, True])
def test_each_function_at_inputs_of_its_own(standardize, generator):
    post = posterior(standardize=standardize)
    x = torch.rand(4, 3, 2, generator=generator, dtype=torch.float64)
    expected = torch.stack([post.paths[j + 1](x[j]) for j in range(4)])
    torch.testing.assert_close(post.paths.each(x, first=1), expected)


def test_each_function_has_slopes_of_its_own(generator):
    post = posterior()
    x = torch.rand(2, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(post.paths.each, x)


@pytest.mark.parametrize("standardize", [False, True])
def test_values_are_those_of_the_functions_and_nowhere_on_a_grid_are_they_larger(standardize):
    post = posterior(standardize=standardize)
    found = mt.decisions.thompson(post, (0.0, 1.0), generator=3)
    for j in range(6):
        torch.testing.assert_close(post.paths[j](found.inputs[j : j + 1])[0], found.values[j])
    side = torch.linspace(0, 1, 80, dtype=torch.float64)
    heights = post.sample(torch.cartesian_prod(side, side)).max(1).values
    assert bool((found.values >= heights - 1e-3).all())
    assert bool(((found.inputs >= 0) & (found.inputs <= 1)).all())


def test_groups_change_nothing(monkeypatch):
    post = posterior()
    whole = mt.decisions.thompson(post, (0.0, 1.0), generator=3)
    monkeypatch.setattr("matheron.decisions.thompson_sampling.ENTRIES", 200)
    parts = mt.decisions.thompson(post, (0.0, 1.0), generator=3)
    torch.testing.assert_close(whole.inputs, parts.inputs)


def test_a_box_beside_the_data_and_one_for_each_input():
    post = posterior()
    low, high = torch.tensor([2.0, -1.0]), torch.tensor([3.0, 0.5])
    found = mt.decisions.thompson(post, (low, high), num=2, generator=0)
    assert found.inputs.shape == (2, 2)
    assert bool(((found.inputs >= low) & (found.inputs <= high)).all())


def test_inducing_points_will_do(generator):
    X = torch.rand(60, 1, generator=generator)
    gp = mt.GaussianProcess(mt.kernels.RBF(0.2), 1e-2)
    post = gp.condition(X, -(X[:, 0] - 0.7).abs(), num_samples=4, inducing=15, generator=generator)
    found = mt.decisions.thompson(post, (0.0, 1.0), generator=generator)
    assert bool((found.inputs - 0.7).abs().max() < 0.2)


def test_observing_at_the_maximizers_finds_the_maximum():
    g = torch.Generator().manual_seed(1)

    def observe(x):
        return -(x - 0.6).square().sum(1)

    X = torch.rand(10, 2, generator=g)
    post = mt.GaussianProcess(mt.kernels.RBF(torch.full((2,), 0.5)), 1e-5).condition(
        X, observe(X), num_samples=4, generator=g
    )
    before = observe(X).max()
    best = before
    for _ in range(3):
        found = mt.decisions.thompson(post, (0.0, 1.0), generator=g)
        best = torch.maximum(best, observe(found.inputs).max())
        post = post.condition_on(found.inputs, observe(found.inputs), generator=g)
    assert best > -1e-3 > before


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    def test_bounds(self):
        post = posterior()
        with pytest.raises(ValueError, match=r"bounds must have low < high, got 1 and 1 at 1"):
            mt.decisions.thompson(post, ([0.0, 1.0], 1.0))
        with pytest.raises(ValueError, match=r"bounds must be \(low, high\), a number or 2 values each"):
            mt.decisions.thompson(post, (torch.zeros(3), torch.ones(3)))
        with pytest.raises(ValueError, match="got 3 of them"):
            mt.decisions.thompson(post, (0.0, 1.0, 2.0))
        with pytest.raises(ValueError, match="bounds has 1 NaN or infinite"):
            mt.decisions.thompson(post, ([0.0, float("nan")], 1.0))

    def test_functions(self):
        with pytest.raises(
            ValueError, match="num is 9 but the posterior has 6 functions; condition with num_samples=9"
        ):
            mt.decisions.thompson(posterior(), (0.0, 1.0), num=9)
        with pytest.raises(ValueError, match="posterior has no functions"):
            mt.decisions.thompson(posterior(num_samples=0), (0.0, 1.0))
        with pytest.raises(TypeError, match="posterior must be that of a Gaussian process, got Linear"):
            mt.decisions.thompson(torch.nn.Linear(1, 1), (0.0, 1.0))

    def test_outputs(self, generator):
        X = torch.rand(10, 1, generator=generator)
        post = mt.GaussianProcess(mt.kernels.RBF()).condition(X, X.repeat(1, 2), num_samples=2, generator=generator)
        with pytest.raises(ValueError, match="posterior has 2 outputs"):
            mt.decisions.thompson(post, (0.0, 1.0))
        with pytest.raises(ValueError, match="one output only"):
            post.paths.each(torch.zeros(2, 1, 1))
