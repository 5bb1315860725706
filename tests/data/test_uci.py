import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matheron import data
from matheron.data.uci import SHAPES


def example(name: str, rows: int = 20) -> data.Regression:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, SHAPES[name][1], generator=generator, dtype=torch.float64)
    return data.Regression(name, X, X[:, 0] - 1, folds=torch.arange(rows).remainder(10).to(torch.uint8))


def write_masked(folder: Path, regression: data.Regression, *, gzipped: bool = True) -> None:
    folder.mkdir(parents=True)
    assert regression.folds is not None
    table = torch.cat([regression.X, regression.y[:, None]], dim=1).numpy()
    masks = torch.stack([regression.folds == fold for fold in range(10)], dim=1).numpy()
    end = ".gz" if gzipped else ""
    parts = {"data": table}
    if regression.name == "song":
        parts = {"data": table[:13], "data1": table[13:]}
    for file, part in parts.items():
        np.savetxt(folder / f"{file}.csv{end}", part, delimiter=",")
    np.savetxt(folder / f"test_mask.csv{end}", masks, delimiter=",", fmt="%d")


def assert_equal(read: data.Regression, written: data.Regression) -> None:
    assert torch.equal(read.X, written.X)
    assert torch.equal(read.y, written.y)
    assert (read.folds is None) == (written.folds is None)
    if read.folds is not None and written.folds is not None:
        assert torch.equal(read.folds, written.folds)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("place", ["{}", "uci_datasets/{}"])
def test_masked_tables_load_as_written(tmp_path: Path, name: str, place: str) -> None:
    written = example(name)
    write_masked(tmp_path / place.format(name), written, gzipped=place == "{}")
    assert_equal(data.load(name, tmp_path, partial=True), written)  # type: ignore[arg-type]


def test_masked_tables_and_archives_agree(tmp_path: Path, stored: Callable[[str], data.Dataset]) -> None:
    archive = stored("bike")
    assert isinstance(archive, data.Regression)
    write_masked(tmp_path / "bike", archive)
    assert_equal(data.load("bike", tmp_path), archive)


@pytest.mark.parametrize(
    ("name", "file", "target_first"),
    [
        ("3droad", "3D_spatial_network.txt", False),
        ("song", "YearPredictionMSD.txt", True),
        ("buzz", "Twitter.data", False),
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_public_tables_load_as_written(tmp_path: Path, name: str, file: str, target_first: bool, gzipped: bool) -> None:
    whole = example(name)
    written = data.Regression(name, whole.X, whole.y)
    parts = [written.y[:, None], written.X] if target_first else [written.X, written.y[:, None]]
    text = "".join(",".join(map(repr, row)) + "\n" for row in torch.cat(parts, dim=1).tolist()).encode()
    path = tmp_path / (file + ".gz" if gzipped else file)
    path.write_bytes(gzip.compress(text) if gzipped else text)
    assert_equal(data.load(name, tmp_path, partial=True), written)  # type: ignore[arg-type]


def test_archives_and_masked_tables_come_before_public_ones(tmp_path: Path) -> None:
    written = example("3droad")
    write_masked(tmp_path / "3droad", written)
    (tmp_path / "3D_spatial_network.txt").write_text("1,2,3,4\n")
    assert data.load("3droad", tmp_path, partial=True).folds is not None


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (np.eye(10), "10 rows for the 20 rows"),
        (np.ones((20, 10)), "exactly one split"),
        (np.zeros((20, 10)), "exactly one split"),
        (np.tile(0.1 * np.ones(10), (20, 1)), "exactly one split"),
        (np.tile(np.eye(9), (3, 1))[:20], "9 cells in line 1, where 10"),
    ],
)
def test_wrong_masks_are_refused(tmp_path: Path, masks: np.ndarray, message: str) -> None:
    write_masked(tmp_path / "pol", example("pol"))
    np.savetxt(tmp_path / "pol/test_mask.csv.gz", masks, delimiter=",")
    with pytest.raises(ValueError, match=message) as caught:
        data.load("pol", tmp_path, partial=True)
    assert "test_mask.csv" in str(caught.value)


@pytest.mark.parametrize("name", ["pol", "elevators", "bike", "protein", "keggdirected"])
def test_stored_benchmarks_have_the_published_shape_and_folds(name: str, stored: Callable[[str], data.Dataset]) -> None:
    regression = stored(name)
    assert isinstance(regression, data.Regression)
    assert tuple(regression.X.shape) == SHAPES[name]
    assert regression.folds is not None
    counts = torch.bincount(regression.folds.long(), minlength=10)
    assert len(counts) == 10
    assert int(counts.max() - counts.min()) <= 10
    deviation = regression.X.std(0)
    assert bool((regression.X.mean(0).abs() <= 1e-3 * deviation + 1e-12).all())
    split = regression.split(0)
    assert split.X_train.isfinite().all()
    assert split.X_test.isfinite().all()
    torch.testing.assert_close(split.X_train.std(0, correction=0), torch.ones(SHAPES[name][1]), rtol=1e-3, atol=1e-3)


def test_stored_oddities(stored: Callable[[str], data.Dataset]) -> None:
    pol, bike = stored("pol"), stored("bike")
    assert isinstance(pol, data.Regression)
    assert isinstance(bike, data.Regression)
    assert len(pol.y.unique()) == 11
    assert torch.equal(bike.X[:, 0], bike.X[:, 4])
    assert torch.equal(bike.X[:, 1], bike.X[:, 5])
