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


def test_processes_share_a_run_by_its_parts(tmp_path):
    path = tmp_path / "run.partial"
    one, other = Ledger(path, "same run", only="^a"), Ledger(path, "same run", only="^b")
    assert one.lacks("b1")
    assert one.once("a1", lambda: 1) == 1
    assert not other.lacks("a1")
    assert other.once("a1", lambda: 2) == 1
    assert other.once("b1", lambda: 3) == 3
    one.close()
    assert path.exists(), "what one process left to another is no reason to end the run"
    whole = Ledger(path, "same run")
    assert [whole.once(key, lambda: 0) for key in ("a1", "b1")] == [1, 3]
    whole.close()
    assert not path.exists()
