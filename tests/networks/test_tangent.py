"""Products of the tangent model against explicit Jacobians, for networks of every kind."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from matheron.networks import JacobianOperator, TangentModel
from tests.networks.architectures import ARCHITECTURES, build, explicit_jacobian, normal

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
METHODS = ("auto", "double-vjp")


@pytest.fixture(params=ARCHITECTURES)
def name(request):
    return request.param


def columns(k, d, dtype=torch.float64, seed=0):
    return torch.randn(k, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def close(actual, expected, relative):
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=relative * float(expected.abs().max()))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("method", METHODS)
def test_products_agree_with_the_explicit_jacobian(name, method, dtype):
    model, x = build(name, dtype)
    outputs, J = explicit_jacobian(model, x)
    tangent = TangentModel(model, method=method)
    assert tangent.num_weights == J.shape[1]
    W, U = columns(3, J.shape[1], dtype), columns(3, J.shape[0], dtype, seed=1).view(3, *outputs.shape)
    primal, tangents = tangent.value_and_jvp(x, W)
    assert tangents.dtype == dtype
    close(primal, outputs, TOLERANCE[dtype])
    close(tangent.predict(x), outputs, TOLERANCE[dtype])
    close(tangent(x), outputs, TOLERANCE[dtype])
    close(tangents, (W @ J.mT).view(3, *outputs.shape), TOLERANCE[dtype])
    close(tangent.jvp(x, W), tangents, TOLERANCE[dtype])
    close(tangent.jvp(x, W[:1]), tangents[:1], TOLERANCE[dtype])
    close(tangent.vjp(x, U), U.flatten(1) @ J, TOLERANCE[dtype])
    close(tangent.vjp(x, U[:1]), U[:1].flatten(1) @ J, TOLERANCE[dtype])
    close(tangent.jacobian(x), J, TOLERANCE[dtype])


def test_the_jacobian_of_large_data_goes_datum_by_datum(name, monkeypatch):
    model, x = build(name, torch.float64)
    J = explicit_jacobian(model, x)[1]
    monkeypatch.setattr("matheron.networks.tangent.TINY", 0)
    close(TangentModel(model).jacobian(x), J, 1e-8)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 2e-2)])
def test_finite_differences_have_half_the_digits(name, dtype, tolerance):
    """A central difference with step ``√ε`` has a rounding error of ``√ε |g|``: 1.5e-8 and 3.5e-4 of the outputs."""
    model, x = build(name, dtype)
    outputs, J = explicit_jacobian(model, x)
    tangent = TangentModel(model, method="finite-differences")
    W = columns(3, J.shape[1], dtype)
    W[1] = 0.0
    tangents = tangent.jvp(x, W)
    close(tangents, (W @ J.mT).view(3, *outputs.shape), tolerance)
    assert tangent.used == "finite-differences"
    assert bool((tangents[1] == 0.0).all())


def test_every_network_is_pushed_by_forward_mode(name):
    for dtype in TOLERANCE:
        model, x = build(name, dtype)
        tangent = TangentModel(model)
        assert tangent.used is None
        tangent.predict(x)
        assert tangent.used == "forward"


def test_the_sandwich_is_the_product_of_its_parts(name):
    """``Jᵀ B J W`` with a ``B`` that depends on the outputs and couples them."""
    model, x = build(name)
    outputs, J = explicit_jacobian(model, x)
    tangent = TangentModel(model)
    W, calls = columns(4, J.shape[1]), []

    def weigh(outputs, tangents):
        calls.append(tangents.shape)
        p = outputs.flatten(1).softmax(1)
        t = tangents.flatten(2)
        return (p * t - p * (p * t).sum(-1, keepdim=True)).view_as(tangents)

    p = outputs.flatten(1).softmax(1)
    B = torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p))
    close(tangent.sandwich(x, W, weigh), W @ J.mT @ B @ J, 1e-8)
    assert calls == [(4, *outputs.shape)]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_many_tangents_at_once_agree_too(name, dtype):
    """From twice as many tangents as a datum has outputs on, products go by explicit rows, a few data at a time."""
    model, x = build(name, dtype)
    outputs, J = explicit_jacobian(model, x)
    k = max(8, 2 * outputs[0].numel())
    tangent, W, U = TangentModel(model), columns(k, J.shape[1], dtype), columns(k, outputs.numel(), dtype)
    close(tangent.jvp(x, W), (W @ J.mT).view(k, *outputs.shape), TOLERANCE[dtype])
    close(tangent.vjp(x, U.view(k, *outputs.shape)), U @ J, TOLERANCE[dtype])


def test_explicit_rows_are_made_a_few_data_at_a_time(monkeypatch):
    model, x = build("cnn with batch norm")
    outputs, J = explicit_jacobian(model, x)
    tangent, seen, rows = TangentModel(model), [], TangentModel._rows
    monkeypatch.setattr(TangentModel, "_rows", lambda self, x: seen.append(len(x)) or rows(self, x))
    monkeypatch.setattr("matheron.networks.tangent.FAST", outputs[0].numel() * J.shape[1] * J.itemsize)
    W = columns(2 * outputs[0].numel() + 8, J.shape[1])
    close(tangent.jvp(x, W), (W @ J.mT).view(len(W), *outputs.shape), 1e-8)
    assert seen == [1] * len(x)


class Reading(nn.Module):
    """Attends to a memory that is the same for all data."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(3, 2)

    def forward(self, x, memory):
        return (self.query(x) @ memory.mT).softmax(-1) @ memory


def test_what_is_shared_stays_whole_beside_as_many_data(monkeypatch):
    """Parts of five data and a memory of five rows: one is not a row of the other."""
    model, generator = Reading().double().eval(), torch.Generator().manual_seed(0)
    x = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((10, 3), (5, 2))]
    outputs, J = explicit_jacobian(model, x)
    monkeypatch.setattr("matheron.networks.tangent.FAST", 5 * 2 * J.shape[1] * J.itemsize)
    tangent, W, U = TangentModel(model), columns(12, J.shape[1]), columns(12, outputs.numel())
    close(tangent.jvp(x, W), (W @ J.mT).view(12, *outputs.shape), 1e-8)
    close(tangent.vjp(x, U.view(12, *outputs.shape)), U @ J, 1e-8)
    close(tangent.jacobian(x), J, 1e-8)


def test_a_compiled_model_is_linearized_as_what_it_was_made_from(recwarn):
    model, x = build("mlp with layer norm")
    _, J = explicit_jacobian(model, x)
    compiled = torch.compile(model, backend="eager").train()
    tangent = TangentModel(compiled)
    assert tangent.names == tuple(name for name, _ in compiled.named_parameters())
    close(tangent.jacobian(x), J, 1e-8)
    assert [str(warning.message)[:30] for warning in recwarn] == ["the model is in training mode "]
    assert all(module.training for module in compiled.modules())


def test_dicts_and_flat_weights_are_the_same(name):
    model, x = build(name)
    tangent = TangentModel(model)
    W = columns(2, tangent.num_weights)
    named = tangent.unflatten(W)
    assert {key: value.shape for key, value in named.items()} == {
        key: (2, *shape) for key, shape in zip(tangent.names, tangent.shapes, strict=True)
    }
    assert all(value.untyped_storage().data_ptr() == W.untyped_storage().data_ptr() for value in named.values())
    assert torch.equal(tangent.flatten(named), W)
    assert torch.equal(tangent.jvp(x, named), tangent.jvp(x, W))
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(tangent.weights, expected)
    members = [int((tangent.groups == i).sum()) for i in range(len(tangent.names))]
    assert members == [shape.numel() for shape in tangent.shapes]
    assert bool((tangent.groups.diff() >= 0).all())


@pytest.mark.parametrize("method", ["forward", "double-vjp", "finite-differences"])
def test_the_model_is_left_as_it_was_found(name, method):
    model, x = build(name)
    next(model.modules()).train()
    first = next(model.parameters())
    first.grad = torch.ones_like(first)
    list(model.parameters())[-1].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    attributes = [dict(vars(module)) for module in model.modules()]
    tangent = TangentModel(model, method=method)
    with pytest.warns(UserWarning, match="training mode"):
        outputs, _ = tangent.value_and_jvp(x, columns(2, tangent.num_weights))
    tangent.vjp(x, torch.ones(2, *outputs.shape, dtype=outputs.dtype))
    tangent.sandwich(x, columns(2, tangent.num_weights), lambda outputs, tangents: tangents)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for module, remembered in zip(model.modules(), attributes, strict=True):
        assert vars(module) == remembered
    assert bool((first.grad == 1.0).all())
    assert [p.grad is None for p in model.parameters()] == [False, *[True] * (len(list(model.parameters())) - 1)]
    assert not list(model.parameters())[-1].requires_grad
    assert all(p.requires_grad for p in list(model.parameters())[:-1])
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mkldnn.enabled


def test_the_model_is_put_back_after_an_exception():
    model, x = build("transformer")
    model.train()
    tangent = TangentModel(model)

    def weigh(outputs, tangents):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="training mode"), pytest.raises(KeyboardInterrupt):
        tangent.sandwich(x, columns(1, tangent.num_weights), weigh)
    assert all(module.training for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()


def test_training_mode_is_said_once_and_each_module_gets_its_own_mode_back(recwarn):
    model, x = build("cnn with batch norm")
    expected = TangentModel(model).predict(x)
    model.train()
    model[1].eval()
    tangent = TangentModel(model)
    for _ in range(3):
        assert torch.equal(tangent.predict(x), expected)
    assert [module.training for module in model.modules()] == [True, True, False, *[True] * 4]
    assert len([w for w in recwarn if "training mode" in str(w.message)]) == 1


@settings(max_examples=12)
@given(
    name=st.sampled_from(sorted(ARCHITECTURES)),
    k=st.integers(1, 4),
    seed=st.integers(0, 99),
    method=st.sampled_from(["forward", "double-vjp"]),
    memory=st.sampled_from([None, 1, 4000]),
)
def test_the_products_are_adjoint(name, k, seed, method, memory):
    """``⟨U, J W⟩ = ⟨Jᵀ U, W⟩``, also in parts."""
    model, x = build(name)
    tangent = TangentModel(model, method=method, memory=memory)
    W = columns(k, tangent.num_weights, seed=seed)
    tangents = tangent.jvp(x, W)
    U = columns(k, tangents[0].numel(), seed=seed + 1).view_as(tangents)
    left = (U * tangents).flatten(1).sum(1)
    torch.testing.assert_close(left, (tangent.vjp(x, U) * W).sum(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("memory", [1, 10_000])
def test_parts_give_the_same_products(name, memory):
    model, x = build(name)
    whole, parts = TangentModel(model), TangentModel(model, memory=memory)
    W = columns(5, whole.num_weights)
    tangents = whole.jvp(x, W)
    close(parts.jvp(x, W), tangents, 1e-12)
    close(parts.vjp(x, tangents), whole.vjp(x, tangents), 1e-12)
    close(parts.sandwich(x, W, lambda f, t: f.square() * t), whole.sandwich(x, W, lambda f, t: f.square() * t), 1e-12)


def test_one_predicate_of_each_kind():
    model, x = build("mlp with layer norm")
    names = [key for key, _ in model.named_parameters()]
    for choice, expected in {
        "all": names,
        "last_layer": ["4.weight", "4.bias"],
        "no_biases": ["0.weight", "1.weight", "4.weight"],
        "no_normalization": ["0.weight", "0.bias", "4.weight", "4.bias"],
        "matrices": ["0.weight", "4.weight"],
        (lambda name: name.startswith("0")): ["0.weight", "0.bias"],
        (lambda name, parameter: parameter.ndim == 2): ["0.weight", "4.weight"],
    }.items():
        tangent = TangentModel(model, parameters=choice)
        assert list(tangent.names) == expected
        outputs, J = explicit_jacobian(model, x)
        kept = torch.cat([torch.full((p.numel(),), key in expected) for key, p in model.named_parameters()])
        W = columns(2, tangent.num_weights)
        close(tangent.jvp(x, W), (W @ J[:, kept].mT).view(2, *outputs.shape), 1e-8)


def test_parameters_that_do_not_require_a_gradient_are_left_out():
    model, x = build("mlp with layer norm")
    model[0].weight.requires_grad_(False)
    tangent = TangentModel(model)
    assert "0.weight" not in tangent.names
    outputs, J = explicit_jacobian(model, x)
    close(tangent.vjp(x, outputs[None]), outputs.flatten()[None] @ J, 1e-8)


def test_tied_weights_count_once():
    model, _ = build("tied weights")
    tangent = TangentModel(model)
    assert tangent.names == ("encode.weight", "encode.bias", "decode.bias")
    assert tangent.num_weights == 9 + 3 + 3


def test_products_do_not_need_gradients_and_leave_none():
    model, x = build("mlp with layer norm")
    tangent = TangentModel(model)
    W = columns(2, tangent.num_weights).requires_grad_()
    with torch.no_grad():
        tangents = tangent.jvp(x.clone().requires_grad_(), W)
        pulled = tangent.vjp(x, tangents)
    assert not tangents.requires_grad
    assert not pulled.requires_grad
    assert not tangent.predict(x).requires_grad


def test_forward_calls_an_unusual_model():
    model, x = build("whole dict")
    tangent = TangentModel(model, forward=lambda model, pair: model({"a": pair[0], "b": pair[1]})[:, :1])
    assert torch.equal(tangent.predict((x["a"], x["b"])), model(x).detach()[:, :1])
    assert tangent.jvp((x["a"], x["b"]), columns(2, tangent.num_weights)).shape == (2, 4, 1)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_operator_has_rows_datum_by_datum(name, scaled):
    model, x = build(name)
    _, J = explicit_jacobian(model, x)
    scale = 0.5 + columns(1, J.shape[1], seed=3)[0].square() if scaled else None
    Phi = JacobianOperator(TangentModel(model), x, scale=scale)
    expected = J if scale is None else J * scale
    close(Phi @ columns(3, J.shape[1]).mT, expected @ columns(3, J.shape[1]).mT, 1e-8)
    close(Phi.T @ columns(3, J.shape[0]).mT, expected.mT @ columns(3, J.shape[0]).mT, 1e-8)


def test_transposed_rows_reach_the_network_without_a_copy(monkeypatch):
    model, x = build("mlp with layer norm")
    tangent = TangentModel(model)
    Phi = JacobianOperator(tangent, x)
    seen = []
    whole = tangent.value_and_jvp
    monkeypatch.setattr(tangent, "value_and_jvp", lambda x, W: (seen.append(W), whole(x, W))[1])
    rows = columns(3, tangent.num_weights)
    Phi @ rows.mT
    assert seen[0].data_ptr() == rows.data_ptr()
    assert seen[0].is_contiguous()


def test_no_tangents_give_no_rows():
    model, x = build("mlp with layer norm")
    tangent = TangentModel(model)
    assert tangent.jvp(x, columns(0, tangent.num_weights)).shape == (0, 4, 2)
    assert tangent.vjp(x, normal(0, 4, 2)(torch.float64)).shape == (0, tangent.num_weights)


class Counting(nn.Module):
    """Writes to a buffer in every pass, whatever its mode."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        self.last = x
        return torch.tanh(self.head(x))


class Replacing(Counting):
    """Puts another tensor in the place of its buffer."""

    def forward(self, x):
        self.seen = self.seen + self.head(x).sum()
        self.last = x
        return torch.tanh(self.head(x))


@pytest.mark.parametrize("network", [Counting, Replacing])
def test_buffers_written_in_evaluation_mode_are_untouched(network):
    model, x = network().double().eval(), normal(4, 3)(torch.float64)
    tangent = TangentModel(model)
    W = columns(3, tangent.num_weights)
    tangents = tangent.jvp(x, W)
    tangent.vjp(x, tangents)
    assert float(model.seen) == 0.0
    assert not hasattr(model, "last")
    model(x)
    assert torch.equal(tangent.jvp(x, W), tangents)


@pytest.mark.parametrize("made", [{"sparse": True}, {"scale_grad_by_freq": True}], ids=str)
def test_what_embeddings_make_of_gradients_is_no_derivative(made):
    ids, plain = torch.arange(8).reshape(4, 2) % 3, nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Tanh()).double()
    model = nn.Sequential(nn.Embedding(5, 3, **made), nn.Flatten(), nn.Tanh()).double().eval()
    model.load_state_dict(plain.state_dict())
    torch.testing.assert_close(TangentModel(model).jacobian(ids), explicit_jacobian(plain, ids)[1])
    assert all(getattr(model[0], name) for name in made)


def test_embeddings_that_change_their_weights_are_refused():
    model = nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Flatten())
    with pytest.raises(ValueError, match="0 is an embedding with max_norm"):
        TangentModel(model)


class Tied(nn.Module):
    """The last layer's weight is that of the embedding."""

    def __init__(self, bias):
        super().__init__()
        self.embedding, self.hidden, self.decoder = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=bias)
        self.decoder.weight = self.embedding.weight

    def forward(self, x):
        return self.decoder(torch.tanh(self.hidden(self.embedding(x))))


@pytest.mark.parametrize("bias", [True, False])
def test_a_last_layer_has_the_weights_it_shares(bias):
    names = TangentModel(Tied(bias).eval(), parameters="last_layer").names
    assert names == (("embedding.weight", "decoder.bias") if bias else ("embedding.weight",))
