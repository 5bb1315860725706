import copy
import pickle
import warnings

import pytest
import torch

gpytorch = pytest.importorskip("gpytorch", reason="needs GPyTorch: pip install 'matheron[gpytorch]'")

import gpytorch.kernels as theirs

import matheron as mt
from matheron.interop.gpytorch import GPyTorchKernel, kernel
from matheron.kernels import RBF, Matern32, NoFeaturesError, Periodic, Scaled, Sum


class Brownian(theirs.Kernel):
    """A user's own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.register_parameter("raw_rate", torch.nn.Parameter(torch.zeros(1, 1)))

    def forward(self, x1, x2, diag=False, **options):
        rate = torch.nn.functional.softplus(self.raw_rate)
        if diag:
            return rate[0] * x1[..., 0].abs()
        signs = torch.sign(x1) == torch.sign(x2.mT)
        return rate * signs * torch.minimum(x1.abs(), x2.abs().mT)


def scale(base, **options):
    return theirs.ScaleKernel(base, **options)


def tied():
    one = theirs.RBFKernel()
    return one + scale(one)


TRANSLATED = {
    "rbf": lambda: theirs.RBFKernel(),
    "rbf, ard": lambda: scale(theirs.RBFKernel(ard_num_dims=3)),
    "matern 1/2": lambda: theirs.MaternKernel(nu=0.5, ard_num_dims=3),
    "matern 3/2": lambda: scale(theirs.MaternKernel(nu=1.5)),
    "matern 5/2": lambda: theirs.MaternKernel(nu=2.5),
    "rational quadratic": lambda: theirs.RQKernel(),
    "rational quadratic, ard": lambda: scale(theirs.RQKernel(ard_num_dims=3)),
    "periodic": lambda: theirs.PeriodicKernel(),
    "periodic, ard": lambda: scale(theirs.PeriodicKernel(ard_num_dims=3)),
    "linear": lambda: theirs.LinearKernel(),
    "linear, ard": lambda: scale(theirs.LinearKernel(ard_num_dims=3)),
    "sum": lambda: scale(theirs.RBFKernel(active_dims=[1])) + theirs.LinearKernel(active_dims=(0, 2)),
    "product": lambda: scale(
        theirs.PeriodicKernel(active_dims=[0]) * theirs.RBFKernel(ard_num_dims=2, active_dims=[2, 1])
    ),
    "columns of columns": lambda: scale(
        theirs.RBFKernel(active_dims=[0]) + theirs.MaternKernel(active_dims=[1]), active_dims=[2, 0]
    ),
    "scale of a scale": lambda: scale(scale(theirs.RBFKernel())),
}
WRAPPED = {
    "spectral mixture": lambda: theirs.SpectralMixtureKernel(num_mixtures=4, ard_num_dims=3),
    "cosine": lambda: scale(theirs.CosineKernel(active_dims=[1])),
    "polynomial": lambda: theirs.PolynomialKernel(2),
    "piecewise polynomial": lambda: theirs.PiecewisePolynomialKernel(),
    "constant and rbf": lambda: theirs.ConstantKernel() + theirs.RBFKernel(),
    "tied": tied,
    "custom": lambda: scale(Brownian(active_dims=[2])),
}
ALL = {**TRANSLATED, **WRAPPED}


def drawn(make, dtype=torch.float64, seed=0):
    module = make()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g))
    return module.to(dtype)


def inputs(n=40, m=30, d=3, dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, d, generator=g, dtype=dtype), torch.randn(m, d, generator=g, dtype=dtype)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_entries_are_those_of_gpytorch(name, native):
    module, (x, z) = drawn(ALL[name]), inputs()
    ours = kernel(module, native=native)
    torch.testing.assert_close(ours(x, z), module(x, z).to_dense(), rtol=1e-10, atol=1e-11)
    square = module(x, torch.cat([x, z])).to_dense()[:, : len(x)]
    # GPyTorch's distances between coincident rows are roots of rounding errors.
    torch.testing.assert_close(ours(x), square, rtol=1e-10, atol=1e-6)
    torch.testing.assert_close(ours(x).diagonal(), ours.diagonal(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.diagonal(x), module(x, diag=True), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_modules_and_inputs_in_float32(name, native):
    module, (x, z) = drawn(ALL[name], torch.float32), inputs(dtype=torch.float32)
    value = kernel(module, native=native)(x, z)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, module(x, z).to_dense(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRANSLATED)
def test_translated_kernels_have_features(name, generator):
    ours = kernel(drawn(TRANSLATED[name]))
    assert not any(isinstance(part, GPyTorchKernel) for part in ours.modules())
    x, _ = inputs()
    phi = ours.features(20000, dimension=3, generator=generator)
    assert (phi(x) @ phi(x).T - ours(x)).abs().max() < 0.1 * ours.diagonal(x).max()


def test_conventions():
    periodic = theirs.PeriodicKernel()
    periodic.lengthscale, periodic.period_length = 4.0, 2.5
    ours = kernel(periodic)
    assert isinstance(ours, Periodic)
    assert (ours.lengthscale.item(), ours.period.item()) == pytest.approx((2.0, 2.5))
    linear = theirs.LinearKernel()
    linear.variance = 4.0
    assert kernel(linear).lengthscale.item() == pytest.approx(0.5)
    ours = kernel(scale(theirs.RBFKernel(ard_num_dims=2)))
    assert isinstance(ours, RBF)
    assert ours.log_variance.requires_grad
    assert not kernel(theirs.RBFKernel()).log_variance.requires_grad
    mixed = kernel(scale(theirs.RBFKernel()) + theirs.CosineKernel())
    assert [type(part).__name__ for part in mixed.parts] == ["RBF", "GPyTorchKernel"]
    assert isinstance(kernel(tied()), GPyTorchKernel)


def test_frozen_hyperparameters_stay_frozen():
    module = scale(theirs.MaternKernel(nu=1.5))
    module.base_kernel.raw_lengthscale.requires_grad_(False)
    ours = kernel(module)
    assert isinstance(ours, Matern32)
    assert ours.log_variance.requires_grad
    assert not ours.log_lengthscale.requires_grad


@pytest.mark.parametrize("name", ["rbf, ard", "matern 3/2", "sum", "spectral mixture", "custom", "tied"])
def test_products_in_tiles_and_their_gradients(name):
    module, (x, z) = drawn(ALL[name]), inputs(600, 1100)
    ours, V = kernel(module, native=False), torch.ones(1100, 1, dtype=x.dtype)
    twin = copy.deepcopy(module)
    x.requires_grad_()
    other = x.detach().clone().requires_grad_()
    (mt.operators.KernelOperator(ours, x, z) @ V).square().sum().backward()
    (twin(other, z).to_dense() @ V).square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-8, atol=1e-7)
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-7)
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("name", ["rbf, ard", "product", "spectral mixture", "custom"])
def test_log_evidence_and_its_gradient(name):
    module, (x, _) = drawn(ALL[name]), inputs()
    y = x.sum(1).sin()
    ours = mt.GaussianProcess(kernel(module, native=False), 0.1)
    ours.log_evidence(x, y).backward()
    covariance = module(x).to_dense() + 0.1 * torch.eye(len(x), dtype=x.dtype)
    torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y).backward()
    for a, b in zip(ours.kernel.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("native", [True, False])
def test_fit_learns_its_hyperparameters_and_leaves_the_original(native):
    module, (x, _) = drawn(TRANSLATED["rbf, ard"]), inputs(80)
    y = 30.0 * x[:, 0].sin()
    before = copy.deepcopy(module.state_dict())
    gp = mt.GaussianProcess(kernel(module, native=native)).fit(x, y)
    assert gp.log_evidence(x, y) > 50.0
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    last = gp.history[-1]["hyperparameters"]
    stored = last["kernel.variance"] if native else last["kernel.module.raw_outputscale"]
    # No bound keeps the scale of the targets out of reach, and records are of what is stored.
    assert stored > 100.0


def test_translation_and_wrapper_learn_the_same():
    module, (x, _) = drawn(TRANSLATED["matern 3/2"]), inputs(80)
    y = x[:, 0].sin() + 0.1 * x[:, 1]
    values = [mt.GaussianProcess(kernel(module, native=n)).fit(x, y).log_evidence(x, y).item() for n in (True, False)]
    assert values[0] == pytest.approx(values[1], abs=0.5)


def test_without_features_mean_and_exact_variances():
    x, z = inputs()
    gp = mt.GaussianProcess(kernel(drawn(WRAPPED["spectral mixture"])), 0.1)
    with pytest.raises(NoFeaturesError, match=r"SpectralMixtureKernel has no random features.*num_samples=0"):
        gp.condition(x, x[:, 0])
    posterior = gp.condition(x, x[:, 0], num_samples=0)
    assert (posterior.variance(z) > 0).all()
    restored = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(restored.mean(z), posterior.mean(z))


def test_settings_are_left_alone():
    x, z = inputs()
    ours = kernel(drawn(ALL["sum"]), native=False)
    with gpytorch.settings.lazily_evaluate_kernels(False):
        value = ours(x, z)
        assert gpytorch.settings.lazily_evaluate_kernels.off()
    assert gpytorch.settings.lazily_evaluate_kernels.on()
    assert torch.equal(value, ours(x, z))


def test_what_is_left_behind_is_named():
    bounded = theirs.RBFKernel(lengthscale_constraint=gpytorch.constraints.GreaterThan(0.1))
    prior = theirs.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0))
    with pytest.warns(UserWarning, match="bounds on lengthscale of RBFKernel"):
        kernel(scale(bounded))
    with pytest.warns(UserWarning, match="lengthscale_prior"):
        kernel(prior, native=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(bounded, native=False)
        kernel(scale(theirs.RBFKernel()))


def test_refusals():
    x, z = inputs()
    with pytest.raises(ValueError, match=r"batch shape \(2,\)"):
        kernel(scale(theirs.RBFKernel(batch_shape=torch.Size([2]))))
    with pytest.raises(TypeError, match="got RBF"):
        kernel(RBF())
    with pytest.raises(TypeError, match="inducing="):
        kernel(theirs.InducingPointKernel(theirs.RBFKernel(), x, gpytorch.likelihoods.GaussianLikelihood()))
    with pytest.raises(TypeError, match="grid_bounds="):
        kernel(scale(theirs.GridInterpolationKernel(theirs.RBFKernel(), grid_size=9, num_dims=3)))
    with pytest.raises(ValueError, match="several outputs"):
        kernel(theirs.RBFKernelGrad())(x, z)
    for native in (True, False):
        with pytest.raises(ValueError, match="x has 1 columns to read"):
            kernel(scale(theirs.RBFKernel(ard_num_dims=3)), native=native)(x[:, :1], z)
    assert isinstance(kernel(scale(theirs.RBFKernel() + theirs.RBFKernel())), Scaled)
    assert isinstance(kernel(theirs.RBFKernel() + theirs.RBFKernel()), Sum)
