"""The Tanimoto kernel of non-negative vectors, such as molecular fingerprints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels.base import Kernel
from matheron.kernels.evaluator import Evaluator, Scratch
from matheron.kernels.levels import unary
from matheron.kernels.positive import Positive
from matheron.kernels.rows import row_numbers, take_rows

BLOCK = 1024


class Tanimoto(Kernel):
    """``σ² Σ_k min(x_k, z_k) / Σ_k max(x_k, z_k)``: shared over united weight, one for two all-zero rows.

    Inputs are non-negative: bits, counts or real numbers, dense or as ``torch.sparse_csr`` matrices. Derivatives are
    taken in the variance, not in the inputs. Whole numbers are far faster than real ones.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    >>> Tanimoto()(x).tolist()  # min (0, 2, 0), max (1, 3, 1)
    [[1.0, 0.4000000...], [0.4000000..., 1.0]]
    >>> bool((Tanimoto()(x.to_sparse_csr()) == Tanimoto()(x)).all())
    True
    """

    reads_sparse = True
    variance = Positive()

    def __init__(self, variance: float | Tensor = 1.0, *, columns: Sequence[int] | None = None) -> None:
        super().__init__(columns)
        self.variance = variance

    def check_inputs(self, name: str, value: Any) -> Tensor:
        """Refuse also what is negative."""
        value = super().check_inputs(name, value)
        read = self.select(value)
        stored = read if read.layout == torch.strided else read.values()
        if not bool((stored >= 0).all()):
            raise ValueError(f"{name} has negative or NaN entries; Tanimoto compares non-negative counts or weights")
        return value

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """``σ² Σ min / Σ max``."""
        with torch.no_grad():
            similarity = torch.empty(x.shape[0], z.shape[0], dtype=x.dtype, device=x.device)
            tiles = similarities(x.detach(), z.detach(), 1.0)
            for start in range(0, z.shape[0], BLOCK):
                columns = slice(start, min(start + BLOCK, z.shape[0]))
                tiles.fill(slice(None), columns, similarity[:, columns])
        return self.variance.to(x.dtype) * similarity

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``σ²``."""
        return self.variance.to(x.dtype).expand(x.shape[0])

    def evaluator(self, x: Tensor, z: Tensor) -> Evaluator:
        """Sparse products of whole numbers, ``ℓ₁`` distances of real ones."""
        with torch.no_grad():
            return similarities(self.select(x), self.select(z), self.variance.item())


def similarities(x: Tensor, z: Tensor, variance: float) -> Evaluator:
    """The faster of the two evaluators that is exact for these inputs."""
    levels = unary(x, z)
    return L1Similarity(x, z, variance) if levels is None else LevelSimilarity(*levels, variance)


class Similarity(Evaluator):
    """Fills ``σ² S / (Σx + Σz − S)`` from ``S = Σ min(x, z)``."""

    def __init__(self, x: Tensor, z: Tensor, left: Tensor, right: Tensor, variance: float) -> None:
        self.x, self.z, self.left, self.right, self.variance = x, z, left, right, variance
        self.spare = Scratch(left.dtype, x.device)

    def gather(self, index: Tensor) -> Evaluator:
        """The evaluator whose rows are ``x[index]``."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__, x=take_rows(self.x, index), left=self.left[index])
        return part

    @abstractmethod
    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Write one tile."""


class L1Similarity(Similarity):
    """``(Σx + Σz − ‖x − z‖₁) / (Σx + Σz + ‖x − z‖₁)``, in float64: for any non-negative inputs."""

    def __init__(self, x: Tensor, z: Tensor, variance: float) -> None:
        left, right = (v.to(torch.float64).sum(1, keepdim=True).to_dense()[:, 0] for v in (x, z))
        super().__init__(x, z, left, right, variance)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Distances, then the quotient."""
        x, z = (take_rows(v, part).to_dense().to(torch.float64) for v, part in ((self.x, rows), (self.z, columns)))
        distance = torch.cdist(x, z, p=1.0)
        total = torch.add(self.left[rows, None], self.right[columns], out=self.spare.like(out))
        empty = total == 0
        ratio = (total - distance).div_(total.add_(distance)).clamp_min_(0).mul_(self.variance)
        out.copy_(ratio.masked_fill_(empty, self.variance))


class LevelSimilarity(Similarity):
    """``S = Σ_t w_t 1[x ≥ t] 1[z ≥ t]`` as a product of sparse rows with a tile of dense columns.

    On 512 × 1024 tiles of fingerprints with 33 of 1,024 bits set, this is four times as fast as a dense product.
    """

    def __init__(self, x: Tensor, z: Tensor, weights: Float[Tensor, " tokens"], variance: float) -> None:
        super().__init__(x, z, (x @ weights[:, None])[:, 0], (z @ weights[:, None])[:, 0], variance)
        self.weights = weights
        self.dense = weights.new_zeros(0)

    def fill(self, rows: slice, columns: slice, out: Float[Tensor, "r c"]) -> None:
        """Product, then the quotient."""
        z = take_rows(self.z, columns)
        width, tokens = z.shape[0], z.col_indices()
        if self.dense.numel() < len(self.weights) * width:
            self.dense = self.dense.new_zeros(len(self.weights) * width)
        filled = tokens * width + row_numbers(z)
        self.dense[filled] = self.weights[tokens]
        shared = take_rows(self.x, rows) @ self.dense[: len(self.weights) * width].view(-1, width)
        self.dense[filled] = 0.0
        union = torch.add(self.left[rows, None], self.right[columns], out=self.spare.like(shared)).sub_(shared)
        out.copy_(shared.div_(union))
        if self.variance != 1.0:
            out.mul_(self.variance)
