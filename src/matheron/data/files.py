"""Where the files of a data set lie, and what is said when they are missing or damaged."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Generic, TypeVar

ROOT_VARIABLE = "MATHERON_DATA"
_NEVER_GZIPPED = (".npz", ".json", ".zip")

T = TypeVar("T")


class DataNotFound(FileNotFoundError):
    """The files of a data set are not there; the message says where they come from and where to put them.

    >>> try:
    ...     raise DataNotFound("pol is not there")
    ... except FileNotFoundError as error:
    ...     print(error)
    pol is not there
    """


def damaged(path: Path, what: str) -> ValueError:
    """Return the error for a file that is there but is truncated, empty or not what its name says."""
    return ValueError(f"{path} {what}; replace it with a fresh copy (matheron.data.describe says from where)")


def data_root(root: str | Path | None) -> Path | None:
    """Return ``root``, or the directory named by ``MATHERON_DATA``, or None where neither is given."""
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if chosen is None or chosen == "":
        return None
    directory = Path(chosen).expanduser()
    if not directory.is_dir():
        named = "root" if root is not None else ROOT_VARIABLE
        raise DataNotFound(f"{named} is {directory}, which is not a directory; create it or point {named} elsewhere")
    return directory


@dataclass(frozen=True)
class Layout(Generic[T]):
    """One way the files of a set may lie: paths under the data root, or inside an installed package.

    >>> print(Layout(("pol/data.csv", "pol/test_mask.csv"), read=print))
    pol/data.csv, pol/test_mask.csv (plain or with .gz added)
    """

    files: tuple[str, ...]
    read: Callable[..., T]
    package: str | None = None

    def __str__(self) -> str:
        if self.package is not None:
            return f"the installed Python package {self.package}, which carries the files"
        return ", ".join(self.files) + ("" if self.files[0].endswith(_NEVER_GZIPPED) else " (plain or with .gz added)")

    def locate(self, root: Path | None) -> list[Path | None]:
        """Return the path of each file, or None where it is missing."""
        if self.package is not None:
            # The package itself is not imported: that would load pandas or a plotting library for a file's sake.
            try:
                package = metadata.distribution(self.package)
            except metadata.PackageNotFoundError:
                return [None] * len(self.files)
            candidates = [[Path(str(package.locate_file(file)))] for file in self.files]
        elif root is None:
            return [None] * len(self.files)
        else:
            candidates = [
                [root / file] if file.endswith(_NEVER_GZIPPED) else [root / file, root / f"{file}.gz"]
                for file in self.files
            ]
        return [next((path for path in paths if path.is_file()), None) for paths in candidates]


@dataclass(frozen=True)
class Source(Generic[T]):
    """Where a set comes from, its layouts in the order they are tried, and how many rows it has when complete.

    >>> layout = Layout(("table.csv",), read=lambda path: path.read_text())
    >>> Source("the example archive", "CC0", (layout,)).origin
    'the example archive'
    """

    origin: str
    license: str
    layouts: tuple[Layout[T], ...]
    rows: int | None = None
    note: str = ""

    def read(self, name: str, root: str | Path | None) -> T:
        """Read the first layout all of whose files are there."""
        directory = data_root(root)
        incomplete = []
        for layout in self.layouts:
            paths = layout.locate(directory)
            if None not in paths:
                return layout.read(*paths)
            if any(paths):
                missing = ", ".join(file for file, path in zip(layout.files, paths, strict=True) if path is None)
                incomplete.append(f"\nOf one layout only a part is there; missing: {missing}.")
        raise DataNotFound(self.missing(name, directory) + "".join(incomplete))

    def missing(self, name: str, directory: Path | None) -> str:
        """Say where the set comes from, which files are accepted and where to put them."""
        where = (
            f"in {directory}" if directory is not None else f"to be found: neither root nor {ROOT_VARIABLE} was given"
        )
        accepted = "\n".join(f"  - {layout}" for layout in self.layouts)
        return (
            f"{name} is not {where}. It comes from {self.origin}. "
            f"Put one of the following into a directory and set {ROOT_VARIABLE} to it, or pass it as root:\n{accepted}"
        )
