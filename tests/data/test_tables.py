import gzip
from pathlib import Path

import numpy as np
import pytest

from matheron.data.tables import read_table


@pytest.mark.parametrize("gzipped", [False, True])
def test_plain_and_gzipped_tables_read_alike(tmp_path: Path, gzipped: bool) -> None:
    text = b"1,2.5\n-3e-4,4\n"
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(text) if gzipped else text)
    assert read_table(path, 2).tolist() == [[1.0, 2.5], [-3e-4, 4.0]]


def test_byte_order_mark_blank_lines_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2\r\n\r\n3,4\r\n")
    assert read_table(path, 2).tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "has no rows"),
        ("1,2\n3\n", "has 1 cells in line 2, where 2 are needed"),
        ("1,2,3\n4,5,6\n", "has 3 cells in line 1, where 2 are needed"),
        ("1,2\n\n3,x\n", "has 'x' in line 3, cell 2, which is not a number"),
        ("1,2\n3,\n", "has '' in line 2, cell 2, which is not a number"),
        ("1,nan\n", "has 'nan' in line 1, cell 2, where a finite number is needed"),
        ("1,2\n-inf,2\n", "has '-inf' in line 2, cell 1"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git LFS pointer"),
    ],
)
def test_faults_are_found(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path, 2)
    assert str(path) in str(caught.value)
    assert "fresh copy" in str(caught.value)


def test_truncated_gzip_and_other_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    rows = np.random.default_rng(0).integers(0, 9, (500, 2))
    whole = gzip.compress("".join(f"{a},{b}\n" for a, b in rows).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be read to its end"):
        read_table(path, 2)
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="cannot be read to its end"):
        read_table(path, 2)
