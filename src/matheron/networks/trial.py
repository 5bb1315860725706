"""Which way of pushing tangents a network allows: found on a first, tiny batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matheron.networks.chunks import out_of_memory
from matheron.networks.modes import naming_the_module
from matheron.networks.products import (
    Function,
    Named,
    Pullback,
    Push,
    double_vjp,
    finite_differences,
    forward_mode,
    forward_mode_in_turn,
)

METHODS: dict[str, dict[str, Push]] = {
    "auto": {"forward": forward_mode, "forward in turn": forward_mode_in_turn, "double-vjp": double_vjp},
    "forward": {"forward": forward_mode, "forward in turn": forward_mode_in_turn},
    "double-vjp": {"double-vjp": double_vjp},
    "finite-differences": {"finite-differences": finite_differences},
}
"""What each method tries, in order. Finite differences are less accurate and are never taken unasked."""


@dataclass(frozen=True)
class Way:
    """How tangents are pushed, by name, and whether several cotangents can be pulled in one pass."""

    name: str
    push: Push
    batched: bool


def first_that_works(method: str, model: nn.Module, g: Function, point: Named) -> Way:
    """The first way whose products run and are adjoint to the pullback; an error names the failing module."""
    with naming_the_module(model) as running:
        try:
            pull = Pullback(g, point)
        except Exception as error:
            if out_of_memory(error) or not running:
                raise
            raise RuntimeError(f"{running[-1]} cannot be differentiated: {error}") from error
    generator = torch.Generator(pull.outputs.device).manual_seed(0)
    W = {name: normal(2, *value.shape, like=value, generator=generator) for name, value in point.items()}
    failures = []
    for name, push in METHODS[method].items():
        with naming_the_module(model) as running:
            try:
                outputs, tangents = push(g, point, W)
            except Exception as error:
                if out_of_memory(error):
                    raise
                where = f" in {running[-1]}" if running else ""
                failures.append(f"{name}{where}: {str(error).splitlines()[0]}")
                continue
            if not bool(outputs.isfinite().all()):
                raise ValueError("the model gives NaN or infinite outputs; train it again, or mend the inputs")
        if not alike(outputs, pull.outputs.detach()):
            raise RuntimeError(
                "the model gives other outputs when it is called again with the same inputs; linearizing needs a "
                "function: turn randomness off in evaluation mode"
            )
        if not bool(tangents.isfinite().all()):
            failures.append(f"{name}: its products are NaN or infinite, as that of a square root at zero is")
            continue
        if name == "finite-differences" or adjoint(pull, W, tangents, generator):
            return Way(name, push, batched=pulls_together(pull))
        failures.append(f"{name}: its products are not adjoint to those of reverse mode")
    raise RuntimeError(
        f"no way to push tangents through the model ({'; '.join(failures)}); replace that layer, or use "
        "method='finite-differences', which needs outputs only"
    )


def alike(outputs: Tensor, again: Tensor) -> bool:
    """Whether these are the same outputs up to rounding, by their own size: units of the data may make them tiny.

    >>> alike(torch.tensor([1e-6, 2e-6]), torch.tensor([1e-6, 3e-6]))
    False
    """
    size = again.abs()
    return outputs.shape == again.shape and bool(((outputs - again).abs() <= 1e-2 * size + 1e-3 * size.max()).all())


def adjoint(pull: Pullback, W: Named, tangents: Tensor, generator: torch.Generator) -> bool:
    """``⟨u, J w⟩ = ⟨Jᵀu, w⟩`` up to rounding: a layer's two derivative rules may disagree."""
    u = normal(*tangents.shape[1:], like=tangents, generator=generator)
    pushed = float((u * tangents[0]).sum())
    pulled = sum(float((gradient * w[0]).sum()) for gradient, w in zip(pull(u), W.values(), strict=True))
    size = max(float(u.norm() * tangents[0].norm()), abs(pulled))
    return abs(pushed - pulled) <= 10.0 * torch.finfo(tangents.dtype).eps ** 0.5 * size


def pulls_together(pull: Pullback) -> bool:
    """Whether every layer's backward pass has a batching rule."""
    try:
        pull.batched(torch.ones_like(pull.outputs).expand(2, *pull.outputs.shape))
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        return False
    return True


def normal(*shape: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the dtype and device of ``like``."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
