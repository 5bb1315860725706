import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels.rows import entries, take_columns, take_rows


def sparse(n: int, d: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, d, generator=g) * (torch.rand(n, d, generator=g) < 0.4)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), n=st.integers(1, 6), d=st.integers(1, 6), seed=st.integers(0, 99))
def test_rows_of_csr_are_those_of_dense(data: st.DataObject, n: int, d: int, seed: int) -> None:
    x = sparse(n, d, seed)
    index = torch.tensor(data.draw(st.lists(st.integers(-n, n - 1), max_size=8)), dtype=torch.int64)
    start, stop = data.draw(st.integers(0, n)), data.draw(st.integers(0, n + 2))
    for rows in (index, slice(start, stop), slice(None, None, 2), x[:, 0] > 0):
        taken = take_rows(x.to_sparse_csr(), rows)
        assert taken.layout == torch.sparse_csr
        assert (taken.to_dense() == x[rows]).all()
        assert (take_rows(x, rows) == x[rows]).all()
    columns = data.draw(st.lists(st.integers(-d, d - 1), min_size=1, max_size=4))
    assert (take_columns(x.to_sparse_csr(), columns).to_dense() == x[:, columns]).all()


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 6), d=st.integers(1, 6), seed=st.integers(0, 99))
def test_entries_rebuild_the_matrix_and_mark_empty_rows(n: int, d: int, seed: int) -> None:
    x = sparse(n, d, seed)
    for layout in (x, x.to_sparse_csr()):
        pointers, columns, values = entries(layout)
        rebuilt = torch.zeros(n, d + 1)
        rebuilt[torch.arange(n).repeat_interleave(pointers.diff()), columns] = values
        assert (rebuilt[:, :d] == x).all()
        assert (rebuilt[:, d] == (x == 0).all(1).float()).all()


def test_rows_out_of_range_are_refused() -> None:
    with pytest.raises(IndexError):
        take_rows(torch.eye(3).to_sparse_csr(), torch.tensor([3]))
