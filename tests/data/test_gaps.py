from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matheron import data


def example() -> data.GapRegression:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    standard = torch.zeros(2, 12, dtype=torch.bool)
    standard[0, :3] = standard[1, 5:7] = True
    gap = torch.zeros(6, 12, dtype=torch.bool)
    gap[:, 4:8] = True
    return data.GapRegression("yacht_gap", X, X[:, 1] + 2, standard, gap)


def write_text(root: Path, regression: data.GapRegression, *, unused: int = 1) -> None:
    extra = torch.zeros(regression.rows, unused, dtype=torch.float64)
    table = torch.cat([regression.X, extra, regression.y[:, None]], dim=1)
    for kind in ("standard", "gap"):
        folder = root / f"UCI_for_sharing/{kind}/yacht/data"
        folder.mkdir(parents=True)
        for index, test in enumerate(getattr(regression, kind)):
            np.savetxt(folder / f"index_test_{index}.txt", test.nonzero()[:, 0].numpy())
    folder = root / "UCI_for_sharing/standard/yacht/data"
    np.savetxt(folder / "data.txt", table.numpy())
    np.savetxt(folder / "index_features.txt", np.arange(6), fmt="%d")
    np.savetxt(folder / "index_target.txt", [6 + unused], fmt="%d")


def assert_equal(read: data.GapRegression, written: data.GapRegression) -> None:
    for field in ("X", "y", "standard", "gap"):
        assert torch.equal(getattr(read, field), getattr(written, field))


def test_text_files_and_archives_load_as_written(tmp_path: Path) -> None:
    written = example()
    write_text(tmp_path / "text", written)
    (tmp_path / "archive").mkdir()
    np.savez(
        tmp_path / "archive/uci_dun_splits.npz",
        yacht_X=written.X.numpy(),
        yacht_y=written.y.numpy(),
        yacht_standard_split=1 + written.standard.numpy().astype(np.uint8),
        yacht_gap_split=1 + written.gap.numpy().astype(np.uint8),
    )
    for layout in ("text", "archive"):
        assert_equal(data.load("yacht_gap", tmp_path / layout, partial=True), written)


def test_split_tests_on_the_marked_rows() -> None:
    regression = example()
    split = regression.split(3, kind="gap", dtype=torch.float64)
    torch.testing.assert_close(split.restore(split.y_test), regression.y[4:8])
    assert regression.split(1).X_test.shape == (2, 6)


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="2 standard splits"):
        example().split(2)
    with pytest.raises(ValueError, match="6 gap splits"):
        example().split(6, kind="gap")


def test_faults_are_named(tmp_path: Path) -> None:
    write_text(tmp_path, example())
    folder = tmp_path / "UCI_for_sharing/standard/yacht/data"
    (folder / "index_test_1.txt").write_text("12\n")
    with pytest.raises(ValueError, match=r"index_test_1\.txt names row 12"):
        data.load("yacht_gap", tmp_path)
    (folder / "index_target.txt").write_text("9\n")
    with pytest.raises(ValueError, match=r"data\.txt has 8 columns, but column 9"):
        data.load("yacht_gap", tmp_path)
    (folder / "index_features.txt").write_text("0\n1\n")
    with pytest.raises(ValueError, match=r"index_features\.txt names 2 input columns"):
        data.load("yacht_gap", tmp_path)


def test_stored_gaps_leave_out_the_middle_of_their_input(stored: Callable[[str], data.Dataset]) -> None:
    concrete = stored("concrete_gap")
    assert isinstance(concrete, data.GapRegression)
    assert concrete.standard.shape == (20, 1030)
    assert concrete.gap.shape == (8, 1030)
    for column, test in zip(concrete.X.T, concrete.gap, strict=True):
        assert int(test.sum()) in range(1030 // 3 - 1, 1030 // 3 + 3)
        assert column[~test].min() <= column[test].min()
        assert column[test].max() <= column[~test].max()


def test_stored_constant_inputs_are_guarded(stored: Callable[[str], data.Dataset]) -> None:
    naval = stored("naval_gap")
    assert isinstance(naval, data.GapRegression)
    split = naval.split(0)
    assert split.X_train.isfinite().all()
    assert not split.X_train[:, [8, 11]].any()


def test_stored_protein_is_the_benchmark_with_its_target_before_the_logarithm(
    stored: Callable[[str], data.Dataset],
) -> None:
    raw, benchmark = stored("protein_gap"), stored("protein")
    assert isinstance(raw, data.GapRegression)
    assert isinstance(benchmark, data.Regression)
    # The two order their rows differently, so the sorted values are compared.
    logarithm = (raw.y + 1).log()
    centered = (logarithm - logarithm.mean()).sort().values
    torch.testing.assert_close(centered, benchmark.y.sort().values, rtol=0, atol=1e-3)
    column = (raw.X[:, 2] - raw.X[:, 2].mean()).sort().values
    torch.testing.assert_close(column, benchmark.X[:, 2].sort().values, rtol=0, atol=1e-4)
