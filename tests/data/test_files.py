from pathlib import Path

import pytest

from matheron import data


def test_missing_set_says_origin_files_and_cure(tmp_path: Path) -> None:
    with pytest.raises(data.DataNotFound) as caught:
        data.load("song", tmp_path)
    message = str(caught.value)
    for part in ("treforevans/uci_datasets", "YearPredictionMSD", "song/test_mask.csv", "MATHERON_DATA", str(tmp_path)):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)


def test_without_a_directory_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MATHERON_DATA", raising=False)
    with pytest.raises(data.DataNotFound, match="neither root nor MATHERON_DATA"):
        data.load("pol")


def test_the_variable_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHERON_DATA", str(tmp_path))
    with pytest.raises(data.DataNotFound, match=str(tmp_path)):
        data.load("pol")


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(data.DataNotFound, match=r"root is .*nowhere"):
        data.load("pol", tmp_path / "nowhere")
    monkeypatch.setenv("MATHERON_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(data.DataNotFound, match=r"MATHERON_DATA is .*nowhere"):
        data.load("pol")


def test_files_missing_from_a_layout_are_named(tmp_path: Path) -> None:
    (tmp_path / "pol").mkdir()
    (tmp_path / "pol/data.csv").write_text("1,2\n")
    with pytest.raises(data.DataNotFound, match=r"missing: pol/test_mask\.csv"):
        data.load("pol", tmp_path)
