"""Bad input is refused by the argument's name, before any work."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from matheron.networks import JacobianOperator, TangentModel
from tests.networks.architectures import build

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture
def model():
    return build("mlp with layer norm")[0]


x = torch.ones(4, 3, dtype=torch.float64)


def test_models_that_cannot_be_linearized(model):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        TangentModel(lambda x: x)
    with pytest.raises(ValueError, match="method must be one of auto"):
        TangentModel(model, method="reverse")
    with pytest.raises(ValueError, match="memory"):
        TangentModel(model, memory=0)
    with pytest.raises(ValueError, match="requires a gradient"):
        TangentModel(nn.Tanh())
    with pytest.raises(ValueError, match="no shape yet"):
        TangentModel(nn.LazyLinear(2))
    with torch.no_grad():
        model[0].weight[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"parameter 0\.weight has 1 NaN"):
        TangentModel(model)


def test_choices_of_parameters(model):
    def never(name):
        return False

    with pytest.raises(ValueError, match="parameters=never leaves none"):
        TangentModel(model, parameters=never)
    with pytest.raises(ValueError, match="one of all, last_layer"):
        TangentModel(model, parameters="first_layer")
    for coarse in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match=r"model\.float\(\)"):
            TangentModel(nn.Linear(2, 1).to(coarse))
    model[4].float()
    with pytest.raises(TypeError, match=r"parameter 4\.weight is torch\.float32"):
        TangentModel(model)


def test_tangents_and_cotangents_that_do_not_fit(model):
    tangent = TangentModel(model)
    d = tangent.num_weights
    with pytest.raises(ValueError, match=rf"W has shape .*expected \(k, {d}\)"):
        tangent.jvp(x, torch.ones(2, d + 1, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"W\[None\]"):
        tangent.jvp(x, torch.ones(d, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"W is torch\.float32"):
        tangent.jvp(x, torch.ones(2, d))
    with pytest.raises(ValueError, match=r"U\[None\]"):
        tangent.vjp(x, torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="one cotangent for every output"):
        tangent.vjp(x, torch.ones(1, 4, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"U is torch\.float32"):
        tangent.vjp(x, torch.ones(1, 4, 2))
    named = tangent.unflatten(torch.ones(2, d, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"lack \['0.weight'\]"):
        tangent.jvp(x, {key: value for key, value in named.items() if key != "0.weight"})
    with pytest.raises(ValueError, match=r"W\['0.bias'\] has shape"):
        tangent.jvp(x, named | {"0.bias": torch.ones(2, 4, dtype=torch.float64)})
    with pytest.raises(ValueError, match="weigh returned"):
        tangent.sandwich(x, torch.ones(2, d, dtype=torch.float64), lambda outputs, tangents: outputs)


def test_inputs_and_outputs_that_are_no_batch(model):
    tangent = TangentModel(model)
    with pytest.raises(ValueError, match="x has no rows"):
        tangent.predict(x[:0])
    for nothing in (None, [], {"a": 1}, torch.ones((), dtype=torch.float64)):
        with pytest.raises(TypeError, match="batch dimension"):
            tangent.predict(nothing)
    for returned, message in (
        (lambda model, x: SimpleNamespace(hidden=model(x)), "neither a tensor nor"),
        (lambda model, x: model(x).sum(), "along dimension 0"),
        (lambda model, x: model(x).mT, "along dimension 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            TangentModel(model, forward=returned).predict(x)


def test_a_batch_of_one_whose_dimension_is_dropped_is_refused(model):
    """Its two outputs would pass for two data of one output each."""
    tangent = TangentModel(model, forward=lambda model, x: model(x).squeeze())
    assert tangent.predict(x).shape == (4, 2)
    with pytest.raises(ValueError, match=r"shape \(2,\) for 1 data"):
        tangent.predict(x[:1])
    with pytest.raises(ValueError, match=r"shape \(2,\) for 1 data"):
        tangent.jvp(x[:1], torch.ones(2, tangent.num_weights, dtype=torch.float64))


def test_a_model_trained_further_is_refused(model):
    tangent = TangentModel(model)
    tangent.predict(x)
    with torch.no_grad():
        model[0].bias += 1.0
    with pytest.raises(RuntimeError, match=r"0\.bias of the model has changed"):
        tangent.predict(x)


def test_scales_that_do_not_fit(model):
    tangent = TangentModel(model)
    with pytest.raises(ValueError, match="scale has shape"):
        JacobianOperator(tangent, x, scale=torch.ones(3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"scale is torch\.float32"):
        JacobianOperator(tangent, x, scale=torch.ones(tangent.num_weights))
