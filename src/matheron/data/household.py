"""Household electric power: the global active power of one house, minute by minute."""

from functools import partial
from pathlib import Path

import torch

from matheron.data.arrays import read_regression, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.regression import Regression
from matheron.data.tables import read_table

COLUMNS = (
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "global_reactive_power",
    "voltage",
    "global_intensity",
    "sub_metering_1",
    "sub_metering_2",
    "sub_metering_3",
)
_HEADER = "Date;Time;"


def read_household(path: Path, name: str, half_year: bool = False) -> Regression:
    """Read ``household_power_consumption.txt``, rows with missing values left out; ``half_year`` is early 2007 only."""
    # 16/12/2006;17:24:00;active;reactive;... becomes day;month;year;hour;minute;second;active;reactive;...
    table = read_table(path, 13, delimiter=";", prepare=_numbers)
    if half_year:
        table = table[(table[:, 2] == 2007) & (table[:, 1] <= 6)]
        if not len(table):
            raise damaged(path, "has no complete rows of January to June 2007")
    inputs = table[:, [2, 1, 0, 3, 4, 7, 8, 9, 10, 11, 12]]
    return Regression(name, tensor(inputs, torch.float64), tensor(table[:, 6], torch.float64), columns=COLUMNS)


def _numbers(line: str) -> str:
    if "?" in line or line.startswith(_HEADER):
        return ""
    return line.replace("/", ";").replace(":", ";")


_NAME = "houseelectric_subset"
_FILE = "household_power_consumption.txt"
_STORED = partial(read_regression, name=_NAME, inputs=len(COLUMNS), columns=COLUMNS)

SOURCES: dict[str, Source[Regression]] = {
    _NAME: Source(
        origin="the UCI Machine Learning Repository: Individual household electric power consumption",
        license="under the terms of its donors",
        layouts=(
            Layout(("houseelectric_subset_2007H1.npz",), _STORED),
            Layout((_FILE,), partial(read_household, name=_NAME, half_year=True)),
            Layout((f"houseelectric/{_FILE}",), partial(read_household, name=_NAME, half_year=True)),
        ),
        rows=256869,
        note="January to June 2007, raw units, in time order; the year is constant.",
    )
}
