"""Molecules as SMILES strings with real-valued targets: docking scores and QM9."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from matheron.data.arrays import read_arrays, require_rows, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.tables import read_lines

_NOT_DOCKED = -32768


@dataclass(frozen=True, eq=False)
class Molecules:
    """SMILES strings and one target per column, NaN where a target was not computed.

    ``test`` marks the test rows of a published split; ``sources`` says which of several collections hold a molecule.

    >>> scores = torch.tensor([[-7.5, float("nan")], [-6.0, -5.0]], dtype=torch.float64)
    >>> molecules = Molecules("two", ("CCO", "CC"), scores, ("F2", "KIT"))
    >>> molecules.known("KIT")
    tensor([1])
    >>> molecules.target("F2")
    tensor([-7.5000, -6.0000], dtype=torch.float64)
    """

    name: str
    smiles: tuple[str, ...]
    targets: Float64[Tensor, "n t"]
    target_names: tuple[str, ...]
    identifiers: tuple[str, ...] | None = None
    test: Bool[Tensor, " n"] | None = None
    sources: Bool[Tensor, "n s"] | None = None
    source_names: tuple[str, ...] = ()
    n_atoms: Int64[Tensor, " n"] | None = None

    def __post_init__(self) -> None:
        if self.targets.shape != (len(self.smiles), len(self.target_names)):
            raise ValueError(
                f"targets has shape {tuple(self.targets.shape)} for {len(self.smiles)} smiles "
                f"and {len(self.target_names)} target_names; give one row per molecule and one column per name"
            )
        if self.source_names and self.sources is None:
            raise ValueError("source_names is given without sources; mark which of them hold each molecule")

    @property
    def rows(self) -> int:
        """The number of molecules."""
        return len(self.smiles)

    def target(self, name: str) -> Float64[Tensor, " n"]:
        """Return the column of one target."""
        return self.targets[:, _position("name", name, self.target_names)]

    def known(self, name: str, source: str | None = None) -> Int64[Tensor, " m"]:
        """Return the rows that have the target, and belong to ``source`` where one is named."""
        present = ~self.target(name).isnan()
        if source is not None:
            position = _position("source", source, self.source_names)
            assert self.sources is not None  # for the type checker: names come with marks
            present &= self.sources[:, position]
        return present.nonzero()[:, 0]


def _position(argument: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise ValueError(f"{argument} is {name!r}; choose one of {', '.join(names) or 'none, this set names none'}")
    return names.index(name)


def read_dockstring(table: Path, split: Path | None = None) -> Molecules:
    """Read ``dockstring-dataset.tsv`` (inchikey, smiles, targets) and ``cluster_split.tsv`` where it is there."""
    rows = _cells(table)
    header = next(rows)
    if header[:2] != ["inchikey", "smiles"] or len(header) < 3:
        raise damaged(table, f"has the header {header[:3]}, which must start with inchikey, smiles and a target")
    keys, smiles, scores = [], [], array("d")
    for number, cells in enumerate(rows, start=2):
        keys.append(cells[0])
        smiles.append(cells[1])
        try:
            scores.extend(float(cell) if cell else float("nan") for cell in cells[2:])
        except ValueError as error:
            raise damaged(table, f"has a score in line {number} that is not a number ({error})") from error
    if not keys:
        raise damaged(table, "has no molecules")
    return Molecules(
        "dockstring",
        tuple(smiles),
        tensor(np.frombuffer(scores).reshape(len(keys), -1), torch.float64).clone(),
        tuple(header[2:]),
        identifiers=tuple(keys),
        test=None if split is None else _test_rows(split, keys),
    )


def _test_rows(path: Path, keys: list[str]) -> Bool[Tensor, " n"]:
    rows = _cells(path)
    header = next(rows)
    if "inchikey" not in header or "split" not in header:
        raise damaged(path, f"has the header {header}, which must name inchikey and split")
    key, part = header.index("inchikey"), header.index("split")
    parts = {cells[key]: cells[part] for cells in rows}
    unknown = next((name for name in keys if parts.get(name) not in ("train", "test")), None)
    if unknown is not None:
        raise damaged(path, f"has {parts.get(unknown)!r} for the molecule {unknown}, where train or test is needed")
    return torch.tensor([parts[name] == "test" for name in keys])


def _cells(path: Path) -> Iterator[list[str]]:
    width = None
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        width = width or len(cells)
        if len(cells) != width:
            raise damaged(path, f"has {len(cells)} cells in line {number}, where {width} are needed")
        yield cells


def read_dockstring_partial(path: Path) -> Molecules:
    """Read ten times the scores as integers, with the bit mask of the collections each molecule is in."""
    arrays = read_arrays(path, smiles_text=1, scores_x10=2, targets=1, source_bits=1, source_names=1)
    require_rows(path, arrays, "scores_x10", "source_bits")
    scores = arrays["scores_x10"].astype(np.float64)
    scores[scores == _NOT_DOCKED] = np.nan
    bits = arrays["source_bits"][:, None] >> np.arange(len(arrays["source_names"]), dtype=np.uint16) & 1
    return Molecules(
        "dockstring_partial",
        _smiles(path, arrays["smiles_text"], len(scores)),
        tensor(scores / 10, torch.float64),
        tuple(str(name) for name in arrays["targets"]),
        sources=tensor(bits, torch.bool),
        source_names=tuple(str(name) for name in arrays["source_names"]),
    )


def read_qm9(path: Path) -> Molecules:
    """Read the properties of QM9, whose identifiers are the original numbers."""
    arrays = read_arrays(path, smiles_text=1, index=1, n_atoms=1, props=2, prop_names=1)
    require_rows(path, arrays, "index", "n_atoms", "props")
    return Molecules(
        "qm9",
        _smiles(path, arrays["smiles_text"], len(arrays["props"])),
        tensor(arrays["props"], torch.float64),
        tuple(str(name) for name in arrays["prop_names"]),
        identifiers=tuple(str(number) for number in arrays["index"]),
        n_atoms=tensor(arrays["n_atoms"], torch.int64),
    )


def _smiles(path: Path, text: np.ndarray, rows: int) -> tuple[str, ...]:
    smiles = tuple(text.tobytes().decode().split("\n"))
    if len(smiles) != rows:
        raise damaged(path, f"has {len(smiles)} SMILES strings for {rows} rows of targets")
    return smiles


_TABLE, _SPLIT = "dockstring-dataset.tsv", "cluster_split.tsv"

SOURCES: dict[str, Source[Molecules]] = {
    "dockstring": Source(
        origin="the dockstring project (García-Ortegón et al. 2022), dataset and cluster split",
        license="see the dockstring project; the molecules are from ExCAPE-DB",
        layouts=(
            Layout((_TABLE, _SPLIT), read_dockstring),
            Layout((f"dockstring/{_TABLE}", f"dockstring/{_SPLIT}"), read_dockstring),
            Layout((_TABLE,), read_dockstring),
        ),
        rows=260155,
        note="Lower scores are better; the published experiments clip them at +5.",
    ),
    "dockstring_partial": Source(
        origin="the repository dockstring/experiments-from-paper (official results), merged by SMILES",
        license="MIT; the molecules are from ZINC, whose terms forbid redistributing large parts",
        layouts=(Layout(("dockstring_partial.npz",), read_dockstring_partial),),
        rows=287560,
        note="Unbiased only within the source zinc_random; one PGR score is +75.7.",
    ),
    "qm9": Source(
        origin="the Python package qm9pack (QM9, Ramakrishnan et al. 2014), geometries left out",
        license="package MIT; data not stated there",
        layouts=(Layout(("qm9.npz",), read_qm9),),
        rows=130831,
        note="Without the uncharacterized molecules.",
    ),
}
