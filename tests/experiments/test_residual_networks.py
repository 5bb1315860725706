"""Residual networks: published numbers of weights, and FixUp's beginning."""

import pytest
import torch

from experiments.residual_networks import Block, cifar_resnet, count, imagenet_resnet


def test_networks_have_the_published_numbers_of_weights():
    with torch.device("meta"):
        assert count(imagenet_resnet(50)) == 25_557_032
        assert count(imagenet_resnet(18)) == 11_689_512
        assert count(cifar_resnet(20)) == pytest.approx(0.27e6, rel=0.02)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_fixup_block_begins_as_its_shortcut(bottleneck):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 6, 6)
    for stride, width in ((1, 2 if bottleneck else 8), (2, 5)):
        block = Block(8, width, stride, bottleneck=bottleneck, fixup=7)
        torch.testing.assert_close(block(x), torch.relu(block.shortcut(x)))
        assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in block.modules())


def test_a_fixup_network_begins_undecided():
    network = imagenet_resnet(18, classes=5, width=2, fixup=True)
    assert torch.equal(network(torch.randn(2, 3, 32, 32)), torch.zeros(2, 5))
