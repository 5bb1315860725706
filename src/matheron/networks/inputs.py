"""Batches as networks take them: a tensor, or mappings, lists and tuples of tensors, data along dimension 0."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Forward = Callable[[nn.Module, Any], Any]


class Network(nn.Module):
    """``x ↦ g(ṽ, x)``: one call and one tensor out, whatever a model takes and returns.

    A mapping is handed over as keywords and a list or tuple as arguments where ``forward`` has room for them, else
    whole. Outputs are a tensor, or whatever has one called ``logits``. The model is held, not copied.

    >>> Network(nn.Bilinear(2, 3, 1))((torch.ones(4, 2), torch.ones(4, 3))).shape
    torch.Size([4, 1])
    """

    def __init__(self, model: nn.Module, forward: Forward | None = None) -> None:
        super().__init__()
        self.model = model
        self.by = forward

    def forward(self, x: Any) -> Tensor:
        """``(batch, *out)``."""
        return single_output(self.by(self.model, x) if self.by is not None else call(self.model, x))


def call(model: nn.Module, x: Any) -> Any:
    """``model(**x)``, ``model(*x)`` or ``model(x)``."""
    if isinstance(x, Mapping):
        return model(**x) if binds(model.forward, **x) else model(x)
    if isinstance(x, (list, tuple)):
        return model(*x) if binds(model.forward, *x) else model(x)
    return model(x)


def binds(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether a function can be called so; one without a signature, as of a traced module, is taken to be."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def hint(network: Network, x: Any, dtype: torch.dtype) -> str | None:
    """What about a batch may be why the network could not be run on it.

    >>> hint(Network(nn.Linear(2, 1)), torch.ones(3, 2).double(), torch.float32)
    'x is torch.float64 but the model is torch.float32; convert one, for example x.to(torch.float32)'
    """
    other = next((t.dtype for t in tensors(x) if t.is_floating_point() and t.dtype != dtype), None)
    if other is not None:
        return f"x is {other} but the model is {dtype}; convert one, for example x.to({dtype})"
    if network.by is None and isinstance(x, Mapping) and not binds(network.model.forward, **x):
        signature = inspect.signature(network.model.forward)
        return (
            f"x has the keys {list(x)}, which forward{signature} does not take as keywords, and so it was handed over "
            "whole; leave out what the model has no use for, or give forward=, a function of (model, x)"
        )
    return None


def single_output(outputs: Any) -> Tensor:
    """The tensor among what a network returned."""
    if not isinstance(outputs, Tensor):
        named = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
        if not isinstance(named, Tensor):
            raise TypeError(
                f"the model returned a {type(outputs).__name__}, neither a tensor nor something with logits; "
                "give forward=, a function of (model, x) that returns a tensor (batch, …)"
            )
        outputs = named
    if outputs.ndim == 0 or not outputs.dtype.is_floating_point:
        raise ValueError(
            f"the model returned shape {tuple(outputs.shape)} in {outputs.dtype}; outputs must be floating point with "
            "the batch along dimension 0: give forward=, a function of (model, x), where they are not"
        )
    return outputs


def tensors(x: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, in order."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, Mapping):
        for item in x.values():
            yield from tensors(item)
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from tensors(item)


def batch_size(x: Any) -> int:
    """Data in a batch: the first dimension of its first tensor."""
    first = next(tensors(x), None)
    if first is None or first.ndim == 0:
        raise TypeError(
            f"x is a {type(x).__name__} without a tensor that has a batch dimension; give a tensor, or a mapping, list "
            "or tuple of tensors"
        )
    if len(first) == 0:
        raise ValueError("x has no rows; give it at least one")
    return len(first)


def map_tensors(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """The same batch, of the same type, with ``f`` of its tensors."""
    if isinstance(x, Tensor):
        return f(x)
    if isinstance(x, MutableMapping):
        mapped = copy.copy(x)
        for key, item in x.items():
            mapped[key] = map_tensors(item, f)
        return mapped
    if isinstance(x, Mapping):
        return {key: map_tensors(item, f) for key, item in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(map_tensors(item, f) for item in x))
    if isinstance(x, (list, tuple)):
        return type(x)(map_tensors(item, f) for item in x)
    return x


def ordinary(x: Any) -> Any:
    """The same batch with copies of the tensors that inference mode has made, which have no derivatives."""
    return map_tensors(x, lambda t: t.clone() if t.is_inference() else t)


def moved(x: Any, device: torch.device) -> Any:
    """The same batch where the model is."""
    return map_tensors(x, lambda t: t.to(device))


def flat(outputs: Float[Tensor, "b *out"]) -> Float[Tensor, "b c"]:
    """Outputs ``(batch, …)`` as ``(batch, c)``: those of shape ``(batch,)`` are a column.

    >>> flat(torch.ones(4)).shape, flat(torch.ones(4, 2, 3)).shape
    (torch.Size([4, 1]), torch.Size([4, 6]))
    """
    return outputs.reshape(len(outputs), -1)


def rows(x: Any, index: slice | Tensor) -> Any:
    """Some data of a batch; tensors of another length are shared by all data and stay whole."""
    size = batch_size(x)
    return map_tensors(x, lambda t: t[index] if t.ndim and len(t) == size else t)


def shares(x: Any) -> bool:
    """Whether some tensor of a batch is shared by all data, having no row for each.

    >>> shares({"x": torch.ones(4, 2), "mask": torch.ones(3)}), shares([torch.ones(4, 2), torch.ones(4)])
    (True, False)
    """
    size = batch_size(x)
    return any(t.ndim == 0 or len(t) != size for t in tensors(x))


def layout(x: Any) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    """What the cost per datum depends on: shapes without the batch dimension."""
    return tuple((t.shape[1:], t.dtype) for t in tensors(x))
