import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels import Tanimoto
from matheron.kernels.levels import unary
from matheron.kernels.rows import take_rows
from matheron.kernels.tanimoto import L1Similarity, LevelSimilarity
from tests.kernels.test_stationary import tiles
from tests.kernels.twins import tanimoto


def fingerprints(kind: str, n: int, d: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    mask = (torch.rand(n, d, generator=g) < 0.3).to(dtype)
    if kind == "binary":
        return mask
    if kind == "counts":
        return mask * torch.randint(1, 6, (n, d), generator=g)
    return mask * torch.rand(n, d, generator=g, dtype=dtype)


KINDS = ["binary", "counts", "real"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 8), m=st.integers(1, 8), d=st.integers(1, 12), seed=st.integers(0, 99))
def test_dense_csr_and_tiles_agree_with_the_twin(kind: str, n: int, m: int, d: int, seed: int) -> None:
    x, z = fingerprints(kind, n, d, seed), fingerprints(kind, m, d, seed + 1)
    kernel, expected = Tanimoto(1.5), 1.5 * tanimoto(x, z)
    for left, right in ((x, z), (x.to_sparse_csr(), z.to_sparse_csr()), (x.to_sparse_csr(), z)):
        assert (kernel(left, right) - expected).abs().max() < 1e-6
        index = torch.tensor([n - 1, 0])
        out = torch.empty(2, m)
        kernel.evaluator(left, right).gather(index).fill(slice(None), slice(None), out)
        assert (out - expected[index]).abs().max() < 1e-6
    assert (tiles(kernel, x, z) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [64, 1024])
def test_float32_accuracy_diagonal_and_definiteness(kind: str, width: int) -> None:
    x = fingerprints(kind, 50, width, 3)
    x[7] = 0.0
    x[8] = 0.0
    for layout in (x, x.to_sparse_csr()):
        matrix = Tanimoto()(layout)
        assert (matrix - tanimoto(x, x)).abs().max() < 1e-6
        assert (matrix.diagonal() == 1.0).all()
        assert matrix[7, 8] == 1.0
        assert matrix[7, 0] == 0.0
        assert (matrix == matrix.mT).all()
        assert torch.linalg.eigvalsh(matrix.double()).min() > -1e-5


def test_whole_numbers_take_the_fast_path_and_others_do_not() -> None:
    for kind, expected in (("binary", LevelSimilarity), ("counts", LevelSimilarity), ("real", L1Similarity)):
        x = fingerprints(kind, 10, 30, 0)
        assert isinstance(Tanimoto().evaluator(x, x), expected)
    huge = fingerprints("counts", 10, 30, 0) * 1e7
    assert isinstance(Tanimoto().evaluator(huge, huge), L1Similarity)
    assert (Tanimoto()(huge) - tanimoto(huge, huge)).abs().max() < 1e-6


def test_tokens_are_levels_that_occur() -> None:
    x, z = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 5.0], [0.0, 0.0]])
    levels = unary(x, z)
    assert levels is not None
    left, right, weights = levels
    assert weights.tolist() == [1.0, 2.0, 1.0, 4.0, 1.0]
    torch.testing.assert_close(
        (left.to_dense() * weights) @ right.to_dense().mT, torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    )


def test_variance_is_differentiable_and_columns_are_read() -> None:
    x = fingerprints("counts", 6, 9, 0)
    kernel = Tanimoto(2.0, columns=[1, 4, -1])
    assert (kernel(x) - 2.0 * tanimoto(x[:, [1, 4, 8]], x[:, [1, 4, 8]])).abs().max() < 1e-6
    assert (kernel(x.to_sparse_csr()) == kernel(x)).all()
    kernel(x).sum().backward()
    torch.testing.assert_close(kernel.log_variance.grad, kernel(x).sum().detach().double())
    assert (kernel.diagonal(x) == 2.0).all()


def test_no_rows_give_no_rows() -> None:
    x = fingerprints("counts", 3, 5, 0)
    for empty in (x[:0], take_rows(x.to_sparse_csr(), slice(0, 0))):
        assert Tanimoto()(empty, x).shape == (0, 3)
        assert Tanimoto()(x, empty).shape == (3, 0)
        assert Tanimoto().features(4)(empty).shape == (0, 4)


@pytest.mark.usefixtures("unchecked")
def test_bad_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="x has negative"):
        Tanimoto()(torch.tensor([[-1.0]]))
    with pytest.raises(ValueError, match="z has negative or NaN"):
        Tanimoto()(torch.ones(1, 1), torch.tensor([[float("nan")]]))
    with pytest.raises(TypeError, match="to_sparse_csr"):
        Tanimoto()(torch.eye(2).to_sparse_coo())
    with pytest.raises(ValueError, match="variance"):
        Tanimoto(variance=0.0)
