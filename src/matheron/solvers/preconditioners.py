"""Preconditioners ``P⁻¹ ≈ (K + N)⁻¹`` from a low-rank approximation ``K ≈ B Bᵀ``; each is built as an operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.arguments import require_count
from matheron.kernels.rows import take_rows
from matheron.operators import BlockLowRankInverse, KernelOperator, LowRankInverse, Operator
from matheron.seeds import normals, permutation
from matheron.solvers.clusters import clusters
from matheron.solvers.system import System

ENTRIES_AT_ONCE = 2**25
"""Of the kernel matrix in float64 while a factor is filled: a quarter of a GiB."""


@dataclass(frozen=True)
class Preconditioner(ABC):
    """``P⁻¹`` of a given rank.

    One that knows the matrix beforehand gives its ``factor``:

    >>> import torch
    >>> import matheron as mt
    >>> class Ones(Preconditioner):
    ...     def factor(self, system, generator):
    ...         return torch.ones(system.n, 1, dtype=torch.float64)
    >>> system = mt.operators.Dense(torch.ones(3, 3)) + mt.operators.Diagonal(1.0)
    >>> Ones().build(system, torch.Generator()) @ (system @ torch.arange(3.0))
    tensor([0., 1., 2.])
    """

    rank: int | None = 100

    def __post_init__(self) -> None:
        require_count("rank", self.rank)

    def rank_for(self, rows: int) -> int:
        """The rank for a system of so many rows."""
        return min(require_count("rank", self.rank), rows)

    @abstractmethod
    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """``B`` with ``B Bᵀ ≈ K``, in float64; entries are counted on ``system``."""

    def remainder(self, factor: Float[Tensor, "n r"]) -> float:
        """What to add to the noise for the part of the spectrum that ``B`` leaves out."""
        return 0.0

    def build(self, system: System | Operator, generator: torch.Generator) -> Operator:
        """``(B Bᵀ + N)⁻¹``."""
        system = system if isinstance(system, System) else System(system, require_noise=True)
        with torch.no_grad():
            return self.invert(self.factor(system, generator), system)

    def invert(self, factor: Float[Tensor, "n r"], system: System) -> Operator:
        """From a factor that has been computed: float64, since the two terms cancel at low noise."""
        return LowRankInverse(factor, system.noise.to(torch.float64) + self.remainder(factor), system.dtype)


@dataclass(frozen=True)
class PivotedCholesky(Preconditioner):
    """``B`` from ``rank`` steps of Cholesky, each on the row of the largest remaining diagonal; ``n · rank`` entries.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 50)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.RBF(), X) + mt.operators.Diagonal(0.1)
    >>> P = PivotedCholesky(rank=5).build(system, torch.Generator().manual_seed(0))
    >>> torch.linalg.cond(P.dense() @ system.dense()).item() < 1.1
    True
    """

    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """Greedy; stops where nothing is left to approximate."""
        left = system.kernel.diagonal().to(torch.float64).clone()
        enough = 1e-12 * left.max().item()
        factor = torch.zeros(system.n, self.rank_for(system.n), dtype=torch.float64, device=system.device)
        for step in range(factor.shape[1]):
            pivot = int(left.argmax())
            if left[pivot].item() <= enough:
                return factor[:, :step]
            row = _rows(system, torch.tensor([pivot], device=system.device))[:, 0]
            column = (row - factor[:, :step] @ factor[pivot, :step]) / left[pivot].sqrt()
            factor[:, step] = column
            left = (left - column.square()).clamp_min(0)
            left[pivot] = 0
        return factor


@dataclass(frozen=True)
class Randomized(Preconditioner):
    """``B Bᵀ + λ_r I + N``, with ``λ_r`` the least eigenvalue of ``B Bᵀ``."""

    def remainder(self, factor: Float[Tensor, "n r"]) -> float:
        """The smallest eigenvalue that was caught stands for all that were not."""
        return float(torch.linalg.eigvalsh(factor.mT @ factor)[0].clamp_min(0))


@dataclass(frozen=True)
class Nystrom(Randomized):
    """``B = K_·M L⁻ᵀ`` with ``L Lᵀ = K_MM`` for ``rank`` random rows ``M``; ``n · rank`` entries.

    >>> Nystrom(rank=1000)
    Nystrom(rank=1000)
    """

    def landmarks(self, system: System, generator: torch.Generator) -> Int[Tensor, " r"]:
        """``M``."""
        return permutation(system.n, generator, system.device)[: self.rank_for(system.n)]

    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """Of random rows."""
        return self.spanned(system, self.landmarks(system, generator))

    def spanned(self, system: System, picked: Int[Tensor, " r"]) -> Float[Tensor, "n r"]:
        """``B`` of these rows; a shift relative to their block keeps its factorization possible."""
        columns = torch.empty(system.n, len(picked), dtype=torch.float64, device=system.device)
        several = max(1, ENTRIES_AT_ONCE // system.n)
        for part, into in zip(picked.split(several), columns.split(several, dim=1), strict=True):
            into.copy_(_rows(system, part))
        return nystrom_factor(columns, columns[picked])

    def first_weights(
        self, factor: Float[Tensor, "n r"], picked: Int[Tensor, " r"], inverse: Operator, Z: Float[Tensor, "n s"]
    ) -> Float[Tensor, "r s"]:
        """``L⁻ᵀ Bᵀ P⁻¹ Z``: on these rows alone, the weights of ``B Bᵀ P⁻¹ Z``, the mean through inducing points there.

        ``P⁻¹ Z`` itself has no such function: what ``B`` leaves out of ``K``, times its large weights, drowns it.
        """
        # Of B_M = L − s L⁻ᵀ, with the shift s of the factorization, the lower triangle is that of L up to rounding.
        return torch.linalg.solve_triangular(
            factor[picked].tril().mT, factor.mT @ inverse.product(Z).to(factor.dtype), upper=True
        )


@dataclass(frozen=True)
class NystromBlocks(Nystrom):
    """``(B Bᵀ + S)⁻¹``: a Nyström part for what is smooth, and exact blocks ``S`` of the rest for what is local.

    ``S`` is ``K + N − B Bᵀ`` within clusters of at most ``block`` neighboring rows and zero between them, so that the
    approximation is exact within clusters; ``n (rank + block)`` entries, numbers kept and work per product. It is the
    matrix of the partially independent conditional approximation, here to speed an exact solve. The rank is that
    of :meth:`rank_for` unless given.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 10, 500)[:, None]
    >>> system = mt.operators.KernelOperator(mt.kernels.Matern32(), X) + mt.operators.Diagonal(1e-4)
    >>> mt.solvers.CG(preconditioner=NystromBlocks(rank=20, block=100)).solve(system, X.sin()).epochs < 8
    True
    """

    rank: int | None = None
    block: int = 512

    def __post_init__(self) -> None:
        if self.rank is not None:
            require_count("rank", self.rank)
        require_count("block", self.block)

    def rank_for(self, rows: int) -> int:
        """One per 15 rows, but at least 1,000 and at most 3,000: with 1,000, 41,000 rows of protein took 56 epochs to a
        residual of 0.01, with 3,000 they took 19; a factor of more costs more than the epochs it saves."""
        wanted = min(max(rows // 15, 1000), 3000) if self.rank is None else self.rank
        return min(wanted, rows)

    def bytes(self, rows: int) -> int:
        """What it keeps of a system of so many rows."""
        return 8 * rows * (self.rank_for(rows) + min(self.block, rows))

    def invert(self, factor: Float[Tensor, "n r"], system: System) -> Operator:
        """Blocks in float64, and stored so: the terms cancel at low noise."""
        places = clusters(self.coordinates(factor, system), self.block)
        width = places.shape[1]
        roots = torch.empty(len(places), width, width, dtype=torch.float64, device=system.device)
        noise = system.noise.to(torch.float64)
        identity = torch.eye(width, dtype=torch.float64, device=system.device)
        for place, root in zip(places, roots, strict=True):
            here = place[place < system.n]
            size, near = len(here), factor[here]
            rest = identity.clone()  # ones on the diagonal for places beyond the rows
            rest[:size, :size] = _block(system, here) - near @ near.mT + noise[here].diag()
            triangle = _factor(rest, near.square().sum(1).max())
            root.copy_(torch.linalg.solve_triangular(triangle, identity, upper=False))
        return BlockLowRankInverse(factor, places, roots, system.dtype)

    @staticmethod
    def coordinates(factor: Float[Tensor, "n r"], system: System) -> Float[Tensor, "n d"]:
        """Inputs in units of their lengthscales; where the kernel knows none, the rows of ``B``, whose distances are
        those of the kernel."""
        if isinstance(system.kernel, KernelOperator):
            found = system.kernel.kernel.coordinates(system.kernel.X)
            if found is not None:
                return found
        return factor


@dataclass(frozen=True)
class Sketch(Randomized):
    """``B = K R L⁻ᵀ`` with ``L Lᵀ = Rᵀ K R`` for ``rank`` random orthonormal columns ``R``; one epoch.

    For an operator that is known by its products alone.

    >>> Sketch(rank=100)
    Sketch(rank=100)
    """

    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """One pass over the matrix."""
        test = normals((system.n, self.rank_for(system.n)), system, generator)
        test = torch.linalg.qr(test)[0]
        columns = system.kernel_rows(slice(0, system.n), test).to(torch.float64)
        return nystrom_factor(columns, test.to(torch.float64).mT @ columns)


@dataclass(frozen=True, eq=False)
class Factored(Preconditioner):
    """``U (Λ − λ_r) Uᵀ + λ_r I + N`` of a ``B = U Λ^½ Vᵀ`` that is known already, from a like system.

    What ``B`` caught stays as it is, and the smallest of it stands for all that it did not. Kept and applied in the
    dtype of ``B``.

    >>> import torch
    >>> Factored(known=torch.ones(4, 2))
    Factored(rank=2)
    """

    rank: int | None = field(init=False, default=None)
    known: Float[Tensor, "n r"] = field(repr=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", self.known.shape[1])

    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """Nothing to do."""
        if self.known.shape[0] != system.n:
            raise ValueError(f"known has {self.known.shape[0]} rows but the system has {system.n}")
        return self.known

    def invert(self, factor: Float[Tensor, "n r"], system: System) -> Operator:
        """In the factor's own precision."""
        values, vectors = torch.linalg.eigh(factor.mT @ factor)
        least = values[0].clamp_min(0)
        kept = (1.0 - least / values.clamp_min(torch.finfo(values.dtype).tiny)).clamp_min(0)
        return LowRankInverse(factor @ (vectors * kept.sqrt()), system.noise.to(factor) + least, system.dtype)


@dataclass(frozen=True)
class RandomizedSVD(Preconditioner):
    """``B = Q V Λ^½`` with ``Q`` an orthonormal basis of ``K R``, ``R`` normal, and ``Qᵀ K Q = V Λ Vᵀ``; two epochs.

    Thesis, section 7.3.4.

    >>> RandomizedSVD(rank=400)
    RandomizedSVD(rank=400)
    """

    def factor(self, system: System, generator: torch.Generator) -> Float[Tensor, "n r"]:
        """Two passes over the kernel matrix."""
        test = normals((system.n, self.rank_for(system.n)), system, generator)
        everything = slice(0, system.n)
        basis = torch.linalg.qr(system.kernel_rows(everything, test).to(torch.float64))[0]
        small = basis.mT @ system.kernel_rows(everything, basis.to(system.dtype)).to(torch.float64)
        values, vectors = torch.linalg.eigh(0.5 * (small + small.mT))
        return basis @ (vectors * values.clamp_min(0).sqrt())


def nystrom_factor(columns: Float[Tensor, "n r"], block: Float[Tensor, "r r"]) -> Float[Tensor, "n r"]:
    """``C L⁻ᵀ``, in place of ``C``, with ``L Lᵀ = block + shift``: the shift is a rounding error of the trace, or what
    it takes."""
    columns, block = columns.detach(), block.detach()
    trace = float(block.diagonal().sum())
    identity = torch.eye(len(block), dtype=block.dtype, device=block.device)
    for shift in (1e-14, 1e-12, 1e-10, 1e-8, 1e-6):
        triangle, failed = torch.linalg.cholesky_ex(0.5 * (block + block.mT) + shift * trace * identity)
        if not int(failed):
            for rows in columns.split(max(1, ENTRIES_AT_ONCE // len(block))):
                rows.copy_(torch.linalg.solve_triangular(triangle, rows.mT, upper=False).mT)
            return columns
    raise ValueError("a block of the kernel matrix is far from positive definite; check the kernel")


def _rows(system: System, index: Tensor) -> Float[Tensor, "n r"]:
    """``K[:, index]`` in float64, evaluated so where there is a kernel: factors of it amplify rounding."""
    system.entries += len(index) * system.n
    K = system.kernel
    if not isinstance(K, KernelOperator):
        return K.rows(index).dense().mT.to(torch.float64)
    # A row of the identity per row asked for would cost a whole product; the kernel gives them at once.
    X = K.X.to(torch.float64)
    return K.kernel(take_rows(X, index), X).detach().mT


def _block(system: System, index: Tensor) -> Float[Tensor, "b b"]:
    """``K[index, index]`` in float64, evaluated so where there is a kernel: what is left of it may be small."""
    system.entries += len(index) ** 2
    K = system.kernel
    if isinstance(K, KernelOperator):
        return K.kernel(take_rows(K.X, index).to(torch.float64)).detach()
    return K.block(index).to(torch.float64)


def _factor(block: Float[Tensor, "b b"], scale: Float[Tensor, ""]) -> Float[Tensor, "b b"]:
    """``L`` of the block plus as little of ``scale`` as rounding makes it take."""
    for shift in (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
        triangle, failed = torch.linalg.cholesky_ex(block + (shift * scale).expand(len(block)).diag())
        if not int(failed):
            return triangle
    raise ValueError("a block of the kernel matrix is far from positive definite; check the kernel")
