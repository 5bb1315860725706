from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from matheron import data
from matheron.data import catalog


@pytest.mark.parametrize(
    ("literal", "kind"),
    [
        (catalog.RegressionName, "Regression"),
        (catalog.GapName, "GapRegression"),
        (catalog.ImagesName, "Images"),
        (catalog.MoleculesName, "Molecules"),
    ],
)
def test_literals_are_the_names_of_their_kind(literal: object, kind: str) -> None:
    assert set(get_args(literal)) == {name for name in data.names() if data.describe(name).kind == kind}


@pytest.mark.parametrize("name", data.names())
def test_every_set_is_described(name: str) -> None:
    description = data.describe(name)
    assert description.origin
    assert description.license
    assert description.layouts
    assert str(description).startswith(name)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'poll'.*pol, elevators"):
        data.load("poll")
    with pytest.raises(ValueError, match="'poll'"):
        data.describe("poll")


def test_a_set_with_too_few_rows_is_refused_unless_partial(tmp_path: Path) -> None:
    X, y = np.ones((4, 26), dtype=np.float32), np.arange(4, dtype=np.float32)
    np.savez(tmp_path / "uci_pol.npz", X=X, y=y, test_fold=np.arange(4, dtype=np.uint8))
    with pytest.raises(ValueError, match=r"pol has 4 rows where 15000 were published.*partial=True"):
        data.load("pol", tmp_path)
    assert data.load("pol", tmp_path, partial=True).rows == 4


@pytest.mark.parametrize("name", [name for name in data.names() if data.describe(name).kind != "Images"])
def test_stored_sets_are_complete_and_of_their_kind(name: str, stored: Callable[[str], data.Dataset]) -> None:
    loaded = stored(name)
    description = data.describe(name)
    assert type(loaded).__name__ == description.kind
    assert loaded.name == name
    assert loaded.rows == description.rows
