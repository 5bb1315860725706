"""The tangent model on a batch: ``J(x)`` with what it needs besides, the network's outputs and the affine offset."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.networks.inputs import flat
from matheron.networks.jacobian import JacobianOperator
from matheron.networks.tangent import TangentModel
from matheron.operators import Dense, Operator
from matheron.operators.base import Index


class Linearization(JacobianOperator):
    """``h(w, x) = J(x)w + o(x)`` with the offset ``o(x) = g(ṽ, x) − J(x)ṽ``.

    With ``affine=False`` the offset is zero, as it is for fully normalized networks with a dense last layer (thesis
    §5.4.1). Given a ``mode``, ``predicted`` is ``h(mode, x)``. ``J(x)ṽ`` and ``J(x)`` of the mode ride along with the
    first product, at the cost of a tangent each.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Softplus()).eval()
    >>> h = Linearization(TangentModel(model), torch.ones(1, 1), rows=1)
    >>> w = torch.cat([p.detach().flatten() for p in model.parameters()])
    >>> bool(torch.allclose(h @ w + h.offset, model(torch.ones(1, 1)).flatten()))
    True
    """

    def __init__(
        self,
        tangent: TangentModel,
        x: Any,
        *,
        rows: int,
        affine: bool = True,
        mode: Float[Tensor, " d"] | None = None,
    ) -> None:
        super().__init__(tangent, x, rows=rows)
        self.affine, self.mode = affine, mode
        riders = ([tangent.weights] if affine else []) + ([mode] if mode is not None else [])
        self._riders = torch.stack(riders) if riders else None
        self._carried: Tensor | None = None

    @property
    def offset(self) -> Float[Tensor, " m"]:
        """``g(ṽ, x) − J(x)ṽ``."""
        if not self.affine:
            return self.outputs.new_zeros(self.outputs.numel())
        return self.outputs.flatten() - self._carry()[:, 0]

    @property
    def predicted(self) -> Float[Tensor, "b c"]:
        """``h(mode, x)``; the network's outputs where no mode was given."""
        if self.mode is None:
            return flat(self.outputs)
        return (self._carry()[:, -1] + self.offset).reshape(flat(self.outputs).shape)

    def product(self, V: Float[Tensor, "d s"]) -> Float[Tensor, "m s"]:
        """``J V``, all columns at once."""
        if self._riders is None or self._carried is not None:
            return super().product(V)
        columns = super().product(torch.cat([V.mT, self._riders]).mT)
        self._carried = columns[:, V.shape[1] :]
        return columns[:, : V.shape[1]]

    def _carry(self) -> Float[Tensor, "m r"]:
        if self._carried is None:
            self.product(torch.empty(self.shape[1], 0, dtype=self.dtype, device=self.device))
        assert self._carried is not None
        return self._carried


class KeptLinearization(Dense):
    """``J(x)`` in memory, with outputs and offset.

    >>> import torch
    >>> kept = KeptLinearization(torch.eye(4), torch.zeros(2, 2), torch.arange(4.0))
    >>> kept.rows(slice(2, 4)).offset
    tensor([2., 3.])
    """

    def __init__(
        self, matrix: Float[Tensor, "m d"], outputs: Float[Tensor, "b c"], offset: Float[Tensor, " m"]
    ) -> None:
        super().__init__(matrix)
        self.outputs, self.offset = outputs, offset

    def rows(self, index: Index) -> Operator:
        """Of whole data: outputs and offset are picked with the rows."""
        c = self.outputs.shape[1]
        picked = torch.arange(self.shape[0], device=self.device)[index]
        return KeptLinearization(self.matrix[index], self.outputs[picked[::c] // c], self.offset[index])
