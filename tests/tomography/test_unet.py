"""The U-net: sizes, blocks, and what norm before every convolution makes of it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matheron.networks import TangentModel
from matheron.tomography import UNet


def net(**options):
    options = {"channels": 4, "skip_channels": 2, "groups": 2} | options
    return UNet(generator=torch.Generator().manual_seed(0), **options)


@given(st.integers(1, 13), st.integers(2, 13), st.integers(2, 4))
def test_the_output_has_the_size_of_the_input(height, width, scales):
    assert net(scales=scales)(torch.randn(1, 1, height, width)).shape == (1, 1, height, width)


def test_volumes():
    assert net(dims=3, scales=2)(torch.randn(1, 1, 5, 4, 7)).shape == (1, 1, 5, 4, 7)


def test_parameters_are_named_by_block():
    model = net(scales=3)
    assert {name.partition(".")[0] for name, _ in model.named_parameters()} == set(model.blocks)
    assert model.blocks == ("In", "Down_0", "Down_1", "Skip_1", "Up_1", "Skip_0", "Up_0", "Out")


def test_the_same_seed_draws_the_same_weights():
    before = torch.random.get_rng_state()
    first, second = net().state_dict(), net().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_a_generator_the_global_one_is_left_alone():
    before = torch.random.get_rng_state()
    first, second = (UNet(scales=2, channels=2, skip_channels=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(first.get_submodule("Out").weight, second.get_submodule("Out").weight)


def test_a_multiple_of_the_input_gives_the_same_image():
    """Norm comes before the first convolution: an input has no unit."""
    z = torch.randn(1, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = net().double()
    assert torch.allclose(model(100.0 * z), model(1e5 * z), atol=1e-6)
    without = net(groups=None).double()
    assert not torch.allclose(without(z), without(2.0 * z), rtol=0.1)


def test_the_jacobian_is_that_of_finite_differences(generator):
    model, z = net(scales=2).double().eval(), torch.randn(1, 1, 5, 6, dtype=torch.float64, generator=generator)
    tangent = TangentModel(model)
    w = torch.randn(1, tangent.num_weights, dtype=torch.float64, generator=generator)
    pushed = tangent.jvp(z, w)[0]
    assert tangent.used == "forward"
    step = 1e-6

    def at(size):
        moved = tangent.unflatten(tangent.weights[None] + size * w)
        return torch.func.functional_call(model, {name: value[0] for name, value in moved.items()}, (z,))

    assert torch.allclose(pushed, (at(step) - at(-step)) / (2 * step), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dims": 4}, "dims must be 2"), ({"scales": 1}, "scales must be at least 2"), ({"channels": 0}, "channels")],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        net(**options)


def test_inputs_of_another_kind_are_refused(unchecked):
    with pytest.raises(ValueError, match="give images"):
        net()(torch.zeros(1, 3, 8, 8))


def test_images_that_leave_nothing_to_normalize_are_refused():
    """A group of one channel with one pixel: PyTorch would only say that it expected more values."""
    for z, options in ((torch.zeros(1, 1, 8, 5), {"channels": 4}), (torch.zeros(1, 1, 1, 1), {"channels": 8})):
        with pytest.raises(ValueError, match="take fewer scales, more channels, or groups=None"):
            net(scales=4, groups=4, **options)(z)
        assert net(scales=4, groups=None, **options)(z).shape == z.shape
    assert net(scales=4, groups=4)(torch.zeros(1, 1, 9, 5)).shape == (1, 1, 9, 5)
    assert net(scales=4, channels=8, groups=4)(torch.zeros(1, 1, 3, 2)).shape == (1, 1, 3, 2)
