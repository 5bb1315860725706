from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matheron import data


def write(path: Path, **changes: np.ndarray) -> None:
    members = {
        "row": np.array([4, 9, 11], np.int32),
        "indptr": np.array([0, 2, 2, 3], np.int32),
        "indices": np.array([0, 1023, 5], np.uint16),
        "counts": np.array([2, 1, 7], np.uint8),
        "F2_x10": np.array([-75, -80, -60], np.int16),
    }
    np.savez(path, **{**members, **changes})


def test_dense_rows_are_the_stored_counts(tmp_path: Path) -> None:
    write(tmp_path / "dockstring_F2_morgan.npz")
    prints = data.load("dockstring_f2_morgan", tmp_path, partial=True)
    dense = prints.dense()
    wanted = torch.zeros(3, 1024)
    wanted[0, 0], wanted[0, 1023], wanted[2, 5] = 2, 1, 7
    assert torch.equal(dense, wanted)
    rows = torch.tensor([2, 1, 0, 2])
    assert torch.equal(prints.dense(rows), wanted[rows])
    assert prints.y.tolist() == [-7.5, -8.0, -6.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": np.array([0, 2, 2, 4])}, "indptr that does not fit"),
        ({"indptr": np.array([0, 2, 3])}, "indptr that does not fit"),
        ({"indices": np.array([0, 1024, 5])}, "has a bin 1024"),
        ({"counts": np.array([1, 2])}, "unequal length"),
    ],
)
def test_faults_are_named(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    write(tmp_path / "dockstring_F2_morgan.npz", **changes)
    with pytest.raises(ValueError, match=message):
        data.load("dockstring_f2_morgan", tmp_path, partial=True)


def test_stored_fingerprints_belong_to_their_molecules(stored: Callable[[str], data.Dataset]) -> None:
    prints, molecules = stored("dockstring_f2_morgan"), stored("dockstring_partial")
    assert isinstance(prints, data.Fingerprints)
    assert isinstance(molecules, data.Molecules)
    assert torch.equal(prints.y, molecules.target("F2")[prints.row])
    assert abs(len(prints.indices) / prints.rows - 32.6) < 0.1
