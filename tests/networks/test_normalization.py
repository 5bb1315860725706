"""Which weights have a scale that is normalized away, and what that leaves of the model."""

import pytest
import torch
from torch import nn

from matheron.networks import OnlineLaplace
from matheron.networks.normalization import normalized_groups


def network(norm=True):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), *([nn.BatchNorm2d(4)] if norm else []), nn.Dropout(0.5)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 16, 3)).double()


def data():
    g = torch.Generator().manual_seed(1)
    return torch.randn(30, 1, 6, 6, dtype=torch.float64, generator=g), torch.randint(3, (30,), generator=g)


def groups(model):
    X, y = data()
    names = [name for name, _ in model.named_parameters()]
    return normalized_groups(model, names, lambda: nn.functional.cross_entropy(model(X), y))


def test_a_convolution_before_batch_norm_has_no_scale_and_others_have():
    assert groups(network()) == [("0.weight", "0.bias")]
    assert groups(network(norm=False)) == []


@pytest.mark.parametrize("training", [True, False])
def test_the_model_stays_as_it_was(training):
    model = network().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    groups(model)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0.0, atol=0.0)
    assert all(module.training == training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("prior", ["g", "layerwise"])
def test_shrinking_keeps_the_norm_of_what_is_normalized(prior):
    model = network().eval()
    online = OnlineLaplace(model, prior=prior, generator=torch.Generator().manual_seed(0)).update(data())
    assert online.normalized == [("0.weight", "0.bias")]
    size, last = sum(float(p.square().sum()) for p in model[0].parameters()), float(model[-1].weight.norm())
    online.shrink(100.0)
    assert abs(sum(float(p.square().sum()) for p in model[0].parameters()) - size) < 1e-9 * size
    assert float(model[-1].weight.norm()) < last
