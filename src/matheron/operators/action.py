"""Products that autograd need not look into."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.operators.base import Operator


class Action(Operator):
    """``A V`` computed by :meth:`act`, of which autograd knows only that it is linear.

    The derivative along ``Ẇ`` is ``A Ẇ`` and the gradient ``Aᵀ U``, both products again: derivatives of any order and
    mode, and ``vmap``, which lays its batch beside the columns, come from :meth:`act` and its transpose alone.
    """

    @abstractmethod
    def act(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """``A V``, out of autograd's sight."""

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """:meth:`act`, differentiable."""
        return LinearAction.apply(self, V)


class LinearAction(torch.autograd.Function):
    """``V ↦ A V``, its own derivative."""

    @staticmethod
    def forward(operator: Action, V: Tensor) -> Tensor:
        """``A V``."""
        return operator.act(V)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Action, Tensor], output: Tensor) -> None:
        """Nothing of ``V`` is kept."""
        ctx.operator = inputs[0]

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, Tensor]:
        """``Aᵀ U``."""
        return None, ctx.operator.T.product(upstream[0])

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        """``A Ẇ``."""
        return ctx.operator.product(tangent)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[None, int], operator: Action, V: Tensor) -> tuple[Tensor, int]:
        """One product with all columns side by side."""
        V = V.movedim(in_dims[1], -1)
        flat = operator.product(V.reshape(len(V), -1))
        return flat.reshape(len(flat), *V.shape[1:]), 2
