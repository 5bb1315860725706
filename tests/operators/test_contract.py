"""What holds for every operator, stated once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron import operators
from matheron.operators import Operator
from tests.operators.registry import FACTORIES, Draw

DTYPES = (torch.float32, torch.float64)


def build(name, *, n=7, m=5, dtype=torch.float64, seed=0):
    draw = Draw(n, m, dtype, torch.Generator().manual_seed(seed))
    return FACTORIES[name](draw), draw


@pytest.fixture(params=FACTORIES)
def name(request):
    return request.param


@pytest.fixture
def square(name):
    """The case with as many rows as columns; one picked by a slice has fewer."""
    case, _ = build(name, n=6, m=6)
    if case.twin.shape[0] != case.twin.shape[1]:
        pytest.skip("never square")
    return case


def close(actual, expected):
    tolerance = 2e-5 if expected.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(actual.detach(), expected, rtol=tolerance, atol=tolerance)


def test_every_public_operator_is_held_to_the_contract():
    public = {getattr(operators, name) for name in operators.__all__}
    public = {thing for thing in public if isinstance(thing, type) and issubclass(thing, Operator)} - {Operator}
    assert public <= {type(build(name)[0].operator) for name in FACTORIES}


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 9),
    m=st.integers(1, 9),
    s=st.integers(0, 3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(DTYPES),
)
@pytest.mark.parametrize("name", FACTORIES)
def test_products_agree_with_the_dense_twin(name, n, m, s, seed, dtype):
    case, draw = build(name, n=n, m=m, seed=seed, dtype=dtype)
    assert case.operator.shape == tuple(case.twin.shape)
    V, U = draw.normal(case.twin.shape[1], s), draw.normal(case.twin.shape[0], s)
    for actual, expected in ((case.operator @ V, case.twin @ V), (case.operator.T @ U, case.twin.T @ U)):
        assert actual.dtype == dtype
        assert actual.device == V.device
        close(actual, expected)


@settings(max_examples=12, deadline=None)
@given(n=st.integers(1, 9), m=st.integers(1, 9), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", FACTORIES)
def test_adjointness_and_linearity(name, n, m, seed):
    case, draw = build(name, n=n, m=m, seed=seed)
    A, (rows, columns) = case.operator, case.twin.shape
    v, w, u = draw.normal(columns), draw.normal(columns), draw.normal(rows)
    close((A @ v) @ u, v @ (A.T @ u).detach())
    close(A @ (2.0 * v - 3.0 * w), (2.0 * (A @ v) - 3.0 * (A @ w)).detach())


def test_the_upper_half_of_a_symmetric_operator_is_in_float64(square):
    if not torch.allclose(square.twin, square.twin.mT):
        pytest.skip("not symmetric")
    found = square.operator.upper()
    assert found.dtype == torch.float64
    close(found.triu(), square.twin.triu())


def test_a_vector_is_one_column(name):
    case, draw = build(name)
    v = draw.normal(case.twin.shape[1])
    assert (case.operator @ v).shape == (case.twin.shape[0],)
    close(case.operator @ v, (case.operator @ v[:, None])[:, 0].detach())


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_device_are_kept(name, dtype):
    case, _ = build(name, dtype=dtype)
    for operator in (case.operator, case.operator.T, case.operator.rows(slice(0, 2)), 2.0 * case.operator):
        assert operator.dtype == dtype
        assert operator.device.type == "cpu"
        assert operator.dense().dtype == dtype


def test_the_dense_form_is_the_twin_and_transposing_twice_is_nothing(name):
    case, _ = build(name)
    close(case.operator.dense(), case.twin)
    close(case.operator.T.dense(), case.twin.T)
    close(case.operator.T.T.dense(), case.twin)
    assert case.operator.T.shape == case.operator.shape[::-1]


def test_the_diagonal(square):
    close(square.operator.diagonal(), square.twin.diagonal())


INDICES = [slice(0, 3), slice(2, None), slice(0, 0), slice(-2, None), slice(0, 6, 2), [4, 0], [-1, 2], [3, 3, 1], []]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_rows(name, index):
    case, draw = build(name, n=6, m=8)
    index = index if isinstance(index, slice) else torch.tensor(index, dtype=torch.int64) % case.twin.shape[0]
    picked = case.operator.rows(index)
    assert picked.shape == tuple(case.twin[index].shape)
    V, U = draw.normal(case.twin.shape[1], 2), draw.normal(picked.shape[0], 2)
    close(picked @ V, case.twin[index] @ V)
    close(picked.T @ U, case.twin[index].T @ U)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_blocks(square, index):
    index = index if isinstance(index, slice) else torch.tensor(index, dtype=torch.int64)
    close(square.operator.block(index), square.twin[index][:, index])


def test_permuting_rows_and_columns(square):
    order = torch.randperm(len(square.twin), generator=torch.Generator().manual_seed(1))
    close(square.operator.permuted(order).dense(), square.twin[order][:, order])


def test_the_algebra(name):
    case, draw = build(name)
    rows, columns = case.twin.shape
    other = draw.normal(rows, columns)
    A, B = case.operator, operators.Dense(other)
    close((A + B).dense(), case.twin + other)
    close((B + A).dense(), case.twin + other)
    close((A - B).dense(), case.twin - other)
    close((-A).dense(), -case.twin)
    close((2.0 * A).dense(), 2.0 * case.twin)
    close((A * torch.tensor(2.0)).dense(), 2.0 * case.twin)
    close((A @ B.T).dense(), case.twin @ other.T)
    close((B.T @ A).dense(), other.T @ case.twin)


def test_shift(square):
    n = len(square.twin)
    values = torch.arange(1.0, n + 1.0, dtype=torch.float64)
    close(square.operator.shift(0.5).dense(), square.twin + 0.5 * torch.eye(n, dtype=torch.float64))
    close(square.operator.shift(values).dense(), square.twin + values.diag())


def test_a_single_row_and_a_single_column(name):
    case, draw = build(name, n=1, m=1)
    v = draw.normal(case.twin.shape[1], 1)
    close(case.operator @ v, case.twin @ v)


@pytest.mark.usefixtures("unchecked")
def test_right_hand_sides_that_do_not_fit_are_refused(name):
    operator = build(name)[0].operator
    columns = operator.shape[1]
    with pytest.raises(ValueError, match="takes"):
        operator @ torch.ones(columns + 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="takes"):
        operator @ torch.ones(columns, 1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="takes"):
        operator @ torch.tensor(1.0, dtype=torch.float64)
    with pytest.raises(TypeError, match="convert one"):
        operator @ torch.ones(columns, dtype=torch.float32)
    with pytest.raises(TypeError, match="floating point"):
        operator @ torch.ones(columns, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        operator @ [1.0] * columns


@pytest.mark.usefixtures("unchecked")
def test_operators_that_do_not_fit_are_refused(name):
    operator = build(name)[0].operator
    rows, columns = operator.shape
    with pytest.raises(ValueError, match="one shape"):
        operator + operators.Dense(torch.ones(rows + 1, columns, dtype=torch.float64))
    with pytest.raises(ValueError, match="inner sizes"):
        operator @ operators.Dense(torch.ones(columns + 1, 2, dtype=torch.float64))
    with pytest.raises(TypeError, match="convert one"):
        operator + operators.Dense(torch.ones(rows, columns, dtype=torch.float32))
    with pytest.raises(ValueError, match="single number"):
        operator * torch.ones(2, dtype=torch.float64)
    for wrong in (lambda: operator + 1.0, lambda: operator - 1.0, lambda: operator * operator):
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong()


@pytest.mark.usefixtures("unchecked")
def test_only_square_operators_have_a_diagonal_and_blocks():
    wide = operators.Dense(torch.ones(2, 3))
    for operator in (wide, wide.T, wide @ wide.T @ wide, 2.0 * wide, wide + wide, operators.Selection(slice(0, 2), 3)):
        with pytest.raises(ValueError, match="square"):
            operator.diagonal()
        with pytest.raises(ValueError, match="square"):
            operator.block(slice(0, 1))


def test_a_single_number_on_the_diagonal_takes_its_size_from_the_other():
    A = operators.Dense(torch.ones(2, 2, dtype=torch.float64))
    eye = torch.eye(2, dtype=torch.float64)
    noise = operators.Diagonal(0.5)
    close((A + noise).dense(), A.matrix + 0.5 * eye)
    close((A + 2.0 * noise).dense(), A.matrix + eye)
    close((A - noise).dense(), A.matrix - 0.5 * eye)
    close((noise @ A).dense(), 0.5 * A.matrix)
    close((A @ noise).dense(), 0.5 * A.matrix)
    with pytest.raises(ValueError, match="no shape of its own"):
        noise.shape  # noqa: B018


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("values", [float("nan"), torch.tensor([1.0, torch.inf])])
def test_a_diagonal_is_finite(values):
    with pytest.raises(ValueError, match="values"):
        operators.Diagonal(values)
