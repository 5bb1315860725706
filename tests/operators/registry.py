"""Every operator with its dense twin. A new operator adds one factory here and is held to the whole contract."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matheron.kernels import RBF, Matern32, Tanimoto
from matheron.linear import (
    BernoulliCurvature,
    BlockCurvature,
    CategoricalCurvature,
    DiagonalPrior,
    GaussianCurvature,
    RowKernel,
    StoredData,
)
from matheron.networks import JacobianOperator, TangentModel
from matheron.operators import (
    BlockLowRankInverse,
    Dense,
    Diagonal,
    KernelOperator,
    LowRankInverse,
    Operator,
    Product,
    Scaled,
    Selection,
    Sparse,
    Sum,
)
from matheron.tomography import ConeBeam, Differences, FanBeam, Fourier, ParallelBeam
from matheron.tomography.measurements import Weighed
from tests.tomography import twins


@dataclass(frozen=True)
class Case:
    """An operator and the matrix it stands for, computed by other means."""

    operator: Operator
    twin: Tensor


@dataclass(frozen=True)
class Draw:
    """Sizes and random numbers that a factory draws from."""

    n: int
    m: int
    dtype: torch.dtype
    generator: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)


def differences(X: Tensor, Z: Tensor) -> Tensor:
    return (X.double()[:, None] - Z.double()[None]).square().sum(-1)


def rbf(X: Tensor, Z: Tensor) -> Tensor:
    """``0.7 exp(−‖x − z‖² / (2 · 1.3²))`` from differences."""
    return (0.7 * torch.exp(-0.5 * differences(X, Z) / 1.3**2)).to(X.dtype)


def matern(X: Tensor, Z: Tensor) -> Tensor:
    root = (3.0 * differences(X, Z)).sqrt()
    return ((1.0 + root) * torch.exp(-root)).to(X.dtype)


def dense(draw: Draw) -> Case:
    matrix = draw.normal(draw.n, draw.m)
    return Case(Dense(matrix), matrix)


def diagonal(draw: Draw) -> Case:
    values = draw.normal(draw.n)
    return Case(Diagonal(values), values.diag())


def constant_diagonal(draw: Draw) -> Case:
    return Case(Diagonal(torch.tensor(0.3, dtype=draw.dtype), size=draw.n), 0.3 * torch.eye(draw.n, dtype=draw.dtype))


def selection(draw: Draw) -> Case:
    index = draw.integers(draw.m, draw.n)
    return Case(Selection(index, draw.m, dtype=draw.dtype), torch.eye(draw.m, dtype=draw.dtype)[index])


def scatter(draw: Draw) -> Case:
    case = selection(draw)
    return Case(case.operator.T, case.twin.T)


def slice_selection(draw: Draw) -> Case:
    part = slice(draw.m // 3, None)
    return Case(Selection(part, draw.m, dtype=draw.dtype), torch.eye(draw.m, dtype=draw.dtype)[part])


def total(draw: Draw) -> Case:
    first, second = dense(draw), dense(draw)
    return Case(Sum(first.operator, second.operator), first.twin + second.twin)


def shifted(draw: Draw) -> Case:
    case = kernel(draw)
    return Case(case.operator + Diagonal(0.1), case.twin + 0.1 * torch.eye(draw.n, dtype=draw.dtype))


def product(draw: Draw) -> Case:
    first, second = draw.normal(draw.n, 3), draw.normal(3, draw.m)
    return Case(Product(Dense(first), Dense(second)), first @ second)


def scaled(draw: Draw) -> Case:
    case = dense(draw)
    return Case(Scaled(case.operator, -2.5), -2.5 * case.twin)


def sparse(draw: Draw) -> Case:
    matrix = draw.normal(draw.n, draw.m) * (draw.integers(2, draw.n, draw.m) > 0)
    return Case(Sparse(matrix.to_sparse_csr()), matrix)


def low_rank_inverse(draw: Draw) -> Case:
    factor, values = draw.normal(draw.n, 2), 0.5 + draw.normal(draw.n).square()
    matrix = factor.double() @ factor.double().T + values.double().diag()
    return Case(LowRankInverse(factor, values), torch.linalg.inv(matrix).to(draw.dtype))


def block_low_rank_inverse(draw: Draw) -> Case:
    """Two blocks, the second one place short where the rows are odd."""
    n, width = draw.n, (draw.n + 1) // 2
    places = torch.full((2, width), n)
    places[0], places[1, : n - width] = torch.arange(width), torch.arange(width, n)
    roots = (torch.eye(width) + 0.3 * draw.normal(2, width, width).tril(-1)).to(draw.dtype)
    if 2 * width > n:
        roots[1, -1, :-1] = 0.0
    factor = draw.normal(n, 2)
    triangles = torch.linalg.inv(roots.double())
    matrix = torch.block_diag(*(triangles @ triangles.mT))[:n, :n] + factor.double() @ factor.double().T
    return Case(BlockLowRankInverse(factor, places, roots), torch.linalg.inv(matrix).to(draw.dtype))


def kernel(draw: Draw) -> Case:
    X = draw.normal(draw.n, 2)
    return Case(KernelOperator(RBF(lengthscale=1.3, variance=0.7), X), rbf(X, X))


def kernel_between(draw: Draw) -> Case:
    X, Z = draw.normal(draw.n, 2), draw.normal(draw.m, 2)
    return Case(KernelOperator(Matern32(), X, Z, memory=0), matern(X, Z))


def kernel_sum(draw: Draw) -> Case:
    X = draw.normal(draw.n, 2)
    return Case(KernelOperator(RBF(1.3, 0.7) + Matern32(), X, memory=0), rbf(X, X) + matern(X, X))


def kernel_rows(draw: Draw) -> Case:
    X, Z, index = draw.normal(draw.n + 2, 2), draw.normal(draw.m, 2), draw.integers(draw.n + 2, draw.n)
    return Case(KernelOperator(Matern32(), X, Z).rows(index), matern(X, Z)[index])


def tanimoto(draw: Draw) -> Case:
    X = draw.integers(3, draw.n, 6).to(draw.dtype)
    shared, united = (f(X[:, None], X[None]).sum(-1) for f in (torch.minimum, torch.maximum))
    twin = torch.where(united > 0, shared / united, 1.0)
    return Case(KernelOperator(Tanimoto(), X.to_sparse_csr()), twin)


def gaussian_curvature(draw: Draw) -> Case:
    values = draw.normal(draw.n).square()
    return Case(GaussianCurvature(values), values.diag())


def bernoulli_curvature(draw: Draw) -> Case:
    p = draw.normal(draw.n).sigmoid()
    return Case(BernoulliCurvature(p), (p - p.square()).diag())


def softmax(draw: Draw) -> tuple[Tensor, Tensor]:
    """As many classes as divide the rows: probabilities and the curvature they have."""
    classes = next(c for c in (3, 2, 1) if draw.n % c == 0)
    p = draw.normal(draw.n // classes, classes).softmax(1)
    return p, torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p))


def categorical_curvature(draw: Draw) -> Case:
    p, twin = softmax(draw)
    return Case(CategoricalCurvature(p), twin)


def categorical_root(draw: Draw) -> Case:
    p, _ = softmax(draw)
    twin = torch.block_diag(*(torch.diag(row.sqrt()) - torch.outer(row, row.sqrt()) for row in p))
    return Case(CategoricalCurvature(p).root, twin)


def block_curvature(draw: Draw) -> Case:
    """Singular blocks."""
    width = next(c for c in (3, 2, 1) if draw.n % c == 0)
    factors = draw.normal(draw.n // width, width, max(1, width - 1))
    blocks = factors @ factors.mT
    return Case(BlockCurvature(blocks), torch.block_diag(*blocks))


def row_kernel(draw: Draw) -> Case:
    """``LᵀΦA⁻¹ΦᵀL`` over batches of two."""
    p, _ = softmax(draw)
    Phi, curvature = draw.normal(draw.n, draw.m), CategoricalCurvature(p)
    L = curvature.root.dense()
    prior = DiagonalPrior(0.7, num_weights=draw.m, dtype=draw.dtype)
    operator = RowKernel(StoredData(Dense(Phi), curvature, batch_size=2), prior)
    return Case(operator, L.mT @ Phi @ Phi.mT @ L / 0.7)


def jacobian(draw: Draw) -> Case:
    """Of a tiny network, row by row; ``n`` data with two outputs each, or one for the odd ``m``."""
    outputs = 1 + (draw.m + 1) % 2
    network = nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, outputs)).to(draw.dtype).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(draw.normal(*parameter.shape))
    x, scale = draw.normal(draw.n, 1), draw.normal(sum(p.numel() for p in network.parameters()))
    rows = [torch.autograd.grad(y, list(network.parameters()), retain_graph=True) for y in network(x).flatten()]
    twin = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]) * scale
    return Case(JacobianOperator(TangentModel(network), x, scale=scale), twin)


def angles(draw: Draw, number: int) -> Tensor:
    return 6.28 * torch.rand(number, generator=draw.generator, dtype=torch.float64)


def parallel_beam(draw: Draw) -> Case:
    """As many detectors as are asked for at one angle, their middle aside; an image of ``m`` by two."""
    size, at = (draw.m, 2), angles(draw, 1)
    with warnings.catch_warnings(action="ignore"):
        scan = ParallelBeam(size, at, draw.n, pixel_spacing=0.5, detector_spacing=0.7, detector_offset=0.1)
    return Case(scan.operator(dtype=draw.dtype), twins.parallel(size, at, draw.n, 0.5, 0.7, 0.1).to(draw.dtype))


def fan_beam(draw: Draw) -> Case:
    size, at = (2, draw.m), angles(draw, draw.n)
    with warnings.catch_warnings(action="ignore"):
        scan = FanBeam(size, at, 3, detector_offset=-0.4, source_to_axis=8.0, source_to_detector=11.0)
    return Case(scan.operator(dtype=draw.dtype), twins.fan(size, at, 3, 8.0, 11.0, offset=-0.4).to(draw.dtype))


def cone_beam(draw: Draw) -> Case:
    size, at, spacing, offset = (2, draw.m, 3), angles(draw, draw.n), (1.5, 1.1), (0.2, -0.3)
    with warnings.catch_warnings(action="ignore"):
        scan = ConeBeam(size, at, (2, 3), 1.2, spacing, offset, source_to_axis=9.0, source_to_detector=12.0)
    twin = twins.cone(size, at, (2, 3), 9.0, 12.0, 1.2, spacing, offset)
    return Case(scan.operator(dtype=draw.dtype), twin.to(draw.dtype))


def fourier(draw: Draw) -> Case:
    lines = torch.randperm(draw.n, generator=draw.generator)[: max(1, draw.n // 2)] - draw.n // 2
    twin = twins.fourier(draw.n, draw.m, lines.tolist())
    return Case(Fourier((draw.n, draw.m), lines, dtype=draw.dtype), twin.to(draw.dtype))


def differences_of_pixels(draw: Draw) -> Case:
    return Case(Differences((draw.n, draw.m), dtype=draw.dtype), twins.edges((draw.n, draw.m)).to(draw.dtype))


def differences_of_voxels(draw: Draw) -> Case:
    shape = (2, draw.n, draw.m)
    return Case(Differences(shape, dtype=draw.dtype), twins.edges(shape).to(draw.dtype))


def weighed(draw: Draw) -> Case:
    matrix, weights = draw.normal(draw.n, draw.m), draw.normal(draw.n).square()
    return Case(Weighed(Dense(matrix), weights), weights.sqrt()[:, None] * matrix)


FACTORIES: dict[str, Callable[[Draw], Case]] = {
    factory.__name__: factory
    for factory in (
        *(dense, diagonal, constant_diagonal, selection, scatter, slice_selection, total, shifted, product, scaled),
        sparse,
        *(low_rank_inverse, block_low_rank_inverse, kernel, kernel_between, kernel_sum, kernel_rows, tanimoto),
        *(gaussian_curvature, bernoulli_curvature, categorical_curvature, categorical_root, block_curvature),
        row_kernel,
        jacobian,
        *(parallel_beam, fan_beam, cone_beam, fourier, differences_of_pixels, differences_of_voxels, weighed),
    )
}
