import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matheron.data import Regression
from matheron.data.regression import ALWAYS_TRAIN, standardize


def example(rows: int = 50, columns: int = 3, seed: int = 0, folds: torch.Tensor | None = None) -> Regression:
    generator = torch.Generator().manual_seed(seed)
    X = 5 + 3 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return Regression("example", X, X.sum(1) - 7, folds=folds)


@given(rows=st.integers(4, 60), columns=st.integers(1, 4), index=st.integers(0, 5))
def test_training_part_has_zero_mean_and_unit_deviation(rows: int, columns: int, index: int) -> None:
    split = example(rows, columns).split(index, dtype=torch.float64)
    one = torch.ones(columns, dtype=torch.float64)
    torch.testing.assert_close(split.X_train.mean(0), 0 * one)
    torch.testing.assert_close(split.X_train.std(0, correction=0), one)
    torch.testing.assert_close(split.y_train.mean(), 0 * one[0])
    torch.testing.assert_close(split.y_train.std(correction=0), one[0])


def test_statistics_do_not_see_the_test_rows() -> None:
    data = example()
    test = data.test_rows(0)
    moved = data.X.clone()
    moved[test] += 1000
    changed = Regression("moved", moved, data.y).split(0)
    assert torch.equal(changed.X_train, data.split(0).X_train)


def test_restore_undoes_the_scaling_of_targets() -> None:
    data = example()
    split = data.split(2, dtype=torch.float64)
    torch.testing.assert_close(split.restore(split.y_test), data.y[data.test_rows(2)])


def test_splits_are_float32_unless_asked_otherwise() -> None:
    assert example().split(0).X_train.dtype == torch.float32


def test_constant_column_is_zero_in_both_parts() -> None:
    # 0.1 is not a binary fraction, so the mean of many of them is rounded and a naive deviation is not zero.
    X = torch.full((1000, 2), 0.1, dtype=torch.float64)
    X[:, 1] = torch.arange(1000)
    X[0, 0] = 5.0
    split = standardize(X, X[:, 1], test=torch.arange(1000) == 0)
    assert not split.X_train[:, 0].any()
    assert not split.X_test[:, 0].any()


def test_constant_target_keeps_a_scale_of_one() -> None:
    X = torch.arange(4.0)[:, None]
    split = standardize(X, torch.full((4,), 2.0), test=torch.tensor([True, False, False, False]))
    assert split.y_scale == 1.0
    assert split.restore(split.y_test).tolist() == [2.0]


def test_tiny_scales_survive_the_cast() -> None:
    data = example()
    small = Regression("small", data.X * 1e-30, data.y).split(0)
    torch.testing.assert_close(small.X_train, data.split(0).X_train)


def test_folds_partition_the_rows() -> None:
    data = example(30, folds=torch.arange(30).remainder(10).to(torch.uint8))
    tests = torch.stack([data.test_rows(i) for i in range(10)])
    assert (tests.sum(0) == 1).all()


def test_rows_of_the_training_fold_are_never_tested_on() -> None:
    folds = torch.full((10,), ALWAYS_TRAIN, dtype=torch.uint8)
    folds[:2] = 0
    data = example(10, folds=folds)
    assert data.split(0).X_test.shape[0] == 2
    with pytest.raises(ValueError, match=r"splits \[0\]"):
        data.split(ALWAYS_TRAIN)


def test_random_splits_repeat_and_differ() -> None:
    data = example(200)
    assert torch.equal(data.test_rows(3), data.test_rows(3))
    assert not torch.equal(data.test_rows(3), data.test_rows(4))
    assert int(data.test_rows(3).sum()) == 20


def test_random_splits_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    example().split(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_split_names_the_known_ones() -> None:
    data = example(30, folds=torch.arange(30).remainder(3).to(torch.uint8))
    with pytest.raises(ValueError, match=r"index is 7.*\[0, 1, 2\]"):
        data.split(7)


@pytest.mark.usefixtures("without_shape_checks")
def test_bad_sets_are_refused() -> None:
    X, y = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(ValueError, match="y must have shape"):
        Regression("bad", X, torch.zeros(4))
    with pytest.raises(ValueError, match="y has 1 NaN"):
        Regression("bad", X, torch.tensor([0.0, float("nan"), 0.0]))
    with pytest.raises(ValueError, match="folds must be"):
        Regression("bad", X, y, folds=torch.zeros(2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="columns has 1 names"):
        Regression("bad", X, y, columns=("a",))
    with pytest.raises(ValueError, match="both parts"):
        Regression("bad", X[:1], y[:1]).split(0)
