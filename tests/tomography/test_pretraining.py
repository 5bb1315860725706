"""Ellipses to learn from, and what a fit gains from having learnt."""

import math

import pytest
import torch
from torch import nn

from matheron.tomography import DeepImagePrior, ParallelBeam, UNet, cgls, pretrain, random_ellipses


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(9, 14), (6, 7, 8)])
def test_ellipses_fill_their_range_and_follow_their_seed(shape):
    images = random_ellipses(5, shape, generator=seeded())
    assert images.shape == (5, *shape)
    assert float(images.min()) >= 0.0
    torch.testing.assert_close(images.flatten(1).amax(1), torch.ones(5))
    torch.testing.assert_close(images, random_ellipses(5, shape, generator=seeded()), rtol=0.0, atol=0.0)
    assert not torch.equal(images, random_ellipses(5, shape, generator=seeded(1)))


def test_one_size_is_that_of_a_square():
    assert random_ellipses(2, 9, generator=seeded()).shape == (2, 9, 9)


def test_ellipses_have_few_shades():
    """A dozen ellipses at most divide an image into regions of one shade each, far fewer than its pixels."""
    images = random_ellipses(3, (64, 64), generator=seeded())
    assert all(len(image.unique()) < 300 for image in images)


def test_a_fit_starts_lower_and_ends_no_higher_after_pretraining():
    A = ParallelBeam(16, torch.arange(10) * math.pi / 10, 23).operator()
    truth = random_ellipses(1, (16, 16), generator=seeded(7))[0]
    y = A @ truth.flatten()
    rough = cgls(A, y, iterations=10).image.reshape(16, 16)
    losses = {}
    for learnt in (False, True):
        network = UNet(scales=2, channels=8, skip_channels=2, generator=seeded())
        if learnt:
            pretrain(network, A, steps=150, generator=seeded(1))
        dip = DeepImagePrior(A, network, input=rough).fit(y, steps=60, generator=seeded(2))
        losses[learnt] = [step["loss"] for step in dip.history]
    assert losses[True][0] < 0.5 * losses[False][0]
    assert min(losses[True]) < min(losses[False])


def test_it_leaves_the_mode_as_it_was():
    A = ParallelBeam(8, torch.arange(4) * math.pi / 4, 11).operator()
    network = UNet(scales=2, channels=4, skip_channels=2, generator=seeded()).eval()
    pretrain(network, A, steps=2, generator=seeded())
    assert not network.training
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize("name", ["steps", "batch", "iterations"])
def test_counts_are_checked_before_any_work(name):
    A = ParallelBeam(8, torch.arange(4) * math.pi / 4, 11).operator()
    with pytest.raises(ValueError, match=name):
        pretrain(UNet(scales=2, channels=4, generator=seeded()), A, **{name: 0})


def test_a_network_of_another_precision_is_refused():
    A = ParallelBeam(8, torch.arange(4) * math.pi / 4, 11).operator()
    with pytest.raises((TypeError, ValueError), match="network"):
        pretrain(UNet(scales=2, channels=4, generator=seeded()).double(), A, steps=1)


def test_a_step_that_is_too_long_is_noticed():
    A = ParallelBeam(8, torch.arange(4) * math.pi / 4, 11).operator()
    network = UNet(scales=2, channels=4, generator=seeded()).eval()
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        pretrain(network, A, steps=20, learning_rate=1e30, generator=seeded())
    assert not network.training


class Looking(nn.Module):
    """A network that remembers what sizes it saw."""

    def __init__(self):
        super().__init__()
        self.layer, self.sizes = nn.Conv2d(1, 1, 1), set()

    def forward(self, z):
        self.sizes.add(tuple(z.shape[2:]))
        return self.layer(z)


def test_images_are_those_of_the_scan_and_draws_leave_the_global_generator_alone():
    A = ParallelBeam((4, 9), torch.arange(4) * math.pi / 4, 11).operator()
    network, before = Looking(), torch.random.get_rng_state()
    pretrain(network, A, steps=1, batch=2)
    assert network.sizes == {(4, 9)}
    assert torch.equal(before, torch.random.get_rng_state())
