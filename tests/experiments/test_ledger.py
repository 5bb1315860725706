from experiments.ledger import Ledger


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
