"""Weights whose scale a normalization layer cancels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

BatchNorm = nn.modules.batchnorm._NormBase

COSINE = 3e-3
"""Between weights and gradient, below which the loss does not see their scale: normalization divides by a variance to
which a small constant is added, so that it is not quite zero."""


def normalized_groups(
    model: nn.Module, names: Sequence[str], loss: Callable[[], Float[Tensor, ""]]
) -> list[tuple[str, ...]]:
    """Modules with ``⟨v, ∂ℓ/∂v⟩ = 0`` for all of their parameters ``v``: a common scale of them changes nothing.

    ``loss`` is taken with statistics of its own batch, as in training; nothing of the model is changed. Modules are
    those that hold a parameter of ``names``; what scales together are all parameters of a module.

    >>> import torch
    >>> from torch import nn
    >>> with torch.random.fork_rng():
    ...     _ = torch.manual_seed(0)
    ...     model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    ...     x, y = torch.randn(20, 3), torch.randint(2, (20,))
    >>> names = [name for name, _ in model.named_parameters()]
    >>> normalized_groups(model, names, lambda: nn.functional.cross_entropy(model(x), y))
    [('0.weight', '0.bias')]
    """
    holders = {name.rpartition(".")[0] for name in names}
    named = {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.rpartition(".")[0] in holders and parameter.requires_grad
    }
    with torch.enable_grad(), statistics_of_the_batch(model):
        slopes = torch.autograd.grad(loss(), list(named.values()), allow_unused=True)
    groups: dict[str, list[str]] = {}
    for name in named:
        groups.setdefault(name.rpartition(".")[0], []).append(name)
    by_name = dict(zip(named, slopes, strict=True))
    found = []
    for members in groups.values():
        pairs = [(named[name].detach(), by_name[name]) for name in members]
        inner = sum(float((v * slope).sum()) for v, slope in pairs if slope is not None)
        sizes = [sum(float(t.square().sum()) for t in part if t is not None) for part in zip(*pairs, strict=True)]
        if min(sizes) > 0.0 and abs(inner) <= COSINE * (sizes[0] * sizes[1]) ** 0.5:
            found.append(tuple(members))
    return found


@contextmanager
def statistics_of_the_batch(model: nn.Module) -> Iterator[None]:
    """Normalization layers as in training, all else in evaluation; modes and running statistics put back."""
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        for module in modes:
            module.training = isinstance(module, BatchNorm)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
