"""Kernels made of kernels: ``k₁ + k₂``, ``k₁ k₂`` and ``s k``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels.base import Kernel
from matheron.kernels.contraction import Contraction
from matheron.kernels.evaluator import Evaluator, Scratch
from matheron.kernels.positive import Positive


class Composite(Kernel):
    """Several kernels of the same inputs, combined entry by entry; nested ones of one kind are joined into one."""

    reads_sparse = True

    def __init__(self, *parts: Kernel) -> None:
        super().__init__()
        if len(parts) == 0:
            raise ValueError(f"{type(self).__name__} has no parts; give it at least one kernel")
        for part in parts:
            if not isinstance(part, Kernel):
                raise TypeError(f"parts of a {type(self).__name__} must be kernels, got {type(part).__name__}")
        self.parts: nn.ModuleList = nn.ModuleList(
            inner for part in parts for inner in (part.parts if type(part) is type(self) else [part])
        )

    def __iter__(self) -> Iterator[Kernel]:
        for part in self.parts:
            assert isinstance(part, Kernel)
            yield part

    @abstractmethod
    def combine_(self, out: Tensor, other: Tensor) -> Tensor:
        """Combine in place."""

    def check_inputs(self, name: str, value: Any) -> Tensor:
        """Refuse what any part refuses."""
        for part in self:
            value = part.check_inputs(name, value)
        return value

    def coordinates(self, x: Tensor) -> Float[Tensor, "n e"] | None:
        """Those of the parts, side by side."""
        found = [part.coordinates(x) for part in self]
        known = [points for points in found if points is not None]
        return torch.cat(known, dim=1) if known else None

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """The parts' evaluators on one buffer."""
        return CompositeEvaluator(self, [part.evaluator(x, z) for part in self], Scratch(x.dtype, x.device))


class CompositeEvaluator(Evaluator):
    """Fills a tile with the first part and combines the others into it."""

    def __init__(self, kernel: Composite, parts: list[Evaluator], spare: Scratch) -> None:
        self.composite, self.parts, self.spare = kernel, parts, spare

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``."""
        return CompositeEvaluator(self.composite, [part.gather(index) for part in self.parts], self.spare)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Part after part."""
        first, *others = self.parts
        first.fill(rows, columns, out)
        for part in others:
            spare = self.spare.like(out)
            part.fill(rows, columns, spare)
            self.composite.combine_(out, spare)


class Sum(Composite):
    """``k₁(x, z) + k₂(x, z) + …``: a sum of independent functions.

    >>> import torch
    >>> from matheron.kernels import RBF, Linear
    >>> k = RBF(variance=2.0) + Linear(variance=3.0)
    >>> k(torch.ones(1, 1)).item()
    5.0
    """

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """The sum of the parts."""
        first, *others = self
        return sum((part(x, z) for part in others), first(x, z))

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """The sum of the parts' diagonals."""
        first, *others = self
        return sum((part.diagonal(x) for part in others), first.diagonal(x))

    def combine_(self, out: Tensor, other: Tensor) -> Tensor:
        """``out + other``."""
        return out.add_(other)

    def contraction(self, x: Tensor, z: Tensor) -> Contraction:
        """Every part sees the same weights."""
        return SumContraction(self, x, z)


class SumContraction(Contraction):
    """The parts' contractions, side by side."""

    def __init__(self, kernel: Sum, x: Tensor, z: Tensor) -> None:
        self.kernels = list(kernel)
        self.parts = [part.contraction(x, z) for part in kernel]

    def add(self, rows: slice, columns: slice, weight: Float[Tensor, "r c"]) -> float:
        """A copy of the weights for each."""
        return sum(part.add(rows, columns, weight.clone()) for part in self.parts)

    def gradients(self) -> list[Tensor]:
        """Part after part; of a parameter that several parts share, the sum where it comes first."""
        found: dict[int, Tensor] = {}
        for kernel, part in zip(self.kernels, self.parts, strict=True):
            for parameter, gradient in zip(kernel.parameters(), part.gradients(), strict=True):
                found[id(parameter)] = found[id(parameter)] + gradient if id(parameter) in found else gradient
        return list(found.values())


class Product(Composite):
    """``k₁(x, z) k₂(x, z) …``: near only if near in the sense of every part.

    >>> import torch
    >>> from matheron.kernels import RBF, Periodic
    >>> k = RBF(lengthscale=10.0) * Periodic(period=1.0)  # a period that drifts slowly
    >>> k(torch.zeros(1, 1), torch.full((1, 1), 10.0)).item()  # exp(−½)
    0.606530...
    """

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """The product of the parts."""
        value = torch.ones((), dtype=x.dtype, device=x.device)
        for part in self:
            value = value * part(x, z)
        return value

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """The product of the parts' diagonals."""
        value = torch.ones((), dtype=x.dtype, device=x.device)
        for part in self:
            value = value * part.diagonal(x)
        return value

    def combine_(self, out: Tensor, other: Tensor) -> Tensor:
        """``out · other``."""
        return out.mul_(other)


class Scaled(Kernel):
    """``s k(x, z)`` with a learnable ``scale`` ``s > 0``.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> k = 2.0 * (RBF(lengthscale=0.1) + RBF(lengthscale=10.0))
    >>> k(torch.zeros(1, 1)).item()
    4.0
    >>> k.scale.item()
    2.0
    """

    reads_sparse = True
    scale = Positive()

    def __init__(self, part: Kernel, scale: float | Tensor = 1.0) -> None:
        super().__init__()
        if not isinstance(part, Kernel):
            raise TypeError(f"part must be a kernel, got {type(part).__name__}")
        self.part = part
        self.scale = scale

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """``s k(x, z)``."""
        return self.scale.to(x.dtype) * self.part(x, z)

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``s k(x, x)``."""
        return self.scale.to(x.dtype) * self.part.diagonal(x)

    def check_inputs(self, name: str, value: Any) -> Tensor:
        """Refuse what the part refuses."""
        return self.part.check_inputs(name, value)

    def coordinates(self, x: Tensor) -> Float[Tensor, "n e"] | None:
        """The part's."""
        return self.part.coordinates(x)

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """The part's evaluator, and one multiplication in place."""
        with torch.no_grad():
            return ScaledEvaluator(self.part.evaluator(x, z), self.scale.item())

    def contraction(self, x: Tensor, z: Tensor) -> Contraction:
        """The part's, of weights times ``s``."""
        return ScaledContraction(self, x, z)


class ScaledContraction(Contraction):
    """``∂/∂log s Σ W s k`` is the sum itself."""

    def __init__(self, kernel: Scaled, x: Tensor, z: Tensor) -> None:
        self.scale, self.total = kernel.scale.item(), torch.zeros_like(kernel.scale)
        self.part = kernel.part.contraction(x, z)

    def add(self, rows: slice, columns: slice, weight: Float[Tensor, "r c"]) -> float:
        """One tile."""
        value = self.part.add(rows, columns, weight.mul_(self.scale))
        self.total += value
        return value

    def gradients(self) -> list[Tensor]:
        """The order of parameters: a module's own come before its children's."""
        return [self.total, *self.part.gradients()]


class ScaledEvaluator(Evaluator):
    """A tile of the part times ``s``."""

    def __init__(self, part: Evaluator, scale: float) -> None:
        self.part, self.scale = part, scale

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``."""
        return ScaledEvaluator(self.part.gather(index), self.scale)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """``s k``."""
        self.part.fill(rows, columns, out)
        out.mul_(self.scale)
