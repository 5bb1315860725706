"""Reading tables of numbers from text files, plain or gzipped."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from matheron.data.files import damaged

UNREADABLE = (EOFError, OSError, zlib.error, UnicodeDecodeError)


def open_bytes(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file for reading, decompressing it where its first bytes are those of gzip."""
    with path.open("rb") as file:
        start = file.read(40)
    if not start:
        raise damaged(path, "is empty")
    if start.startswith(b"version ") and b"git-lfs" in start:
        raise damaged(path, "is a git LFS pointer, not the data: run `git lfs pull` in the repository it came from")
    return gzip.open(path, "rb") if start.startswith(b"\x1f\x8b") else path.open("rb")


def read_bytes(path: Path) -> bytes:
    """Return the whole content of a file, decompressed."""
    try:
        with open_bytes(path) as file:
            return file.read()
    except UNREADABLE as error:
        raise damaged(path, f"cannot be decompressed to its end ({error})") from error


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, without their ends."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except UNREADABLE as error:
        raise damaged(path, f"cannot be read to its end ({error})") from error


def read_table(
    path: Path, columns: int | None, *, delimiter: str | None = ",", prepare: Callable[[str], str] | None = None
) -> np.ndarray:
    """Return a ``(rows, columns)`` float64 array; without ``columns`` the first line sets the width.

    ``prepare`` edits each line before it is read, and drops it by returning ''.
    """

    def lines() -> Iterator[str]:
        return read_lines(path) if prepare is None else map(prepare, read_lines(path))

    remaining = lines()
    first = next((line for line in remaining if line.strip()), None)
    if first is None:
        raise damaged(path, "has no rows")
    if columns is None:
        columns = len(first.split(delimiter))
    try:
        table = np.loadtxt(chain([first], remaining), delimiter=delimiter, comments=None, ndmin=2, dtype=np.float64)
    except ValueError as error:
        # Numpy counts the rows it was given; a second pass names the line of the file.
        raise damaged(path, _fault(lines(), columns, delimiter) or str(error)) from error
    if table.shape[1] != columns or not np.isfinite(table).all():
        raise damaged(path, _fault(lines(), columns, delimiter) or f"does not have {columns} columns of finite numbers")
    return table


def _fault(lines: Iterable[str], columns: int, delimiter: str | None) -> str | None:
    for number, line in enumerate(lines, start=1):
        cells = line.split(delimiter)
        if not line.strip():
            continue
        if len(cells) != columns:
            return f"has {len(cells)} cells in line {number}, where {columns} are needed"
        for column, cell in enumerate(cells, start=1):
            try:
                finite = np.isfinite(float(cell))
            except ValueError:
                return f"has {cell!r} in line {number}, cell {column}, which is not a number"
            if not finite:
                return f"has {cell!r} in line {number}, cell {column}, where a finite number is needed"
    return None
