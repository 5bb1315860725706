"""The features of a tangent model on one batch, as an operator."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float, require_same
from matheron.networks.tangent import TangentModel
from matheron.operators.base import Operator


class JacobianOperator(Operator):
    """``Φ diag(s)`` with ``Φ = ∂_v g(ṽ, x)`` of shape ``(b c, d)``: rows datum by datum, the outputs of one together.

    ``Φ V`` is one forward-mode pass over all columns and ``Φᵀ U`` one backward pass for each; columns that are the
    transpose of contiguous rows are not copied. ``scale (d,)`` is absorbed. Where the number of ``rows`` is known, the
    network's outputs are not computed before they are needed.

    >>> import torch
    >>> from torch import nn
    >>> tangent = TangentModel(nn.Linear(2, 1).eval())
    >>> Phi = JacobianOperator(tangent, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> Phi.dense()
    tensor([[1., 2., 1.],
            [3., 4., 1.]])
    """

    def __init__(
        self, tangent: TangentModel, x: Any, *, scale: Float[Tensor, " d"] | None = None, rows: int | None = None
    ) -> None:
        if scale is not None:
            scale = require_finite("scale", require_float("scale", scale)).detach()
            if scale.shape != (tangent.num_weights,):
                raise ValueError(f"scale has shape {tuple(scale.shape)}, expected ({tangent.num_weights},)")
            require_same("scale", scale, "the model", tangent)
        self.tangent, self.x, self.scale = tangent, x, scale
        self._outputs: Tensor | None = None
        rows = self.outputs.numel() if rows is None else rows
        super().__init__((rows, tangent.num_weights), tangent.dtype, tangent.device)

    @property
    def outputs(self) -> Float[Tensor, "b *out"]:
        """``g(ṽ, x)``, computed once: by a product, or by a pass of its own."""
        if self._outputs is None:
            self._outputs = self.tangent.predict(self.x)
        return self._outputs

    def product(self, V: Float[Tensor, "d s"]) -> Float[Tensor, "n s"]:
        """``Φ (s ⊙ V)``."""
        V = V if self.scale is None else self.scale[:, None] * V
        self._outputs, pushed = self.tangent.value_and_jvp(self.x, V.mT)
        return pushed.flatten(1).mT

    def transpose(self) -> Operator:
        """``diag(s) Φᵀ``."""
        return JacobianTranspose(self)

    def dense(self) -> Float[Tensor, "n d"]:
        """By passes over each datum alone, where data are separate."""
        J = self.tangent.jacobian(self.x)
        return J if self.scale is None else J * self.scale


class JacobianTranspose(Operator):
    """``diag(s) Φᵀ``.

    >>> import torch
    >>> from torch import nn
    >>> Phi = JacobianOperator(TangentModel(nn.Linear(2, 1).eval()), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> Phi.T @ torch.tensor([1.0, -1.0])
    tensor([-2., -2.,  0.])
    """

    def __init__(self, jacobian: JacobianOperator) -> None:
        self.jacobian = jacobian
        super().__init__(jacobian.shape[::-1], jacobian.dtype, jacobian.device)

    def product(self, U: Float[Tensor, "n s"]) -> Float[Tensor, "d s"]:
        """``s ⊙ Φᵀ U``."""
        shape = self.jacobian.outputs.shape
        pulled = self.jacobian.tangent.vjp(self.jacobian.x, U.mT.reshape(-1, *shape))
        scale = self.jacobian.scale
        return (pulled if scale is None else torch.mul(pulled, scale)).mT

    def transpose(self) -> Operator:
        """``Φ diag(s)``."""
        return self.jacobian
