"""The deep image prior: its objective, its units, its checkpoints."""

import math

import pytest
import torch
from torch import nn

from matheron.operators import Dense
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography import (
    ConeBeam,
    DeepImagePrior,
    Fourier,
    GaussianImage,
    LinearizedDIP,
    MonteCarloDropout,
    ParallelBeam,
    UNet,
    cgls,
    pretrain,
)

FAR = {"source_to_axis": 80.0, "source_to_detector": 100.0}


def scan(size=(8, 6), angles=5):
    return ParallelBeam(size, torch.arange(angles) * math.pi / angles, 11)


def problem(seed=0, dtype=torch.float32):
    A = scan().operator(dtype=dtype)
    g = torch.Generator().manual_seed(seed)
    truth = torch.zeros(8, 6, dtype=dtype)
    truth[2:6, 1:4] = 1.0
    y = A @ truth.flatten()
    return A, y + 0.1 * torch.randn(len(y), dtype=dtype, generator=g), truth


def net(dtype=torch.float32):
    return UNet(scales=2, channels=4, skip_channels=2, groups=2, generator=torch.Generator().manual_seed(3)).to(dtype)


def fitted(A, y, steps=30, seed=1, **options):
    prior = DeepImagePrior(A, net(A.dtype), shape=(8, 6), **options)
    return prior.fit(y, steps=steps, generator=torch.Generator().manual_seed(seed))


def test_the_loss_is_the_formula_at_the_image():
    A, y, _ = problem(dtype=torch.float64)
    dip = fitted(A, y, tv=0.01)
    x = dip.image
    fit = 0.5 * (A.dense() @ x.flatten() - y).square().sum() / y.square().sum()
    variation = (x[1:] - x[:-1]).abs().sum() + (x[:, 1:] - x[:, :-1]).abs().sum()
    loss = float(fit + 0.01 * variation / (48 * dip.unit))
    assert loss == pytest.approx(min(record["loss"] for record in dip.history), rel=1e-10)
    assert len(dip.history) == 31


def test_units_of_the_scan_change_nothing():
    """Images in another unit and lengths in another: the same picture."""
    A, y, _ = problem(dtype=torch.float64)
    dip = fitted(A, y)
    other = fitted(Dense(0.01 * A.dense()), 0.01 * 300.0 * y)
    assert torch.allclose(other.image, 300.0 * dip.image, rtol=1e-6)


def test_variation_is_as_strong_beside_a_ray_however_many_there_are():
    """``tv ‖y‖²`` does not grow with the angles: without ``tv``, and where a fit is taken up with more of them."""
    few, many = (scan(angles=angles).operator() for angles in (5, 10))
    strengths = [DeepImagePrior(A, net(), shape=(8, 6)).tv * A.shape[0] for A in (few, many)]
    assert strengths == pytest.approx([0.002 * 48, 0.002 * 48])
    y = problem()[1]
    again = fitted(few, y, steps=1, tv=0.04).refitted(many, torch.cat([y, y]))
    assert again.tv == pytest.approx(0.02)


def test_a_unit_that_is_given_is_the_unit():
    """A network between zero and one, of images in tenths."""
    A, y, _ = problem()
    bounded = nn.Sequential(net(), nn.Sigmoid())
    dip = DeepImagePrior(A, bounded, shape=(8, 6), unit=0.1)
    dip.fit(0.1 * y, steps=30, generator=torch.Generator().manual_seed(1))
    assert dip.unit == 0.1
    assert 0.0 < float(dip.image.min()) < float(dip.image.max()) < 0.1


def test_a_refit_goes_on_from_where_the_network_stands():
    """With the same settings, of other angles, and without touching the first."""
    A, y, truth = problem(dtype=torch.float64)
    dip = fitted(A, y, steps=100)
    before = dip.image.clone()
    wider = scan(angles=9).operator(dtype=torch.float64)
    again = dip.refitted(wider, wider @ truth.flatten())
    assert torch.equal(dip.image, before)
    assert len(again.history) == 101
    fresh = fitted(wider, wider @ truth.flatten(), steps=100)
    assert again.history[0]["fit"] < 0.5 * fresh.history[0]["fit"]
    assert float((again.image - truth).norm()) < float((before - truth).norm())


def test_fitting_helps():
    A, y, truth = problem()
    dip = fitted(A, y, steps=150)
    assert dip.history[-1]["loss"] < 0.1 * dip.history[0]["loss"]
    assert float((dip.image - truth).norm()) < 0.6 * float(truth.norm())


def test_variation_falls_as_tv_grows():
    A, y, _ = problem()
    found = [fitted(A, y, steps=80, tv=tv).history[-1]["variation"] for tv in (0.0, 0.1)]
    assert found[1] < found[0]


def test_an_image_can_be_the_input():
    A, y, _ = problem()
    z = torch.rand(8, 6)
    dip = DeepImagePrior(A, net(), input=z).fit(y, steps=2)
    assert dip.shape == (8, 6)
    assert torch.equal(dip.input, z[None, None])


@pytest.mark.parametrize(
    ("A", "shape"),
    [
        (ParallelBeam((4, 9), [0.0, 1.0], 11).operator(), (4, 9)),
        (Fourier((3, 12), [0, 1]), (3, 12)),
        (ConeBeam(4, [0.0, 1.0], 6, **FAR).operator(), (4, 4, 4)),
    ],
    ids=["parallel", "fourier", "cone"],
)
@pytest.mark.parametrize("model", [DeepImagePrior, MonteCarloDropout, GaussianImage])
def test_the_scan_knows_the_shape_of_its_images(model, A, shape):
    """Their pixels are as many as those of a square, which they are not."""
    found = model(A)
    assert (found._dip if model is MonteCarloDropout else found).shape == shape


def test_the_usual_network_is_one_for_volumes_where_these_are():
    A = ConeBeam((2, 4, 3), torch.arange(3) * 2.0, (4, 7), **FAR).operator()
    dip = DeepImagePrior(A).fit(A @ torch.ones(24), steps=1, generator=torch.Generator().manual_seed(0))
    assert dip.image.shape == (2, 4, 3)


def test_an_input_may_be_flat():
    A, y, _ = problem()
    rough = cgls(A, y, iterations=3).image
    for network in (net(), nn.Conv2d(1, 1, 3, padding=1)):
        dip = DeepImagePrior(A, network, input=rough).fit(y, steps=2)
        assert torch.equal(dip.input, rough.reshape(1, 1, 8, 6))


def test_rays_are_weighed_in_the_fit():
    A, y, _ = problem(dtype=torch.float64)
    weights = torch.rand(len(y), dtype=torch.float64, generator=torch.Generator().manual_seed(5)) + 0.1
    dip = DeepImagePrior(A, net(A.dtype), tv=0.01)
    dip.fit(y, weights=weights, steps=30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(dip.weights, weights)
    x = dip.image
    fit = 0.5 * (weights * (A.dense() @ x.flatten() - y).square()).sum() / (weights * y.square()).sum()
    variation = (x[1:] - x[:-1]).abs().sum() + (x[:, 1:] - x[:, :-1]).abs().sum()
    best = min(record["loss"] for record in dip.history)
    assert float(fit + 0.01 * variation / (48 * dip.unit)) == pytest.approx(best, rel=1e-10)
    plain = fitted(A, y, tv=0.01)
    again = DeepImagePrior(A, net(A.dtype), tv=0.01)
    again.fit(y, weights=torch.ones_like(y), steps=30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(again.image, plain.image)
    assert not torch.allclose(x, plain.image, rtol=1e-3)


def test_without_a_generator_the_global_one_is_left_alone():
    A, y, _ = problem()
    before = torch.random.get_rng_state()
    first, second = (DeepImagePrior(A, net()).fit(y, steps=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(first.input, second.input)


def test_an_interrupted_fit_goes_on_to_the_same_image(tmp_path):
    A, y, _ = problem()
    whole = fitted(A, y, steps=20)
    path = tmp_path / "dip.checkpoint"
    interrupted = DeepImagePrior(A, Interrupted(net(), calls=13), shape=(8, 6))
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(
            y, steps=20, generator=torch.Generator().manual_seed(1), checkpoint=Checkpoint(path, seconds=0.0)
        )
    calls = Interrupted(net(), calls=1000)
    resumed = DeepImagePrior(A, calls, shape=(8, 6)).fit(
        y, steps=20, generator=torch.Generator().manual_seed(1), checkpoint=Checkpoint(path, seconds=0.0)
    )
    assert torch.equal(resumed.image, whole.image)
    assert resumed.history == whole.history
    assert 1000 - calls.calls <= 12  # ten steps and the last loss are left, and the output is looked at twice
    assert not path.exists()


def test_a_checkpoint_of_another_scan_is_refused(tmp_path):
    A, y, _ = problem()
    path = tmp_path / "dip.checkpoint"
    interrupted = DeepImagePrior(A, Interrupted(net(), calls=5), shape=(8, 6))
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(y, steps=20, generator=torch.Generator(), checkpoint=Checkpoint(path, seconds=0.0))
    with pytest.raises(ValueError, match="another solve: its y"):
        DeepImagePrior(A, net(), shape=(8, 6)).fit(y + 1.0, generator=torch.Generator(), checkpoint=path)
    # The geometry was mended, and y is what it was.
    mended = Dense(A.dense().flip(1))
    with pytest.raises(ValueError, match="another solve: its scan"):
        DeepImagePrior(mended, net(), shape=(8, 6)).fit(y, generator=torch.Generator(), checkpoint=path)


class Interrupted(nn.Module):
    """A network that fails after some calls."""

    def __init__(self, inner, calls):
        super().__init__()
        self.inner, self.calls = inner, calls

    def forward(self, z):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.inner(z)


class Cropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 3)

    def forward(self, z):
        return self.layer(z)


class Then(nn.Module):
    """A network with something done to its output, and a layer that it does not use."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.inner, self.change, self.idle = net(), change, nn.Linear(2, 2)
        nn.init.zeros_(self.idle.weight)
        nn.init.zeros_(self.idle.bias)

    def forward(self, z):
        return self.change(self.inner(z))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: (x, x), "gives a tuple"),
        (lambda x: None, "gives a NoneType"),
        (lambda x: x.double(), "network's output is torch.float64"),
        (lambda x: x.detach(), "has no gradient"),
        (lambda x: torch.cat([x, x], 1), "network maps"),
        (lambda x: x.mean((2, 3), keepdim=True), "network maps"),
        (lambda x: x * math.nan, "NaN"),
    ],
)
def test_outputs_that_are_no_image_are_refused(change, words, unchecked):
    A, y, _ = problem()
    with pytest.raises((TypeError, ValueError), match=words):
        DeepImagePrior(A, Then(change)).fit(y, steps=1)
    with pytest.raises((TypeError, ValueError), match=words):
        pretrain(Then(change), A, steps=1)


def test_parameters_that_are_not_used_do_not_hinder_a_checkpoint(tmp_path):
    A, y, _ = problem()
    whole = fitted(A, y, steps=20)
    place = Checkpoint(tmp_path / "dip.checkpoint", seconds=0.0)
    seeded = {"generator": torch.Generator().manual_seed(1), "checkpoint": place}
    with pytest.raises(KeyboardInterrupt):
        DeepImagePrior(A, Interrupted(Then(), calls=13)).fit(y, steps=20, **seeded)
    seeded["generator"].manual_seed(1)
    resumed = DeepImagePrior(A, Interrupted(Then(), calls=12)).fit(y, steps=20, **seeded)
    assert torch.equal(resumed.image, whole.image)


def test_measurements_with_a_history_and_fits_without_gradients_are_the_same():
    A, y, _ = problem()
    plain, weights = fitted(A, y, steps=5), torch.ones_like(y).requires_grad_()
    y = y.requires_grad_()
    with torch.no_grad():
        again = DeepImagePrior(A, net(), shape=(8, 6))
        again.fit(y, weights=weights, steps=5, generator=torch.Generator().manual_seed(1))
        assert len(pretrain(net(), A, steps=2)) == 2
    assert torch.equal(again.image, plain.image)
    again.fit(y, weights=weights, steps=2)
    assert y.grad is None
    assert weights.grad is None


def test_a_network_that_was_changed_after_the_fit_is_not_linearized():
    A, y, _ = problem()
    dip = fitted(A, y)
    assert dip.tangent().num_weights > 0
    MonteCarloDropout(A, dip.network).fit(y, steps=5, generator=0)
    with pytest.raises(RuntimeError, match="does not give the fitted image"):
        dip.tangent()
    with pytest.raises(RuntimeError, match=r"copy\.deepcopy"):
        LinearizedDIP(dip).fit(y)


def test_what_does_not_fit_is_refused_by_name(unchecked):
    A, y, _ = problem()
    with pytest.raises(ValueError, match="y has shape"):
        fitted(A, y[:-1])
    with pytest.raises(ValueError, match="one sinogram"):
        fitted(A, y[:, None].repeat(1, 2))
    bad = y.clone()
    bad[3] = math.nan
    with pytest.raises(ValueError, match="y has 1 NaN"):
        fitted(A, bad)
    with pytest.raises(TypeError, match=r"A is a ParallelBeam.*scan.operator\(\)"):
        DeepImagePrior(A.origin, net())
    with pytest.raises(TypeError, match="A must be an operator"):
        DeepImagePrior(A.dense(), net())
    with pytest.raises(TypeError, match="network must be a"):
        DeepImagePrior(A, lambda z: z)
    with pytest.raises(ValueError, match="nothing to fit"):
        DeepImagePrior(A, net().requires_grad_(False))
    with pytest.raises(ValueError, match="give shape="):
        DeepImagePrior(Dense(A.dense()), net())
    with pytest.raises(ValueError, match="49 pixels"):
        DeepImagePrior(A, net(), shape=(7, 7))
    with pytest.raises(ValueError, match="network maps"):
        DeepImagePrior(A, Cropping(), shape=(8, 6)).fit(y)
    with pytest.raises(ValueError, match="BatchNorm2d"):
        DeepImagePrior(A, nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), shape=(8, 6))
    with pytest.raises(TypeError, match="network's"):
        DeepImagePrior(A, net(torch.float64), shape=(8, 6))
    with pytest.raises(ValueError, match="y says nothing"):
        fitted(A, torch.zeros_like(y))
    with pytest.raises(RuntimeError, match="call fit"):
        _ = DeepImagePrior(A, net(), shape=(8, 6)).image


def test_what_the_scan_says_of_its_images_holds(unchecked):
    A, y, _ = problem()
    solid = ConeBeam(4, [0.0, 1.0], 6, **FAR).operator()
    with pytest.raises(ValueError, match=r"shape is \(6, 8\) but images of the scan are \(8, 6\)"):
        DeepImagePrior(A, net(), shape=(6, 8))
    with pytest.raises(ValueError, match=r"input has shape \(6, 8\)"):
        DeepImagePrior(A, net(), input=torch.rand(6, 8))
    with pytest.raises(ValueError, match="images of 2 axes"):
        DeepImagePrior(solid, net())
    with pytest.raises(ValueError, match=r"does not take an input \(1, 1, 4, 4, 4\)"):
        DeepImagePrior(solid, nn.Conv2d(1, 1, 1)).fit(torch.ones(72))
    with pytest.raises(ValueError, match=r"does not take an input \(1, 1, 8, 6\)"):
        DeepImagePrior(A, UNet(scales=6, channels=4)).fit(y)
    for weights, words in (
        (torch.ones(3), "give one for each of the 55 rays"),
        (torch.zeros_like(y), "weights are all zero"),
        (-torch.ones_like(y), "weights must be zero or positive"),
    ):
        with pytest.raises(ValueError, match=words):
            DeepImagePrior(A, net()).fit(y, weights=weights)
