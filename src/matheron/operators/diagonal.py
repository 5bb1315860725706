"""A diagonal matrix."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float
from matheron.operators.base import Index, Operator


class Diagonal(Operator):
    """``diag(v) V``. A single number takes its size, dtype and device from the operator it is added to.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> (Dense(torch.ones(2, 2)) + Diagonal(0.5)) @ torch.ones(2)
    tensor([2.5000, 2.5000])
    """

    def __init__(self, values: float | Tensor, size: int | None = None) -> None:
        if isinstance(values, Tensor):
            values = require_float("values", values)
        else:
            # In float64 until the dtype is known: a number must not pass through float32 on its way there.
            values = torch.tensor(float(values), dtype=torch.float64 if size is None else None)
        require_finite("values", values.detach())
        if values.ndim > 1:
            raise ValueError(f"values must be a number or have shape (n,), got {tuple(values.shape)}")
        if values.ndim == 1 and size not in (None, len(values)):
            raise ValueError(f"values has {len(values)} entries but size is {size}; leave size out")
        self.values = values if size is None or values.ndim == 1 else values.expand(size)
        super().__init__((len(self.values),) * 2 if self.sized else (0, 0), values.dtype, values.device)

    @property
    def sized(self) -> bool:
        """Whether the size is known already."""
        return self.values.ndim == 1

    @property
    def shape(self) -> tuple[int, int]:
        """Known once there is one value per row."""
        if not self.sized:
            raise ValueError("a Diagonal of a single number has no shape of its own; give size=, or add it to another")
        return super().shape

    def fit_to(self, other: Operator) -> Diagonal:
        """The same diagonal with the size, dtype and device of ``other``, where it is a single number."""
        if self.sized:
            return self
        return Diagonal(self.values.to(dtype=other.dtype, device=other.device), size=other.shape[0])

    def product(self, V: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
        """Scales rows."""
        return self.values[:, None] * V

    def transpose(self) -> Operator:
        """Itself."""
        return self

    def diagonal(self) -> Float[Tensor, " n"]:
        """The values."""
        return self.values

    def rows(self, index: Index) -> Operator:
        """Rows picked, then scaled."""
        from matheron.operators.selection import Selection

        return Diagonal(self.values[index]) @ Selection(index, self.shape[0], dtype=self.dtype, device=self.device)

    def block(self, index: Index) -> Float[Tensor, "b b"]:
        """Diagonal where the index repeats nothing; repeated rows meet each other."""
        picked = torch.arange(len(self.values), device=self.device)[index]
        return torch.where(picked[:, None] == picked, self.values[index][:, None], 0.0)

    def permuted(self, order: Tensor) -> Operator:
        """The values, reordered."""
        return Diagonal(self.values[order])

    def __mul__(self, factor: float | Tensor) -> Operator:
        # Still diagonal, and a single number still takes its size from what it is added to.
        single = isinstance(factor, (int, float)) or (isinstance(factor, Tensor) and factor.ndim == 0)
        return Diagonal(factor * self.values) if single else super().__mul__(factor)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Diagonal{self.shape if self.sized else ''}"
