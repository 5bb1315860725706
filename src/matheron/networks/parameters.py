"""Which parameters of a network are uncertain, and how they line up in one vector of weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from matheron.arguments import require_finite, require_float, require_same

Choice = str | Callable[..., bool] | None
"""A preset, a predicate on ``(name, parameter)`` or on ``name`` alone, or all parameters."""

PRESETS = ("all", "last_layer", "no_biases", "no_normalization", "matrices")


class Weights:
    """``w ∈ R^d``: the chosen parameters one after the other, in the order of ``named_parameters``.

    Parameters that do not require a gradient are never chosen; a tensor shared by several modules counts once.

    >>> from torch import nn
    >>> weights = Weights(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), "no_biases")
    >>> weights.names, weights.size
    (('0.weight', '1.weight'), 8)
    """

    def __init__(self, model: nn.Module, choice: Choice = None) -> None:
        self.parameters = select(model, choice)
        self.names = tuple(self.parameters)
        self.shapes = tuple(p.shape for p in self.parameters.values())
        first_name, first = next(iter(self.parameters.items()))
        for name, parameter in self.parameters.items():
            require_finite(f"parameter {name}", require_float(f"parameter {name}", parameter.detach()))
            if parameter.dtype.itemsize < 4:
                raise TypeError(
                    f"parameter {name} is {parameter.dtype}, too coarse for sums of squares over all weights; "
                    "linearize model.float()"
                )
            require_same(f"parameter {name}", parameter, f"parameter {first_name}", first)
        self.dtype, self.device = first.dtype, first.device
        sizes = [shape.numel() for shape in self.shapes]
        self.size = sum(sizes)
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.parts = tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))

    def values(self) -> Float[Tensor, " d"]:
        """A copy of the trained values ``ṽ``."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters.values()])

    def groups(self) -> Int[Tensor, " d"]:
        """The place in ``names`` of the parameter each weight belongs to."""
        sizes = torch.tensor([shape.numel() for shape in self.shapes])
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(self.device)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, "k d"]:
        """``(k, *shape)`` for every name to ``(k, d)``."""
        self._require_names(tensors)
        return torch.cat([tensors[name].reshape(len(tensors[name]), -1) for name in self.names], dim=1)

    def unflatten(self, flat: Float[Tensor, "k d"]) -> dict[str, Tensor]:
        """``(k, d)`` to ``(k, *shape)`` for every name: views, nothing is copied."""
        return {
            name: flat[:, part].unflatten(1, shape) if len(shape) else flat[:, part.start]
            for name, shape, part in zip(self.names, self.shapes, self.parts, strict=True)
        }

    def stack(self, W: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``W``, flat or by name, as ``(k, *shape)`` for every name, checked."""
        if isinstance(W, Mapping):
            self._require_names(W)
            tangents = {name: require_float(f"W[{name!r}]", W[name]) for name in self.names}
            count = len(tangents[self.names[0]]) if tangents[self.names[0]].ndim else 0
            for name, shape in zip(self.names, self.shapes, strict=True):
                if tangents[name].shape != (count, *shape):
                    raise ValueError(
                        f"W[{name!r}] has shape {tuple(tangents[name].shape)}, expected {(count, *shape)}; "
                        "stack the tangents of every parameter along a first dimension of one length"
                    )
                require_same(f"W[{name!r}]", tangents[name], "the model", self)
            return {name: tangent.detach() for name, tangent in tangents.items()}
        W = require_float("W", W)
        if W.ndim != 2 or W.shape[1] != self.size:
            raise ValueError(
                f"W has shape {tuple(W.shape)}, expected (k, {self.size}): one tangent per row, flat in the order of "
                "`names`; a single tangent is W[None]"
            )
        require_same("W", W, "the model", self)
        return self.unflatten(W.detach())

    def _require_names(self, tensors: Mapping[str, Tensor]) -> None:
        if set(tensors) != set(self.names):
            missing, unknown = sorted(set(self.names) - set(tensors)), sorted(set(tensors) - set(self.names))
            raise ValueError(
                f"the tensors by name lack {missing} and have {unknown} besides; give one for each of `names`"
            )


def select(model: nn.Module, choice: Choice = None) -> dict[str, nn.Parameter]:
    """The chosen parameters by name.

    ``"all"``: every one that requires a gradient. ``"last_layer"``: those of the last module, in order of
    registration, that has any, a tensor it shares with another module too. ``"no_biases"``: all but those called bias.
    ``"no_normalization"``: all but those of modules whose class is called a norm. ``"matrices"``: those of two
    dimensions or more, which weight decay is often confined to: neither biases nor scales of norms.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in trained.items():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ValueError(f"parameter {name} has no shape yet; run the model once before linearizing it")
    if not trained:
        raise ValueError("model has no parameter that requires a gradient; set requires_grad on those to linearize in")
    predicate = as_predicate(model, choice)
    chosen = {name: parameter for name, parameter in trained.items() if predicate(name, parameter)}
    if not chosen:
        called = choice if isinstance(choice, str) else getattr(choice, "__name__", repr(choice))
        raise ValueError(
            f"parameters={called} leaves none of the {len(trained)} parameters ({', '.join(list(trained)[:3])}, …); "
            "choose at least one"
        )
    return chosen


def as_predicate(model: nn.Module, choice: Choice) -> Callable[[str, nn.Parameter], bool]:
    """``choice`` as a function of name and parameter."""
    if choice is None or choice == "all":
        return lambda name, parameter: True
    if choice == "last_layer":
        last = {id(p) for p in last_layer_parameters(model)}
        return lambda name, parameter: id(parameter) in last
    if choice == "no_biases":
        return lambda name, parameter: "bias" not in name.rpartition(".")[2]
    if choice == "no_normalization":
        norms = {id(p) for p in normalization_parameters(model)}
        return lambda name, parameter: id(parameter) not in norms
    if choice == "matrices":
        return lambda name, parameter: parameter.ndim >= 2
    if isinstance(choice, str) or not callable(choice):
        raise ValueError(f"parameters must be one of {', '.join(PRESETS)} or a predicate on names, got {choice!r}")
    predicate = choice
    return predicate if takes_two(predicate) else lambda name, parameter: predicate(name)


def last_layer_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Those of the last module that has any which require a gradient, shared ones too, whatever they are called."""
    held = ([p for p in module.parameters(recurse=False) if p.requires_grad] for module in model.modules())
    return [parameters for parameters in held if parameters][-1]


def normalization_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters held by modules that normalize: batch, layer, group, instance, RMS norms and their like."""
    for module in model.modules():
        if "Norm" in type(module).__name__:
            yield from module.parameters(recurse=False)


def takes_two(predicate: Callable[..., bool]) -> bool:
    """Whether a predicate wants the parameter besides its name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        arguments = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(a.kind in kinds and a.default is inspect.Parameter.empty for a in arguments) >= 2
