from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from matheron import data

HEADER = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;"
    "Global_intensity;Sub_metering_1;Sub_metering_2;Sub_metering_3\n"
)
FILE = "household_power_consumption.txt"


def line(inputs: list[float], target: float) -> str:
    year, month, day, hour, minute, *rest = inputs
    values = ";".join(f"{value:.3f}" for value in (target, *rest))
    return f"{day:.0f}/{month:.0f}/{year:.0f};{hour:02.0f}:{minute:02.0f}:00;{values}\n"


def test_columns_are_ordered_and_missing_minutes_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        HEADER
        + "16/12/2006;17:24:00;4.216;0.418;234.840;18.400;0.000;1.000;17.000\n"
        + "28/4/2007;00:21:00;?;?;?;?;?;?;\n"
        + "3/5/2007;00:22:00;1.500;0.100;240.000;6.000;0.000;2.000;18.000\n"
    )
    whole = data.load("houseelectric", tmp_path, partial=True)
    assert whole.X.tolist() == [
        [2006, 12, 16, 17, 24, 0.418, 234.84, 18.4, 0, 1, 17],
        [2007, 5, 3, 0, 22, 0.1, 240, 6, 0, 2, 18],
    ]
    assert whole.y.tolist() == [4.216, 1.5]
    assert whole.columns is not None
    assert whole.columns[7] == "global_intensity"
    assert data.load("houseelectric_subset", tmp_path, partial=True).y.tolist() == [1.5]


def test_faults_name_the_line_of_the_file(tmp_path: Path) -> None:
    good = "3/5/2007;00:22:00;1.500;0.100;240.000;6.000;0.000;2.000;18.000\n"
    missing = "28/4/2007;00:21:00;?;?;?;?;?;?;\n"
    (tmp_path / FILE).write_text(HEADER + good + missing + good.replace("6.000", "six"))
    with pytest.raises(ValueError, match=r"household.*'six' in line 4"):
        data.load("houseelectric", tmp_path)
    (tmp_path / FILE).write_text(HEADER + good + good[:30])
    with pytest.raises(ValueError, match=r"household.*in line 3"):
        data.load("houseelectric", tmp_path)
    (tmp_path / FILE).write_text(HEADER + good.replace("2007", "2008"))
    with pytest.raises(ValueError, match="no complete rows of January to June 2007"):
        data.load("houseelectric_subset", tmp_path)


def test_the_stored_half_year_reads_back_from_the_public_format(
    tmp_path: Path, stored: Callable[[str], data.Dataset]
) -> None:
    half = stored("houseelectric_subset")
    assert isinstance(half, data.Regression)
    X, y = half.X[:2000], half.y[:2000]
    (tmp_path / FILE).write_text(HEADER + "".join(map(line, X.tolist(), y.tolist())))
    read = data.load("houseelectric_subset", tmp_path, partial=True)
    assert torch.equal(read.X.float(), X.float())
    assert torch.equal(read.y.float(), y.float())


def test_the_constant_year_is_guarded(stored: Callable[[str], data.Dataset]) -> None:
    half = stored("houseelectric_subset")
    assert isinstance(half, data.Regression)
    split = half.split(0)
    assert not split.X_train[:, 0].any()
    assert split.X_train.isfinite().all()
    assert split.X_test.shape == (25686, 11)
