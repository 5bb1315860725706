"""``Φ = J(x)`` of a batch, with what the tangent model needs besides: the network's outputs and its affine offset."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.networks.tangent import TangentModel
from matheron.operators import Dense, Operator
from matheron.operators.base import Index


@runtime_checkable
class Linearization(Protocol):
    """``h(w, x) = g(ṽ, x) + J(x)(w − ṽ)`` as an operator, ``J(x)``, and an offset, ``g(ṽ, x) − J(x)ṽ``."""

    @property
    def outputs(self) -> Float[Tensor, "b c"]:
        """``g(ṽ, x)``."""

    @property
    def offset(self) -> Float[Tensor, " m"]:
        """``g(ṽ, x) − J(x)ṽ``."""


class Jacobian(Operator):
    """``J(x)`` by products. Outputs and ``J(x)ṽ`` ride along with the first product, so that they cost no pass of their own.

    With ``affine=False`` the offset is zero, as it is for fully normalized networks with a dense last layer.
    """

    def __init__(self, tangent: TangentModel, x: Any, rows: int, *, affine: bool = True) -> None:
        self.tangent, self.x, self.affine = tangent, x, affine
        self._outputs: Tensor | None = None
        self._offset: Tensor | None = None
        super().__init__((rows, tangent.num_weights), tangent.dtype, tangent.device)

    @property
    def outputs(self) -> Float[Tensor, "b c"]:
        """``g(ṽ, x)``."""
        if self._outputs is None:
            self._outputs = self.tangent.predict(self.x).flatten(1)
        return self._outputs

    @property
    def offset(self) -> Float[Tensor, " m"]:
        """``g(ṽ, x) − J(x)ṽ``."""
        if not self.affine:
            return self.outputs.new_zeros(self.outputs.numel())
        if self._offset is None:
            self.product(torch.empty(self.shape[1], 0, dtype=self.dtype, device=self.device))
        assert self._offset is not None
        return self._offset

    def product(self, V: Float[Tensor, "d s"]) -> Float[Tensor, "m s"]:
        """``J V``, all columns at once."""
        rides = self.affine and self._offset is None
        tangents = torch.cat([V.mT, self.tangent.weights[None]]) if rides else V.mT
        outputs, pushed = self.tangent.value_and_jvp(self.x, tangents)
        self._outputs = outputs.flatten(1)
        columns = pushed.flatten(1).mT
        if not rides:
            return columns
        self._offset = self._outputs.flatten() - columns[:, -1]
        return columns[:, :-1]

    def transpose(self) -> Operator:
        """``Jᵀ``."""
        return _Pullback(self)

    def dense(self) -> Float[Tensor, "m d"]:
        """By the smaller side."""
        m, d = self.shape
        if d < m:
            return super().dense()
        return self.T.product(torch.eye(m, dtype=self.dtype, device=self.device)).mT


class _Pullback(Operator):
    """``Jᵀ``."""

    def __init__(self, jacobian: Jacobian) -> None:
        self.jacobian = jacobian
        super().__init__((jacobian.shape[1], jacobian.shape[0]), jacobian.dtype, jacobian.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "d s"]:
        """``Jᵀ V``, all columns at once."""
        return self.jacobian.tangent.vjp(self.jacobian.x, V.mT).mT

    def transpose(self) -> Operator:
        """``J``."""
        return self.jacobian


class KeptJacobian(Dense):
    """``J(x)`` in memory, with outputs and offset."""

    def __init__(
        self, matrix: Float[Tensor, "m d"], outputs: Float[Tensor, "b c"], offset: Float[Tensor, " m"]
    ) -> None:
        super().__init__(matrix)
        self.outputs, self.offset = outputs, offset

    def rows(self, index: Index) -> Operator:
        """Whole data only: outputs and offset are picked with the rows."""
        c = self.outputs.shape[1]
        picked = torch.arange(self.shape[0], device=self.device)[index]
        return KeptJacobian(self.matrix[index], self.outputs[picked[::c] // c], self.offset[index])
