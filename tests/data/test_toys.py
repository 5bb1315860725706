from collections.abc import Callable

import torch

from matheron import data


def test_matern_1d_is_standardized_in_two_clusters(stored: Callable[[str], data.Dataset]) -> None:
    toy = stored("matern_1d")
    assert isinstance(toy, data.Regression)
    assert toy.X.shape == (400, 1)
    assert abs(float(toy.X.mean())) < 1e-3
    assert abs(float(toy.y.std()) - 1) < 1e-2
    x = toy.X[:, 0].sort().values
    assert int((x.diff() > 0.5).sum()) == 1


def test_simple_1d_splits_into_its_halves(stored: Callable[[str], data.Dataset]) -> None:
    toy = stored("simple_1d")
    assert isinstance(toy, data.Regression)
    split = toy.split(0)
    assert split.X_train.shape == split.X_test.shape == (501, 1)
    torch.testing.assert_close(split.restore(split.y_test).double(), toy.y[501:], rtol=1e-5, atol=1e-5)


def test_planar_toys_have_two_inputs(stored: Callable[[str], data.Dataset]) -> None:
    for name in ("axis", "origin"):
        toy = stored(name)
        assert isinstance(toy, data.Regression)
        assert toy.X.shape == (100, 2)
