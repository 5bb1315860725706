"""Curvature of a likelihood: a block-diagonal ``B``, one block per datum, possibly singular and never inverted."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float, require_positive
from matheron.operators import Diagonal, Operator
from matheron.operators.base import Index
from matheron.seeds import normals


class Curvature(Operator):
    """``B = LLᵀ`` with one ``c × c`` block per datum; row ``i c + k`` is output ``k`` of datum ``i``.

    A subclass gives :meth:`product`, :attr:`root`, :meth:`root_solve` and :meth:`take`.

    >>> import torch
    >>> B = CategoricalCurvature(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    >>> bool(torch.allclose(B.root.dense() @ B.root.dense().mT, B.dense()))
    True
    >>> B.draw(3, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    def __init__(self, num_data: int, outputs: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__((num_data * outputs,) * 2, dtype, device)
        self.num_data, self.outputs = num_data, outputs

    @property
    @abstractmethod
    def root(self) -> Operator:
        """``L`` with ``LLᵀ = B``."""

    @abstractmethod
    def root_solve(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """``R`` with ``L R = V`` where ``B`` has curvature to speak of; what is left, ``V − L R``, has none."""

    @abstractmethod
    def take(self, index: Index) -> Curvature:
        """Of some of the data, each block whole."""

    def transpose(self) -> Operator:
        """Itself."""
        return self

    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "m num"]:
        """``Bε ~ N(0, B)``, one draw per column: ``L u``, unless a likelihood has a way of its own."""
        return self.root @ self.normals(num, generator).mT

    def normals(self, num: int, generator: torch.Generator) -> Float[Tensor, "num m"]:
        """``u ~ N(0, I)``, one draw per row."""
        return normals((require_count("num", num), self.shape[0]), self, generator)


class _DiagonalCurvature(Curvature):
    def __init__(self, values: Float[Tensor, " m"], outputs: int) -> None:
        if len(values) % require_count("outputs", outputs):
            raise ValueError(f"{len(values)} rows are not whole data of {outputs} outputs; give outputs= a divisor")
        self.values = values
        super().__init__(len(values) // outputs, outputs, values.dtype, values.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """Scales rows."""
        return self.values[:, None] * V

    def diagonal(self) -> Float[Tensor, " m"]:
        """The values."""
        return self.values

    @property
    def root(self) -> Operator:
        """``diag(√B)``."""
        return Diagonal(self.values.sqrt())

    def root_solve(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """Divides by ``√B`` where it is not zero to rounding."""
        return V * _inverse(self.values.sqrt())[:, None]

    def take(self, index: Index) -> Curvature:
        """The values of some data."""
        taken = object.__new__(type(self))
        _DiagonalCurvature.__init__(taken, self.values.reshape(-1, self.outputs)[index].flatten(), self.outputs)
        return taken


class GaussianCurvature(_DiagonalCurvature):
    """``B = diag(b)``, the precision ``1/σ²`` of Gaussian noise: a number with ``size=``, or one value per row.

    >>> GaussianCurvature(4.0, size=2).diagonal()
    tensor([4., 4.])
    """

    def __init__(
        self,
        precision: float | Float[Tensor, ""] | Float[Tensor, " m"],
        size: int | None = None,
        *,
        outputs: int = 1,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        like = precision if isinstance(precision, Tensor) else torch.empty(())
        values = require_positive("precision", precision, zero=True).to(dtype=dtype or like.dtype, device=device)
        if values.ndim == 0:
            if size is None:
                raise ValueError("size is missing; give the number of rows with a single precision")
            values = values.expand(require_count("size", size))
        elif values.ndim != 1 or size not in (None, len(values)):
            raise ValueError(
                f"precision has shape {tuple(values.shape)}; give a number and size=, or one value per row"
            )
        super().__init__(values, outputs)


class BernoulliCurvature(_DiagonalCurvature):
    """``B = diag(p (1 − p))``, of the logistic likelihood at probabilities ``(m,)``.

    >>> import torch
    >>> BernoulliCurvature(torch.tensor([0.5, 0.9])).diagonal()
    tensor([0.2500, 0.0900])
    """

    def __init__(self, probabilities: Float[Tensor, " m"], *, outputs: int = 1) -> None:
        p = _probabilities(probabilities, 1)
        super().__init__(p * (1.0 - p), outputs)


class CategoricalCurvature(Curvature):
    """``B_i = diag(p_i) − p_i p_iᵀ``, of the softmax likelihood at probabilities ``(b, c)``; every product in ``O(c)``.

    Its root is ``diag(√p) − p √pᵀ``. Each block is singular: a constant added to all logits changes nothing.

    >>> import torch
    >>> CategoricalCurvature(torch.tensor([[0.5, 0.5]])) @ torch.tensor([1.0, -1.0])
    tensor([ 0.5000, -0.5000])
    """

    def __init__(self, probabilities: Float[Tensor, "b c"]) -> None:
        p = _probabilities(probabilities, 2)
        sums = p.sum(1)
        if not torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
            raise ValueError(
                f"probabilities sum to {float(sums[(sums - 1).abs().argmax()]):g}; give each row a sum of 1"
            )
        # LLᵀ = B holds for a sum of one, to rounding.
        self.probabilities = p / sums[:, None]
        super().__init__(p.shape[0], p.shape[1], p.dtype, p.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """``p ⊙ V − p (pᵀV)``."""
        return _BlockRankOne(self.probabilities, self.probabilities, self.probabilities).product(V)

    def diagonal(self) -> Float[Tensor, " m"]:
        """``p (1 − p)``."""
        return (self.probabilities * (1.0 - self.probabilities)).flatten()

    @property
    def root(self) -> Operator:
        """``diag(√p) − p √pᵀ``."""
        roots = self.probabilities.sqrt()
        return _BlockRankOne(roots, self.probabilities, roots)

    def root_solve(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """``V / √p``, for ``V`` that sums to zero over the outputs."""
        return V * _inverse(self.probabilities.sqrt()).reshape(-1, 1)

    def take(self, index: Index) -> Curvature:
        """The probabilities of some data."""
        taken = object.__new__(CategoricalCurvature)
        taken.probabilities = self.probabilities[index]
        Curvature.__init__(taken, len(taken.probabilities), self.outputs, self.dtype, self.device)
        return taken


class BlockCurvature(Curvature):
    """``B = diag(B_1, …, B_b)`` from symmetric positive semi-definite blocks ``(b, c, c)``.

    >>> import torch
    >>> BlockCurvature(torch.eye(2).expand(3, 2, 2)).shape
    (6, 6)
    """

    def __init__(self, blocks: Float[Tensor, "b c c"]) -> None:
        blocks = require_finite("blocks", require_float("blocks", blocks))
        if blocks.ndim != 3 or blocks.shape[1] != blocks.shape[2]:
            raise ValueError(f"blocks must have shape (b, c, c), got {tuple(blocks.shape)}")
        values, vectors = torch.linalg.eigh(blocks.double())
        if bool((values[:, 0] < -1e-6 * values[:, -1].abs().clamp(min=1e-30)).any()):
            raise ValueError(
                f"blocks has the eigenvalue {float(values[:, 0].min()):.2g}; make every block positive semi-definite"
            )
        self.blocks, roots = blocks, values.clamp(min=0.0).sqrt()
        self._roots = (vectors * roots[:, None]).to(blocks.dtype)
        self._inverses = (_inverse(roots)[:, :, None] * vectors.mT).to(blocks.dtype)
        super().__init__(len(blocks), blocks.shape[1], blocks.dtype, blocks.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """Block by block."""
        return _Blocks(self.blocks).product(V)

    def diagonal(self) -> Float[Tensor, " m"]:
        """Of every block."""
        return self.blocks.diagonal(dim1=1, dim2=2).flatten()

    @property
    def root(self) -> Operator:
        """Eigenvectors times roots of eigenvalues."""
        return _Blocks(self._roots)

    def root_solve(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """The pseudo-inverse of the root."""
        return _Blocks(self._inverses).product(V)

    def take(self, index: Index) -> Curvature:
        """Some of the blocks."""
        taken = object.__new__(BlockCurvature)
        taken.blocks, taken._roots, taken._inverses = self.blocks[index], self._roots[index], self._inverses[index]
        Curvature.__init__(taken, len(taken.blocks), self.outputs, self.dtype, self.device)
        return taken


class _Blocks(Operator):
    """``diag(A_1, …, A_b) V``."""

    def __init__(self, blocks: Float[Tensor, "b c c"]) -> None:
        self.blocks = blocks
        super().__init__((blocks.shape[0] * blocks.shape[1],) * 2, blocks.dtype, blocks.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """Block by block."""
        return (self.blocks @ V.reshape(*self.blocks.shape[:2], V.shape[1])).reshape(V.shape)

    def transpose(self) -> Operator:
        """Of every block."""
        return _Blocks(self.blocks.mT)


class _BlockRankOne(Operator):
    """Blocks ``diag(d_i) − l_i r_iᵀ``, in ``O(c)`` each."""

    def __init__(
        self, diagonals: Float[Tensor, "b c"], left: Float[Tensor, "b c"], right: Float[Tensor, "b c"]
    ) -> None:
        self.diagonals, self.left, self.right = diagonals, left, right
        super().__init__((diagonals.numel(),) * 2, diagonals.dtype, diagonals.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """A scaling and one inner product per block."""
        parts = V.reshape(*self.diagonals.shape, V.shape[1])
        inner = torch.einsum("bc,bcs->bs", self.right, parts)
        return (self.diagonals[:, :, None] * parts - self.left[:, :, None] * inner[:, None]).reshape(V.shape)

    def transpose(self) -> Operator:
        """Left and right change places."""
        return _BlockRankOne(self.diagonals, self.right, self.left)


def _inverse(roots: Tensor) -> Tensor:
    """``1/x``, and zero where ``x`` is zero to rounding."""
    small = roots <= torch.finfo(roots.dtype).eps ** 0.5 * roots.max() if roots.numel() else roots > 0
    return torch.where(small, 0.0, 1.0 / torch.where(small, 1.0, roots))


def _probabilities(value: Tensor, dimensions: int) -> Tensor:
    p = require_finite("probabilities", require_float("probabilities", value))
    wanted = "(m,)" if dimensions == 1 else "(b, c)"
    if p.ndim != dimensions:
        raise ValueError(f"probabilities must have shape {wanted}, got {tuple(p.shape)}")
    if p.numel() and (bool((p < 0).any()) or bool((p > 1 + 1e-3).any())):
        raise ValueError("probabilities must lie in [0, 1]; give probabilities, not logits")
    return p.clamp(max=1.0)
