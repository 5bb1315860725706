import pytest

from experiments.ledger import Ledger, NotMeasured


def test_parts_are_measured_once_also_after_an_interruption(tmp_path):
    path = tmp_path / "run.partial"
    first = Ledger(path, "same run")
    assert first.once("a", lambda: {"x": 1.5}) == {"x": 1.5}
    with path.open("a") as file:
        file.write('{"key": "b", "val')  # cut short
    second = Ledger(path, "same run")
    assert second.once("a", lambda: None) == {"x": 1.5}
    assert second.once("b", lambda: 2) == 2
    assert Ledger(path, "same run").once("b", lambda: 3) == 2
    second.close()
    assert not path.exists()


def test_another_run_starts_afresh(tmp_path):
    path = tmp_path / "run.partial"
    Ledger(path, "one").once("a", lambda: 1)
    assert Ledger(path, "other").once("a", lambda: 2) == 2


def test_what_there_is_so_far_is_read_and_nothing_is_measured(tmp_path):
    path = tmp_path / "run.partial"
    Ledger(path, "same run").once("a", lambda: 1)
    before = path.read_text()
    reader = Ledger(path, "same run", so_far=True)
    assert reader.once("a", lambda: 2) == 1
    assert not reader.lacks("a")
    assert reader.lacks("b")
    assert reader.pending == ["b"]
    with pytest.raises(NotMeasured, match="b is not measured yet"):
        reader.once("b", lambda: 2)
    reader.close()
    assert path.read_text() == before


def test_a_file_of_another_run_is_not_touched_by_a_reader(tmp_path):
    path = tmp_path / "run.partial"
    Ledger(path, "one").once("a", lambda: 1)
    before = path.read_text()
    with pytest.raises(NotMeasured, match="no part of this run"):
        Ledger(path, "other", so_far=True)
    assert path.read_text() == before
