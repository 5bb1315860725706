"""Kernel matrices in tiles against dense ones."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels import RBF, Linear, Matern12, Matern32, Matern52, Tanimoto
from matheron.kernels.stationary import StationaryEvaluator
from matheron.kernels.tiling import TILE
from matheron.operators import KernelOperator
from tests.operators.registry import differences

ROWS, COLUMNS = TILE


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def matern(X, Z, lengthscale=1.0, variance=1.0):
    """Matérn-3/2 in float64 from differences."""
    root = (3.0 * differences(X, Z)).sqrt() / lengthscale
    return variance * (1.0 + root) * torch.exp(-root)


def frozen(kernel):
    return kernel.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory", [0, None])
@pytest.mark.parametrize(
    ("n", "m"),
    [(1, 1), (ROWS, COLUMNS), (ROWS + 1, COLUMNS - 1), (ROWS - 1, COLUMNS + 1), (2 * ROWS + 3, 2 * COLUMNS + 3)],
)
def test_tiles_agree_with_the_dense_matrix(n, m, memory, dtype):
    X, Z, V = normal(n, 3, dtype=dtype), normal(m, 3, seed=1, dtype=dtype), normal(m, 2, seed=2, dtype=dtype)
    K = KernelOperator(frozen(Matern32()), X, Z, memory=memory)
    expected = matern(X, Z) @ V.double()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert ((K @ V).double() - expected).abs().max() <= tolerance * V.abs().sum(0).max()


def test_kept_and_not_kept_agree_to_rounding():
    X, V = normal(2 * ROWS + 7, 4), normal(2 * ROWS + 7, 3, seed=1)
    kernel = frozen(Matern52(lengthscale=[0.5, 1.0, 2.0, 4.0], variance=2.0))
    kept, not_kept = (KernelOperator(kernel, X, memory=memory) for memory in (None, 0))
    parts = (slice(5, ROWS + 5), slice(None), torch.tensor([3, -1, 3, ROWS]))
    for part in parts + parts:
        torch.testing.assert_close(kept.rows(part) @ V, not_kept.rows(part) @ V, rtol=1e-5, atol=1e-4)
    assert kept.tiles.keeps
    assert not not_kept.tiles.keeps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, ROWS, ROWS + 1, 2 * ROWS, 3 * ROWS - 1, COLUMNS + ROWS + 3])
def test_a_matrix_that_is_not_kept_is_read_off_its_upper_half(n, dtype):
    X, V = normal(n, 3, dtype=dtype), normal(n, 2, seed=1, dtype=dtype)
    K = KernelOperator(frozen(Matern32()), X, memory=0)
    filled = []
    fill = StationaryEvaluator.fill
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StationaryEvaluator, "fill", lambda *tile: (filled.append(tile[3].numel()), fill(*tile)))
        found = K @ V
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert (found.double() - matern(X, X) @ V.double()).abs().max() <= tolerance * V.abs().sum(0).max()
    assert sum(filled) <= n * (n + ROWS) / 2 + ROWS


def test_a_budget_smaller_than_the_matrix_keeps_nothing():
    X = normal(20, 2)
    K = KernelOperator(frozen(RBF()), X, memory=20 * 20 * 4 - 1)
    K @ X
    assert not K.tiles.keeps


@settings(max_examples=25, deadline=None)
@given(
    index=st.one_of(
        st.lists(st.integers(-30, 29), max_size=12).map(lambda i: torch.tensor(i, dtype=torch.int64)),
        st.slices(30).filter(lambda s: s.step is None or s.step > 0),
        st.lists(st.booleans(), min_size=30, max_size=30).map(torch.tensor),
    ),
    memory=st.sampled_from([0, None]),
)
def test_rows_by_slice_index_or_mask(index, memory):
    X, V = normal(30, 2, dtype=torch.float64), normal(30, 2, seed=1, dtype=torch.float64)
    K, dense = KernelOperator(frozen(Matern32()), X, memory=memory), matern(X, X)
    rows = K.rows(index)
    assert rows.shape == tuple(dense[index].shape)
    torch.testing.assert_close(rows @ V, dense[index] @ V)
    U = normal(rows.shape[0], 2, seed=2, dtype=torch.float64)
    torch.testing.assert_close(rows.T @ U, dense[index].T @ U)
    torch.testing.assert_close(K.block(index), dense[index][:, index])


def test_rows_out_of_range_are_refused():
    K = KernelOperator(frozen(RBF()), normal(4, 2))
    with pytest.raises(IndexError):
        K.rows(torch.tensor([4]))


def gradients(value, tensors, weight):
    return torch.autograd.grad((value * weight).sum(), tensors)


@pytest.mark.parametrize(
    "rows", [slice(None), slice(2, 11), torch.tensor([5, 0, 5, -1])], ids=["all", "slice", "repeated"]
)
@pytest.mark.parametrize("memory", [0, None])
def test_gradients_agree_with_dense_autograd(rows, memory):
    kernel = Matern52(lengthscale=[0.7, 1.5], variance=1.3)
    X = normal(15, 2, dtype=torch.float64).requires_grad_()
    V = normal(15, 3, seed=1, dtype=torch.float64).requires_grad_()
    inputs = [*kernel.parameters(), X, V]
    tiled = KernelOperator(kernel, X, memory=memory).rows(rows) @ V
    dense = kernel(X)[rows] @ V
    weight = normal(*dense.shape, seed=2, dtype=torch.float64)
    for actual, expected in zip(gradients(tiled, inputs, weight), gradients(dense, inputs, weight), strict=True):
        torch.testing.assert_close(actual, expected)


def test_gradients_across_tile_borders_and_between_two_sets():
    kernel = RBF(lengthscale=[0.7, 1.5])
    X = normal(ROWS + 3, 2, dtype=torch.float64).requires_grad_()
    Z = normal(COLUMNS + 5, 2, seed=1, dtype=torch.float64).requires_grad_()
    V = normal(COLUMNS + 5, 2, seed=2, dtype=torch.float64).requires_grad_()
    inputs = [*kernel.parameters(), X, Z, V]
    tiled, dense = KernelOperator(kernel, X, Z) @ V, kernel(X, Z) @ V
    weight = normal(*dense.shape, seed=3, dtype=torch.float64)
    for actual, expected in zip(gradients(tiled, inputs, weight), gradients(dense, inputs, weight), strict=True):
        torch.testing.assert_close(actual, expected)


def test_gradients_of_composite_kernels_and_of_rows_that_coincide():
    kernel = 0.5 * Matern32(lengthscale=0.8) + RBF(columns=[0]) * Linear(columns=[1])
    X = normal(6, 2, dtype=torch.float64)[[0, 0, 1, 2, 3, 3]].requires_grad_()
    V = normal(6, 1, seed=1, dtype=torch.float64)
    inputs = [*kernel.parameters(), X]
    tiled, dense = KernelOperator(kernel, X) @ V, kernel(X) @ V
    weight = torch.ones_like(dense)
    for actual, expected in zip(gradients(tiled, inputs, weight), gradients(dense, inputs, weight), strict=True):
        assert bool(actual.isfinite().all())
        torch.testing.assert_close(actual, expected)


def test_no_pass_saves_anything_of_the_size_of_the_matrix():
    n, m = 2 * ROWS, 4 * COLUMNS
    kernel, X, Z, V = Matern32(), normal(n, 2).requires_grad_(), normal(m, 2, seed=1), normal(m, 1, seed=2)
    saved = []

    def pack(tensor):
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        (KernelOperator(kernel, X, Z, memory=0) @ V).sum().backward()
    assert X.grad is not None
    assert saved
    assert max(saved) <= ROWS * COLUMNS < n * m


def test_without_anything_to_learn_there_is_no_graph():
    X = normal(5, 2)
    assert not (KernelOperator(frozen(RBF()), X) @ X).requires_grad
    with torch.no_grad():
        assert not (KernelOperator(RBF(), X) @ X).requires_grad


def set_once(kernel):
    kernel.lengthscale = 0.4


def set_twice(kernel):
    kernel.lengthscale = 3.0
    kernel.lengthscale = 0.4


def set_in_place(kernel):
    with torch.no_grad():
        kernel.log_lengthscale.fill_(0.4).log_()


def set_data(kernel):
    kernel.log_lengthscale.data = torch.tensor(0.4, dtype=torch.float64).log()


def set_one_each(kernel):
    kernel.lengthscale = [0.4, 0.4]


def load_state(kernel):
    kernel.load_state_dict(Matern32(lengthscale=0.4).state_dict())


@pytest.mark.parametrize("change", [set_once, set_twice, set_in_place, set_data, set_one_each, load_state])
@pytest.mark.parametrize("memory", [0, None])
def test_what_is_kept_is_forgotten_when_hyperparameters_change(change, memory):
    X, V = normal(9, 2, dtype=torch.float64), normal(9, 2, seed=1, dtype=torch.float64)
    kernel = Matern32()
    K = KernelOperator(kernel, X, memory=memory)
    with torch.no_grad():
        torch.testing.assert_close(K @ V, matern(X, X) @ V)
        change(kernel)
        torch.testing.assert_close(K @ V, matern(X, X, 0.4) @ V)
        torch.testing.assert_close(K.block(slice(0, 4)), matern(X, X, 0.4)[:4, :4])


def test_what_is_kept_is_forgotten_when_inputs_change():
    X, V = normal(9, 2, dtype=torch.float64), normal(9, 2, seed=1, dtype=torch.float64)
    K = KernelOperator(frozen(Matern32()), X)
    K @ V
    X.mul_(2.0)
    torch.testing.assert_close(K @ V, matern(X, X) @ V)


@pytest.mark.parametrize("lengthscale", [1.0, 0.01])
def test_float32_is_accurate_far_from_the_origin_and_at_short_lengthscales(lengthscale):
    X = 1e4 + normal(ROWS + 10, 3)
    X[1::2] = X[::2] + 0.5 * lengthscale * normal(len(X[::2]), 3, seed=1)
    K = KernelOperator(frozen(Matern32(lengthscale=lengthscale, variance=2.0)), X, memory=0)
    error = (K.dense().double() - matern(X, X, lengthscale, 2.0)).abs().max()
    assert error <= 1e-4 * 2.0


@pytest.mark.parametrize("kernel", [RBF, Matern12, Matern32, Matern52])
def test_coincident_rows_give_exactly_the_variance(kernel):
    X = (1e3 + normal(40, 5)).repeat(2, 1)
    K = KernelOperator(frozen(kernel(lengthscale=0.1, variance=1.5)), X, memory=0)
    dense, index = K.dense(), torch.arange(40)
    for values in (dense.diagonal(), dense[index, index + 40], K.diagonal()):
        assert bool((values == 1.5).all())


def test_blocks_are_exactly_symmetric():
    K = KernelOperator(frozen(Matern32(lengthscale=0.3)), normal(50, 4))
    block = K.block(torch.arange(0, 50, 3))
    assert bool((block == block.mT).all())
    K @ normal(50, 1)
    torch.testing.assert_close(K.block(slice(0, 20)), K.block(torch.arange(20)))


def test_constant_columns_say_nothing():
    X = normal(12, 2, dtype=torch.float64)
    padded = torch.cat([X, torch.full((12, 1), 1e6, dtype=torch.float64)], dim=1)
    V = normal(12, 1, seed=1, dtype=torch.float64)
    kernel = frozen(Matern32())
    torch.testing.assert_close(KernelOperator(kernel, padded) @ V, KernelOperator(kernel, X) @ V)


def test_the_diagonal_between_two_sets_pairs_their_rows():
    X, Z = normal(4, 2, dtype=torch.float64), normal(4, 2, seed=1, dtype=torch.float64)
    K = KernelOperator(frozen(Matern32()), X, Z)
    torch.testing.assert_close(K.diagonal(), matern(X, Z).diagonal())
    counts = torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    S = KernelOperator(frozen(Tanimoto()), counts.to_sparse_csr(), counts.flip(0).to_sparse_csr())
    torch.testing.assert_close(S.diagonal(), torch.tensor([0.4, 0.4]))


@pytest.mark.parametrize("memory", [0, None])
def test_sparse_rows_agree_with_dense_ones(memory):
    bits = (torch.rand(ROWS + 9, 64, generator=torch.Generator().manual_seed(0)) < 0.1).float()
    V, kernel = normal(len(bits), 2), frozen(Tanimoto(variance=2.0))
    sparse = KernelOperator(kernel, bits.to_sparse_csr(), memory=memory)
    dense = KernelOperator(kernel, bits, memory=memory)
    index = torch.tensor([4, 4, -1, ROWS])
    torch.testing.assert_close(sparse @ V, dense @ V)
    torch.testing.assert_close(sparse.rows(index) @ V, dense.rows(index) @ V)
    torch.testing.assert_close(sparse.rows(index).T @ V[:4], dense.rows(index).T @ V[:4])
    torch.testing.assert_close(sparse.block(index), dense.block(index))
    torch.testing.assert_close(sparse.diagonal(), dense.diagonal())
    order = torch.randperm(len(bits), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(sparse.permuted(order) @ V[order], (dense @ V)[order])


def test_the_variance_is_learned_on_sparse_rows():
    counts = torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    kernel = Tanimoto(variance=2.0)
    (KernelOperator(kernel, counts.to_sparse_csr()) @ torch.ones(2)).sum().backward()
    torch.testing.assert_close(kernel.log_variance.grad, torch.tensor(2.0 * 2.8, dtype=torch.float64))


BAD = [
    (torch.zeros(0, 2), ValueError, "X has no rows"),
    (torch.zeros(3, 0), ValueError, "X has no columns"),
    (torch.zeros(3), ValueError, "shape"),
    (torch.zeros(2, 3, 1), ValueError, "shape"),
    (torch.tensor([[1.0, torch.nan]]), ValueError, "NaN or infinite"),
    (torch.tensor([[1.0, torch.inf]]), ValueError, "NaN or infinite"),
    (torch.zeros(3, 2, dtype=torch.int64), TypeError, "floating point"),
    (torch.zeros(3, 2, dtype=torch.complex64), TypeError, "floating point"),
    ([[0.0]], TypeError, r"torch\.Tensor"),
    (torch.eye(3).to_sparse_csr(), TypeError, "layout"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("X", "error", "message"), BAD)
def test_bad_inputs_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        KernelOperator(RBF(), X)
    if isinstance(X, torch.Tensor) and X.ndim == 2 and X.dtype == torch.float32 and X.shape[1] == 2:
        with pytest.raises(error, match=message.replace("X", "Z")):
            KernelOperator(RBF(), torch.zeros(3, 2), X)


@pytest.mark.usefixtures("unchecked")
def test_two_sets_must_fit_each_other_and_the_kernel():
    X = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="they must agree"):
        KernelOperator(RBF(), X, torch.zeros(3, 1))
    with pytest.raises(TypeError, match="convert one"):
        KernelOperator(RBF(), X, X.double())
    with pytest.raises(ValueError, match="one value each"):
        KernelOperator(RBF(lengthscale=[1.0, 1.0, 1.0]), X)
    with pytest.raises(ValueError, match="bytes"):
        KernelOperator(RBF(), X, memory=-1)


def test_multiples_and_sums_reorder_their_parts_so_that_rows_stay_cheap():
    X, order = torch.rand(40, 2), torch.randperm(40)
    K = KernelOperator(RBF(), X)
    scaled = (2.0 * K + KernelOperator(Matern32(), X)).permuted(order)
    assert isinstance(scaled.first.operator, KernelOperator)
    assert isinstance(scaled.second, KernelOperator)
    assert (2.0 * K + K).upper().dtype == torch.float64


def test_a_window_transposed_once_is_not_kept():
    K = KernelOperator(RBF(), torch.rand(300, 1))
    window = K.rows(slice(0, 100)).T
    window @ torch.ones(100)
    assert not window.tiles.keeps


def test_inference_mode_sees_the_matrix_of_its_own_tensors():
    kernel = RBF().requires_grad_(False)
    with torch.inference_mode():
        X = torch.rand(30, 2)
        K = KernelOperator(kernel, X)
        first = K @ torch.ones(30)
        torch.testing.assert_close(K @ torch.ones(30), first)
        torch.testing.assert_close(first, kernel(X).sum(1))


def test_a_matrix_that_was_kept_goes_with_its_operator():
    K = KernelOperator(RBF().requires_grad_(False), torch.rand(50, 1))
    K @ torch.ones(50)
    assert K.tiles.keeps
    matrix = weakref.ref(K.tiles.matrix)
    gc.disable()
    try:
        del K
        assert matrix() is None
    finally:
        gc.enable()
