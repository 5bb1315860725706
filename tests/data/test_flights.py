import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch

from matheron import data

FLIGHTS = """year,month,day,dep_time,arr_time,arr_delay,tailnum,air_time,distance
2013,1,1,517,830,11,N1,227,1400
2013,1,1,533,850,20,N2,227,1416
2013,1,2,NA,NA,NA,N1,NA,1416
2013,1,3,2400,15,-4,N1,30,100
2013,1,4,600,700,0,N3,30,100
"""
PLANES = "tailnum,year\nN1,1999\nN2,NA\n"


def write(root: Path, flights: str = FLIGHTS, planes: str = PLANES, *, zipped: bool = True) -> None:
    folder = root / "nycflights13"
    folder.mkdir(exist_ok=True)
    (folder / "planes.csv").write_text(planes)
    if zipped:
        with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
            archive.writestr("flights.csv", flights)
    else:
        (folder / "flights.csv").write_text(flights)


@pytest.mark.parametrize("zipped", [False, True])
def test_complete_flights_are_joined_with_their_planes(tmp_path: Path, zipped: bool) -> None:
    write(tmp_path, zipped=zipped)
    flights = data.load("nycflights13", tmp_path, partial=True)
    # January 1st, 2013 was a Tuesday; 24:00 is minute 1440.
    assert flights.X.tolist() == [[1, 1, 1, 14, 227, 1400, 317, 510], [1, 3, 3, 14, 30, 100, 1440, 15]]
    assert flights.y.tolist() == [11, -4]


def test_faults_are_named(tmp_path: Path) -> None:
    write(tmp_path, flights=FLIGHTS.replace("arr_delay", "delay"))
    with pytest.raises(ValueError, match=r"flights\.csv\.zip lacks the column\(s\) arr_delay"):
        data.load("nycflights13", tmp_path)
    write(tmp_path, flights=FLIGHTS.replace("1400", "far"))
    with pytest.raises(ValueError, match=r"flights\.csv\.zip has a flight .*'far'"):
        data.load("nycflights13", tmp_path)
    write(tmp_path, planes="tailnum,year\nN9,1999\n")
    with pytest.raises(ValueError, match="no complete flights"):
        data.load("nycflights13", tmp_path)
    (tmp_path / "nycflights13/flights.csv.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="not a readable zip archive"):
        data.load("nycflights13", tmp_path)


def test_the_package_gives_the_stored_set_without_being_imported(
    tmp_path: Path, stored: Callable[[str], data.Dataset]
) -> None:
    try:
        metadata.distribution("nycflights13")
    except metadata.PackageNotFoundError:
        pytest.skip("the package nycflights13 is not installed")
    packaged, archive = data.load("nycflights13", tmp_path), stored("nycflights13")
    assert isinstance(archive, data.Regression)
    assert torch.equal(packaged.X, archive.X)
    assert torch.equal(packaged.y, archive.y)
    assert "nycflights13" not in sys.modules


def test_stored_delays_have_the_published_moments(stored: Callable[[str], data.Dataset]) -> None:
    flights = stored("nycflights13")
    assert isinstance(flights, data.Regression)
    assert abs(float(flights.y.mean()) - 7.0) < 0.1
    assert abs(float(flights.y.std()) - 44.9) < 0.1
    assert float(flights.y.max()) == 1272
