"""The networks of the thesis' appendix."""

import pytest
import torch

from experiments.small_networks import PointTransformer, point_clouds, residual_network


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("filters", "weights"), [((12, 24, 32), 14_814), ((16, 32, 64), 26_874), ((22, 42, 64), 45_576)]
)
@pytest.mark.parametrize("kind", ["ResNet"])
def test_residual_networks_have_the_printed_weights(filters, weights, kind):
    assert count(residual_network(filters, kind)) == weights


@pytest.mark.parametrize(("sizes", "weights"), [((30, 60), 15_520), ((40, 80), 27_090), ((50, 120), 45_900)])
def test_transformers_have_the_printed_weights(sizes, weights):
    assert count(PointTransformer(*sizes)) == weights


@pytest.mark.parametrize("kind", ["ResNet", "Pre-ResNet", "FixUp"])
def test_images_go_through(kind):
    assert residual_network((2, 3, 4), kind).eval()(torch.randn(5, 1, 28, 28)).shape == (5, 10)


def test_points_are_lit_pixels_in_any_order():
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 0, 4], image[0, 0, 4, 0] = 1.0, 0.5
    points = point_clouds(image, 4, torch.Generator().manual_seed(0))[0]
    assert {tuple(point) for point in points.tolist()} == {(1.0, 1.0, 1.0), (-1.0, -1.0, 0.5)}
    model = PointTransformer(4, 4).eval()
    torch.testing.assert_close(model(points[None]), model(points[None].flip(1)))
