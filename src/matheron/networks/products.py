"""Products with the Jacobian ``J = ∂_v g(ṽ, x)``: three ways to push tangents forward, one to pull cotangents back.

``g`` is a function of the parameters by name, ``(batch, *out)`` for one batch; ``point`` are the trained values ``ṽ``,
without gradients; ``W`` holds ``k`` tangents, ``(k, *shape)`` for every name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vmap

from matheron.networks.inputs import map_tensors

Named = dict[str, Tensor]
Function = Callable[[Named], Tensor]
Push = Callable[[Function, Named, Named], tuple[Tensor, Tensor]]
"""``(g, ṽ, W) ↦ (g(ṽ), J W)`` with ``J W`` of shape ``(k, batch, *out)``."""


@contextmanager
def quiet_vmap() -> Iterator[None]:
    """Without PyTorch's remark that an operation has no batching rule: it is computed correctly nevertheless."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


@torch.no_grad()
def forward_mode(g: Function, point: Named, W: Named) -> tuple[Tensor, Tensor]:
    """Forward-mode differentiation of all tangents at once; the network itself runs once."""
    if count(W) == 1:  # without the overhead of vmap
        return forward_mode_in_turn(g, point, W)
    with quiet_vmap():
        # The outputs do not depend on the tangent, so vmap computes them once.
        return vmap(lambda w: value_and_tangent(g, point, w), out_dims=(None, 0))(W)  # type: ignore[arg-type]


@torch.no_grad()
def forward_mode_in_turn(g: Function, point: Named, W: Named) -> tuple[Tensor, Tensor]:
    """Forward mode for one tangent after the other: for networks that look at values, which vmap cannot."""
    pairs = [value_and_tangent(g, point, {name: w[i] for name, w in W.items()}) for i in range(count(W))]
    return pairs[0][0], torch.stack([tangent for _, tangent in pairs])


def value_and_tangent(g: Function, point: Named, w: Named) -> tuple[Tensor, Tensor]:
    """``g(ṽ)`` and ``J w`` of one tangent, ``*shape`` for every name."""
    outputs, tangent = jvp(g, (point,), (w,))[:2]
    return outputs, tangent


def double_vjp(g: Function, point: Named, W: Named) -> tuple[Tensor, Tensor]:
    """``J w = ∂_u (uᵀJ) w``: reverse mode twice, for layers without a forward-mode rule."""
    graph = Pullback(g, point)
    with torch.enable_grad():
        u = torch.zeros_like(graph.outputs, requires_grad=True)
        gradients = torch.autograd.grad(
            graph.outputs, list(graph.leaves.values()), u, create_graph=True, materialize_grads=True
        )
    # A parameter that no output depends on has a gradient that does not depend on u.
    linear = [(name, gradient) for name, gradient in zip(W, gradients, strict=True) if gradient.requires_grad]
    tangents = [
        torch.autograd.grad([gradient for _, gradient in linear], u, [W[name][i] for name, _ in linear], True)[0]
        for i in range(count(W))
    ]
    return graph.outputs.detach(), torch.stack(tangents)


@torch.no_grad()
def finite_differences(g: Function, point: Named, W: Named) -> tuple[Tensor, Tensor]:
    """``(g(ṽ + δw) − g(ṽ − δw)) / 2δ`` with ``δ = √ε (1 + ‖ṽ‖_∞) / ‖w‖_∞``, zero where ``w`` is (thesis §5.5)."""
    largest = max(float(value.abs().max()) for value in point.values())
    step = torch.finfo(next(iter(W.values())).dtype).eps ** 0.5 * (1.0 + largest)
    outputs = g(point)
    tangents = torch.zeros(count(W), *outputs.shape, dtype=outputs.dtype, device=outputs.device)
    for i, tangent in enumerate(tangents):
        size = max(float(w[i].abs().max()) for w in W.values())
        if size > 0.0:
            delta = step / size
            ahead = g({name: value + delta * W[name][i] for name, value in point.items()})
            behind = g({name: value - delta * W[name][i] for name, value in point.items()})
            tangent.copy_((ahead - behind) / (2.0 * delta))
    return outputs, tangents


class Pullback:
    """``U ↦ Jᵀ U``: one forward pass that keeps its graph, then one backward pass for each cotangent."""

    def __init__(self, g: Function, point: Named) -> None:
        with torch.enable_grad():
            self.leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
            self.outputs = g(self.leaves)
        if not self.outputs.requires_grad:
            raise ValueError(
                "the outputs do not depend on any of the chosen parameters as far as autograd can see; does the "
                "model's forward detach them or run under torch.no_grad?"
            )

    def __call__(self, u: Tensor) -> tuple[Tensor, ...]:
        """Of one cotangent ``(batch, *out)``: a gradient for every parameter."""
        return torch.autograd.grad(
            self.outputs, list(self.leaves.values()), u, retain_graph=True, materialize_grads=True
        )

    def batched(self, U: Tensor) -> tuple[Tensor, ...]:
        """Of ``(k, batch, *out)`` in one pass, ``(k, *shape)`` for every parameter: pays where a pass is tiny."""
        with quiet_vmap():
            gradients = torch.autograd.grad(
                self.outputs, list(self.leaves.values()), U, retain_graph=True, is_grads_batched=True, allow_unused=True
            )
        leaves = self.leaves.values()
        return tuple(
            gradient if gradient is not None else leaf.new_zeros(len(U), *leaf.shape)
            for gradient, leaf in zip(gradients, leaves, strict=True)
        )


def each_alone(function: Callable[[Any], Function], point: Named, x: Any) -> Named:
    """``J`` of every datum, ``(batch, *out, *shape)`` for every name.

    Data that do not depend on each other need as many backward passes as a datum has outputs, not as the batch has.
    """

    def alone(datum: Any) -> Named:
        g = function(map_tensors(datum, lambda t: t[None]))
        return jacrev(lambda v: g(v)[0])(point)

    with quiet_vmap():
        return vmap(alone)(x)


def count(W: Named) -> int:
    """``k``."""
    return len(next(iter(W.values())))
