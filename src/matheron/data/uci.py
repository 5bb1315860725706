"""The nine large UCI regression sets of the Gaussian-process literature."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from matheron.data.arrays import read_regression, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.household import COLUMNS as HOUSEHOLD_COLUMNS
from matheron.data.household import read_household
from matheron.data.regression import Regression
from matheron.data.tables import read_table

SPLITS = 10
SHAPES = {
    "pol": (15000, 26),
    "elevators": (16599, 18),
    "bike": (17379, 17),
    "protein": (45730, 9),
    "keggdirected": (48827, 20),
    "3droad": (434874, 3),
    "song": (515345, 90),
    "buzz": (583250, 77),
    "houseelectric": (2049280, 11),
}
_COLUMNS = {"3droad": ("osm_id", "longitude", "latitude"), "houseelectric": HOUSEHOLD_COLUMNS}


def read_masked_csv(*paths: Path, name: str) -> Regression:
    """Read tables whose last column is the target, stacked, and a mask with one column of 0 or 1 per split."""
    *tables, mask_path = paths
    table = np.concatenate([read_table(path, SHAPES[name][1] + 1) for path in tables])
    masks = read_table(mask_path, SPLITS)
    if len(masks) != len(table):
        raise damaged(mask_path, f"has {len(masks)} rows for the {len(table)} rows of {paths[0].name}")
    if not np.isin(masks, (0.0, 1.0)).all() or not (masks.sum(1) == 1).all():
        raise damaged(mask_path, "does not put every row into the test part of exactly one split with 0 and 1")
    return _from_table(name, table, target=-1, folds=masks.argmax(1))


def read_public_csv(path: Path, name: str, target: int) -> Regression:
    """Read the one table the UCI repository offers, whose column ``target`` (0 or -1) is the target."""
    return _from_table(name, read_table(path, SHAPES[name][1] + 1), target)


def _from_table(name: str, table: np.ndarray, target: int, folds: np.ndarray | None = None) -> Regression:
    return Regression(
        name,
        tensor(np.delete(table, target, axis=1), torch.float64),
        tensor(table[:, target], torch.float64),
        folds=None if folds is None else tensor(folds, torch.uint8),
        columns=_COLUMNS.get(name),
    )


def _source(name: str, public: tuple[Layout[Regression], ...] = (), public_name: str = "") -> Source[Regression]:
    masked = partial(read_masked_csv, name=name)
    stored = partial(read_regression, name=name, inputs=SHAPES[name][1], columns=_COLUMNS.get(name), folded=True)
    parts = (f"{name}/data.csv", f"{name}/data1.csv") if name == "song" else (f"{name}/data.csv",)
    origin = "the repository treforevans/uci_datasets (ten fixed splits)"
    return Source(
        origin=origin + (f", or the UCI Machine Learning Repository: {public_name}" if public_name else ""),
        license="splits MIT; the UCI data under the terms of their donors",
        layouts=(
            Layout((f"uci_{name}.npz",), stored),
            Layout((*parts, f"{name}/test_mask.csv"), masked),
            Layout((*(f"uci_datasets/{part}" for part in parts), f"uci_datasets/{name}/test_mask.csv"), masked),
            *public,
        ),
        rows=SHAPES[name][0],
        note="The public UCI file has no folds and raw units; the benchmark's columns are centered." if public else "",
    )


def _public(name: str, file: str, target: int) -> tuple[Layout[Regression], ...]:
    read = partial(read_public_csv, name=name, target=target)
    return (Layout((file,), read), Layout((f"{name}/{file}",), read))


_HOUSEHOLD = "household_power_consumption.txt"

SOURCES: dict[str, Source[Regression]] = {
    "pol": _source("pol"),
    "elevators": _source("elevators"),
    "bike": _source("bike"),
    "protein": _source("protein"),
    "keggdirected": _source("keggdirected"),
    "3droad": _source(
        "3droad", _public("3droad", "3D_spatial_network.txt", -1), "3D Road Network (North Jutland, Denmark)"
    ),
    "song": _source("song", _public("song", "YearPredictionMSD.txt", 0), "YearPredictionMSD"),
    "buzz": _source("buzz", _public("buzz", "Twitter.data", -1), "Buzz in social media, regression on Twitter"),
    "houseelectric": _source(
        "houseelectric",
        (
            Layout((_HOUSEHOLD,), partial(read_household, name="houseelectric")),
            Layout((f"houseelectric/{_HOUSEHOLD}",), partial(read_household, name="houseelectric")),
        ),
        "Individual household electric power consumption",
    ),
}
