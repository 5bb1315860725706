from pathlib import Path

import numpy as np
import pytest

from matheron import data


def write(path: Path, **members: object) -> None:
    arrays: dict[str, object] = {
        "X": np.ones((4, 26), dtype=np.float32),
        "y": np.ones(4, dtype=np.float32),
        "test_fold": np.zeros(4, dtype=np.uint8),
    }
    arrays.update(members)
    np.savez(path, **{member: array for member, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"y": None}, "lacks the member"),
        ({"X": np.ones((4, 25))}, "25 input columns, where 26"),
        ({"y": np.ones(3)}, "unequal length"),
        ({"y": np.ones((4, 1))}, "1 dimensions are needed"),
        ({"y": np.array([1.0, np.nan, 1.0, 1.0])}, "NaN or infinite entries in member y"),
        ({"X": np.ones((0, 26))}, "nothing in member X"),
    ],
)
def test_wrong_members_are_named(tmp_path: Path, members: dict[str, object], message: str) -> None:
    path = tmp_path / "uci_pol.npz"
    write(path, **members)
    with pytest.raises(ValueError, match=message) as caught:
        data.load("pol", tmp_path)
    assert str(path) in str(caught.value)


def test_unreadable_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "uci_pol.npz"
    write(path)
    whole = path.read_bytes()
    np.save(tmp_path / "bare.npy", np.ones(3))
    for content in (b"", b"not an archive", whole[: len(whole) // 2], (tmp_path / "bare.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"uci_pol\.npz is not a readable npz archive"):
            data.load("pol", tmp_path)


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "uci_pol.npz"
    write(path, y=np.arange(4, dtype=np.float32) + 0.25)
    content = path.read_bytes()
    path.write_bytes(content.replace(np.float32(3.25).tobytes(), np.float32(3.5).tobytes()))
    with pytest.raises(ValueError, match="not a readable npz archive"):
        data.load("pol", tmp_path)
