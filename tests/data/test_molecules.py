from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from matheron import data

TABLE = "inchikey\tsmiles\tF2\tKIT\nKEY-A\tCCO\t-7.5\t\nKEY-B\tCC\t-6.0\t-5.5\nKEY-C\tC\t\t-4.0\n"
SPLIT = "inchikey\tsmiles\tsplit\nKEY-C\tC\ttest\nKEY-A\tCCO\ttrain\nKEY-B\tCC\ttest\n"


def write(root: Path, table: str = TABLE, split: str | None = SPLIT) -> None:
    (root / "dockstring-dataset.tsv").write_text(table)
    if split is not None:
        (root / "cluster_split.tsv").write_text(split)


def test_dockstring_table_and_split_are_joined_by_key(tmp_path: Path) -> None:
    write(tmp_path)
    molecules = data.load("dockstring", tmp_path, partial=True)
    assert molecules.smiles == ("CCO", "CC", "C")
    assert molecules.identifiers == ("KEY-A", "KEY-B", "KEY-C")
    assert molecules.target_names == ("F2", "KIT")
    assert molecules.test is not None
    assert molecules.test.tolist() == [False, True, True]
    assert molecules.known("KIT").tolist() == [1, 2]
    assert molecules.target("F2")[:2].tolist() == [-7.5, -6.0]


def test_the_split_may_be_absent(tmp_path: Path) -> None:
    write(tmp_path, split=None)
    assert data.load("dockstring", tmp_path, partial=True).test is None


@pytest.mark.parametrize(
    ("table", "split", "message"),
    [
        ("smiles\tF2\nC\t1\n", SPLIT, r"dataset\.tsv has the header"),
        ("inchikey\tsmiles\tF2\n", SPLIT, r"dataset\.tsv has no molecules"),
        (TABLE.replace("-6.0", "low"), SPLIT, r"dataset\.tsv has a score in line 3"),
        (TABLE[:-6], SPLIT, r"dataset\.tsv has 3 cells in line 4, where 4 are needed"),
        (TABLE, "inchikey\tsplit\nKEY-A\ttrain\n", r"split\.tsv has None for the molecule KEY-B"),
        (TABLE, SPLIT.replace("train", "first"), r"split\.tsv has 'first' for the molecule KEY-A"),
        (TABLE, "inchikey\tpart\n", r"split\.tsv has the header"),
    ],
)
def test_faults_are_named(tmp_path: Path, table: str, split: str, message: str) -> None:
    write(tmp_path, table, split)
    with pytest.raises(ValueError, match=message):
        data.load("dockstring", tmp_path, partial=True)


def test_unknown_targets_and_sources_list_the_known_ones() -> None:
    molecules = data.Molecules("one", ("C",), torch.zeros(1, 1, dtype=torch.float64), ("F2",))
    with pytest.raises(ValueError, match="'KIT'; choose one of F2"):
        molecules.target("KIT")
    with pytest.raises(ValueError, match="source is 'zinc'"):
        molecules.known("F2", source="zinc")


def test_stored_scores_have_the_published_counts(stored: Callable[[str], data.Dataset]) -> None:
    molecules = stored("dockstring_partial")
    assert isinstance(molecules, data.Molecules)
    counts = {"F2": 97045, "PPARA": 83001, "JAK2": 68622, "KIT": 14139, "PARP1": 14372, "PGR": 14374}
    assert {name: len(molecules.known(name)) for name in counts} == counts
    sample = molecules.target("F2")[molecules.known("F2", source="zinc_random")]
    assert len(sample) == 14484
    assert abs(float(sample.mean()) + 7.82) < 0.01
    assert abs(float(sample.std()) - 0.82) < 0.01


def test_stored_qm9_starts_with_methane(stored: Callable[[str], data.Dataset]) -> None:
    molecules = stored("qm9")
    assert isinstance(molecules, data.Molecules)
    assert molecules.smiles[0] == "C"
    assert molecules.n_atoms is not None
    assert int(molecules.n_atoms[0]) == 5
    assert molecules.targets.shape == (130831, 9)
    assert not molecules.targets.isnan().any()
