"""Data sets by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, overload

from matheron.data import cifar, fingerprints, flights, gaps, household, idx, molecules, scans, terrain, toys, uci
from matheron.data.files import Source
from matheron.data.fingerprints import Fingerprints
from matheron.data.gaps import GapRegression
from matheron.data.images import Images
from matheron.data.molecules import Molecules
from matheron.data.regression import Regression
from matheron.data.scans import ConeScan
from matheron.data.terrain import Terrain

Dataset: TypeAlias = Regression | GapRegression | Images | Molecules | Fingerprints | ConeScan | Terrain

# The literals let a type checker know what a spelled-out name loads; a test keeps them equal to the tables.
RegressionName: TypeAlias = Literal[
    "pol",
    "elevators",
    "bike",
    "protein",
    "keggdirected",
    "3droad",
    "song",
    "buzz",
    "houseelectric",
    "houseelectric_subset",
    "nycflights13",
    "matern_1d",
    "simple_1d",
    "agw_1d",
    "wiggle",
    "axis",
    "origin",
]
GapName: TypeAlias = Literal[
    "boston_gap",
    "concrete_gap",
    "energy_gap",
    "kin8nm_gap",
    "naval_gap",
    "power_gap",
    "protein_gap",
    "wine_gap",
    "yacht_gap",
]
ImagesName: TypeAlias = Literal["mnist", "kmnist", "kmnist_subset", "cifar10", "cifar100"]
MoleculesName: TypeAlias = Literal["dockstring", "dockstring_partial", "qm9"]

_REGRESSION: dict[str, Source[Regression]] = {**uci.SOURCES, **household.SOURCES, **flights.SOURCES, **toys.SOURCES}
_IMAGES: dict[str, Source[Images]] = {**idx.SOURCES, **cifar.SOURCES}
_SOURCES: dict[str, tuple[type[Dataset], Source]] = {
    **{name: (Regression, source) for name, source in _REGRESSION.items()},
    **{name: (GapRegression, source) for name, source in gaps.SOURCES.items()},
    **{name: (Images, source) for name, source in _IMAGES.items()},
    **{name: (Molecules, source) for name, source in molecules.SOURCES.items()},
    **{name: (Fingerprints, source) for name, source in fingerprints.SOURCES.items()},
    **{name: (ConeScan, source) for name, source in scans.SOURCES.items()},
    **{name: (Terrain, source) for name, source in terrain.SOURCES.items()},
}


@dataclass(frozen=True)
class Description:
    """What a set is, where it comes from and which files are accepted.

    >>> description = describe("mnist")
    >>> description.kind, description.rows
    ('Images', 70000)
    >>> description.layouts[0]
    'mnist.npz'
    """

    name: str
    kind: str
    rows: int | None
    origin: str
    license: str
    layouts: tuple[str, ...]
    note: str

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.kind}, {self.rows} rows when complete",
            f"origin: {self.origin}",
            f"license: {self.license}",
            "under the data directory (MATHERON_DATA or root), the first of these that is there:",
            *(f"  - {layout}" for layout in self.layouts),
        ]
        return "\n".join(lines + ([self.note] if self.note else []))


def names() -> tuple[str, ...]:
    """Return the names ``load`` accepts, whether or not their files are at hand.

    >>> "pol" in names()
    True
    """
    return tuple(_SOURCES)


def describe(name: str) -> Description:
    """Return where a set comes from, its license and where to put its files.

    >>> print(describe("walnut"))
    walnut: ConeScan, 241 rows when complete
    origin: the source distribution of the Python package diffct (Meaney 2022, Zenodo record 6986012)
    license: CC BY 4.0
    under the data directory (MATHERON_DATA or root), the first of these that is there:
      - walnut_cone.npz
    241 views over a full turn, the detector binned to 256 by 256; there is no ground truth.
    """
    kind, source = _find(name)
    layouts = tuple(str(layout) for layout in source.layouts)
    return Description(name, kind.__name__, source.rows, source.origin, source.license, layouts, source.note)


@overload
def load(name: RegressionName, root: str | Path | None = None, *, partial: bool = False) -> Regression: ...
@overload
def load(name: GapName, root: str | Path | None = None, *, partial: bool = False) -> GapRegression: ...
@overload
def load(name: ImagesName, root: str | Path | None = None, *, partial: bool = False) -> Images: ...
@overload
def load(name: MoleculesName, root: str | Path | None = None, *, partial: bool = False) -> Molecules: ...
@overload
def load(
    name: Literal["dockstring_f2_morgan"], root: str | Path | None = None, *, partial: bool = False
) -> Fingerprints: ...
@overload
def load(name: Literal["walnut"], root: str | Path | None = None, *, partial: bool = False) -> ConeScan: ...
@overload
def load(name: Literal["dem"], root: str | Path | None = None, *, partial: bool = False) -> Terrain: ...
@overload
def load(name: str, root: str | Path | None = None, *, partial: bool = False) -> Dataset: ...
def load(name: str, root: str | Path | None = None, *, partial: bool = False) -> Dataset:
    """Read a set from the directory ``root``, or from the one ``MATHERON_DATA`` names.

    A set with another number of rows than was published is refused, as a truncated download would be silent
    otherwise; ``partial=True`` accepts it.
    """
    _, source = _find(name)
    data: Dataset = source.read(name, root)
    if not partial and source.rows is not None and data.rows != source.rows:
        raise ValueError(
            f"{name} has {data.rows} rows where {source.rows} were published: its file may be truncated; "
            "replace it with a fresh copy, or pass partial=True to work with these rows"
        )
    return data


def _find(name: str) -> tuple[type[Dataset], Source]:
    if name not in _SOURCES:
        raise ValueError(f"name is {name!r}, which is no data set; choose one of {', '.join(_SOURCES)}")
    return _SOURCES[name]
