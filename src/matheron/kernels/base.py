"""What every covariance function offers."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_float
from matheron.kernels.contraction import Contraction
from matheron.kernels.evaluator import Evaluator
from matheron.kernels.rows import take_columns

if TYPE_CHECKING:
    from matheron.kernels.feature_map import FeatureMap


class Kernel(nn.Module, ABC):
    """``k(x, z)``: a covariance function with learnable hyperparameters, added and multiplied with ``+`` and ``*``.

    A subclass gives :meth:`covariance`; where it can, also a faster :meth:`evaluator` and :meth:`features`.
    ``columns`` restricts the kernel to a subset of the inputs.

    >>> import torch
    >>> from matheron.kernels import RBF, Linear
    >>> k = 2.0 * RBF(lengthscale=0.5, columns=[0]) + Linear(columns=[1])
    >>> k(torch.zeros(3, 2), torch.ones(4, 2)).shape
    torch.Size([3, 4])
    """

    reads_sparse: ClassVar[bool] = False
    """Whether inputs may be ``torch.sparse_csr`` matrices."""

    def __init__(self, columns: Sequence[int] | None = None) -> None:
        super().__init__()
        self.columns = None if columns is None else _whole_numbers(columns)
        if self.columns is not None and len(self.columns) == 0:
            raise ValueError("columns is empty; name at least one input column, or leave it out to use all")

    @abstractmethod
    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """``k(x_i, z_j)`` as a dense, differentiable matrix; the inputs are those of ``columns`` already."""

    @abstractmethod
    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``k(x_i, x_i)`` without the matrix."""

    def forward(self, x: Tensor, z: Tensor | None = None) -> Float[Tensor, "n m"]:
        """``k(x_i, z_j)`` as a dense matrix ``(n, m)``; exactly symmetric when ``z`` is left out."""
        x = self.select(self.check_inputs("x", x))
        if z is not None:
            return self.covariance(x, self.select(self.check_inputs("z", z)))
        upper = self.covariance(x, x).triu()
        return upper + upper.triu(1).mT

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """Fills tiles of ``k(x, z)`` without a graph."""
        return Evaluator(self, x, z)

    def contraction(self, x: Tensor, z: Tensor) -> Contraction:
        """Gathers gradients of weighted sums over tiles of ``k(x, z)``."""
        return Contraction(self, x, z)

    def features(
        self,
        num: int,
        *,
        dimension: int | None = None,
        orthogonal: bool = False,
        generator: torch.Generator | int | None = None,
    ) -> FeatureMap:
        """A random map ``φ`` with ``E φ(x) φ(z)ᵀ = k(x, z)`` that follows this kernel's hyperparameters.

        ``dimension`` is the number of input columns, needed where the hyperparameters do not tell. ``num`` must be even
        for features in pairs of sine and cosine; a kernel with fewer exact features takes only those (``phi.num``).
        ``orthogonal=True`` draws frequencies in orthogonal blocks, for less variance at the same number.

        >>> import torch
        >>> from matheron.kernels import Matern32
        >>> phi = Matern32(lengthscale=[0.5, 2.0]).features(1000, generator=torch.Generator().manual_seed(0))
        >>> phi(torch.zeros(3, 2)).shape
        torch.Size([3, 1000])
        """
        from matheron.kernels.features import features

        return features(self, num, dimension=dimension, orthogonal=orthogonal, generator=generator)

    def coordinates(self, x: Tensor) -> Float[Tensor, "n e"] | None:
        """The inputs in units in which near rows are correlated, for clusters of them; ``None`` if there are none."""
        return None

    def check_inputs(self, name: str, value: Any) -> Tensor:
        """Refuse inputs of the wrong type or shape for this kernel."""
        value = require_float(name, value)
        if value.dtype.itemsize < 4:
            raise TypeError(
                f"{name} has dtype {value.dtype}, too coarse for differences; convert it with {name}.float()"
            )
        if value.ndim != 2:
            raise ValueError(
                f"{name} must have shape (n, d), got {tuple(value.shape)}; one input column is {name}[:, None]"
            )
        if value.layout != torch.strided and not (self.reads_sparse and value.layout == torch.sparse_csr):
            cure = f"{name}.to_sparse_csr()" if self.reads_sparse else f"{name}.to_dense()"
            raise TypeError(
                f"{name} has layout {value.layout}, which {type(self).__name__} cannot read; give it {cure}"
            )
        width = value.shape[1]
        if self.columns is not None:
            if max(self.columns) >= width or min(self.columns) < -width:
                raise ValueError(f"{name} has {width} columns but the kernel reads columns {self.columns}")
            width = len(self.columns)
        wanted = self.dimension()
        if wanted is not None and wanted != width:
            raise ValueError(
                f"{name} has {width} columns to read but the hyperparameters speak of {wanted}; give one value each"
            )
        return value

    def dimension(self) -> int | None:
        """How many inputs the hyperparameters speak of; ``None`` if any number will do."""
        return None

    def select(self, x: Tensor) -> Tensor:
        """The columns this kernel reads."""
        return x if self.columns is None else take_columns(x, self.columns)

    def extra_repr(self) -> str:
        """Hyperparameters in natural units, and the columns where not all are read."""
        own = {name.removeprefix("log_"): value.detach().exp() for name, value in self.named_parameters(recurse=False)}
        shown = [f"{name}={_rounded(value.tolist())}" for name, value in own.items()]
        return ", ".join(shown if self.columns is None else [*shown, f"columns={list(self.columns)}"])

    def __add__(self, other: Kernel) -> Kernel:
        from matheron.kernels.composite import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float | Tensor) -> Kernel:
        from matheron.kernels.composite import Product, Scaled

        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if isinstance(other, (int, float, Tensor)) else NotImplemented

    __rmul__ = __mul__


def _whole_numbers(columns: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, columns))
    except TypeError as error:
        raise TypeError(f"columns must be a sequence of whole numbers such as [0, 2], got {columns!r}") from error


def _rounded(value: float | list[float]) -> str:
    """Four digits; of many values the first six."""
    if isinstance(value, float):
        return f"{value:.4g}"
    more = f", … {len(value)} in all" if len(value) > 6 else ""
    return f"[{', '.join(f'{v:.4g}' for v in value[:6])}{more}]"
