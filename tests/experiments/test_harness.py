import json
import math
from dataclasses import dataclass

import pytest
import torch

from experiments import command, harness
from experiments.claims import at_most
from experiments.harness import Experiment, Progress, Report
from matheron.data import DataNotFound

ALL = [(package, id) for package in ("experiments", "benchmarks") for id in harness.discover(package)]


@dataclass(frozen=True)
class Config:
    rows: int
    seeds: tuple[int, ...] = (0, 1)


def run(config, progress):
    table = [{"seed": seed, "value": config.rows / 2, "odd": math.inf} for seed in progress(config.seeds, "seeds")]
    claims = [at_most("a fair value", measured=table[0]["value"], limit=3, published=2.5)]
    return Report(table, claims, {"line": torch.arange(3.0)})


def draw(record):
    from experiments import style

    figure, (axes,) = style.panels(1)
    axes.plot(record["curves"]["line"])
    return figure


def toy(**changes):
    budgets = {"quick": Config(4), "full": Config(40), "thesis": Config(400, (0, 1, 2))}
    parts = {"id": "toy", "title": "Toy", "reproduces": ("Table 0.1",), "budgets": budgets, "run": run, "draw": draw}
    return Experiment(**(parts | changes))


@pytest.fixture
def catalog(monkeypatch):
    found = {"toy": toy()}
    monkeypatch.setattr(command, "discover", lambda package: found)
    return found


def test_an_experiment_runs_and_leaves_json_and_picture(catalog, tmp_path, capsys):
    assert command.main("experiments", ["toy", "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "toy.json").read_text())
    assert set(record) == {
        *("id", "title", "reproduces", "budget", "config", "shrunk", "data", "sizes"),
        *("seconds", "machine", "table", "curves", "claims"),
    }
    assert record["table"] == [{"seed": seed, "value": 2.0, "odd": None} for seed in (0, 1)]
    assert record["shrunk"] == {"rows": {"here": 4, "thesis": 400}, "seeds": {"here": [0, 1], "thesis": [0, 1, 2]}}
    (claim,) = record["claims"]
    assert claim == {
        "name": "a fair value",
        "published": 2.5,
        "measured": 2.0,
        "requirement": "≤ 3",
        "holds": True,
    }
    assert record["machine"]["torch"] == torch.__version__
    assert record["machine"]["threads"] == torch.get_num_threads()
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "toy.json", "toy.png"]
    assert "holds: a fair value" in capsys.readouterr().out


def test_a_value_of_the_configuration_can_be_set(catalog, tmp_path, capsys):
    arguments = ["toy", "--out", str(tmp_path), "--set"]
    assert command.main("experiments", [*arguments, "seeds=(3, 4)"]) == 0
    assert json.loads((tmp_path / "toy.json").read_text())["config"]["seeds"] == [3, 4]
    assert command.main("experiments", [*arguments, "seeds=three"]) == 2
    assert "seeds is a tuple" in capsys.readouterr().err
    assert command.main("experiments", [*arguments, "colour=1"]) == 2
    assert "FIELD=VALUE with one of" in capsys.readouterr().err


def test_redrawing_needs_no_run_and_gives_the_same_picture(catalog, tmp_path):
    command.main("experiments", ["toy", "--out", str(tmp_path)])
    picture = (tmp_path / "toy.png").read_bytes()
    (tmp_path / "toy.png").unlink()
    catalog["toy"] = toy(run=lambda config, progress: pytest.fail("ran"))
    assert command.main("experiments", ["toy", "--out", str(tmp_path), "--redraw"]) == 0
    assert (tmp_path / "toy.png").read_bytes() == picture


def test_redrawing_what_was_never_run_says_so(catalog, tmp_path, capsys):
    assert command.main("experiments", ["toy", "--out", str(tmp_path), "--redraw"]) == 2
    assert "run it first" in capsys.readouterr().err


def interrupted(config, progress):
    """Parts by seed, the last of which is cut short the first time."""
    seeds = [seed for seed in config.seeds if not progress.lacks(str(seed))]
    table = [{"seed": seed, "value": progress.once(str(seed), lambda seed=seed: cut_short(seed))} for seed in seeds]
    return Report(table, (), {"line": [0.0, 1.0]})


def cut_short(seed):
    if seed == 1:
        raise KeyboardInterrupt
    return 10 * seed


def test_a_run_cut_short_can_be_looked_at(catalog, tmp_path, capsys):
    catalog["toy"] = toy(run=interrupted)
    arguments = ["toy", "--out", str(tmp_path)]
    assert command.main("experiments", [*arguments, "--so-far"]) == 2
    assert "start it without --so-far" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        command.main("experiments", arguments)
    assert command.main("experiments", [*arguments, "--so-far"]) == 0
    assert "not measured yet: 1" in capsys.readouterr().out
    record = json.loads((tmp_path / "toy.json").read_text())
    assert record["table"] == [{"seed": 0, "value": 0}]
    assert record["pending"] == ["1"]
    assert "so far" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "toy.partial").exists()


def test_a_run_is_shared_by_its_parts(catalog, tmp_path, capsys):
    catalog["toy"] = toy(run=interrupted)
    arguments = ["toy", "--out", str(tmp_path)]
    assert command.main("experiments", [*arguments, "--parts", "^0$"]) == 0
    assert "not measured yet: 1" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main("experiments", [*arguments, "--parts", "("])
    assert "no regular expression" in capsys.readouterr().err


def test_a_dry_run_computes_nothing(catalog, tmp_path, capsys):
    catalog["toy"] = toy(
        run=lambda config, progress: pytest.fail("ran"),
        data=lambda config: ("pol",),
        sizes=lambda config: {"entries": config.rows**2},
    )
    assert command.main("experiments", ["toy", "--budget", "thesis", "--dry-run", "--out", str(tmp_path)]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["shrunk"] == {}
    assert planned["data"] == {"pol": 15000}
    assert planned["sizes"] == {"entries": 160000}
    assert not list(tmp_path.iterdir())


def test_a_missing_data_set_is_said_without_a_traceback(catalog, tmp_path, capsys):
    def missing(config, progress):
        raise DataNotFound("pol is not in data")

    catalog["first"] = toy(id="first", run=missing)
    assert command.main("experiments", ["all", "--out", str(tmp_path)]) == 2
    assert "first: pol is not in data" in capsys.readouterr().err
    assert (tmp_path / "toy.json").exists()
    assert not (tmp_path / "first.json").exists()


def test_an_unknown_id_lists_the_known_ones(catalog, capsys):
    assert command.main("experiments", ["pool"]) == 2
    assert "toy" in capsys.readouterr().err


def test_list_names_what_is_reproduced(catalog, capsys):
    assert command.main("experiments", ["list"]) == 0
    printed = capsys.readouterr().out
    assert "toy" in printed
    assert "Table 0.1" in printed


def test_every_budget_is_required():
    with pytest.raises(ValueError, match="quick, full, thesis"):
        toy(budgets={"quick": Config(4)})


def test_a_record_refuses_what_json_cannot_say():
    with pytest.raises(TypeError, match="plain values"):
        harness.plain({"where": object()})


def test_progress_walks_over_everything():
    assert list(Progress(visible=False)(range(3), "rows")) == [0, 1, 2]


def test_discovery_finds_the_demo():
    assert ("experiments", "demo") in ALL


@pytest.mark.parametrize(("package", "id"), ALL)
def test_every_experiment_plans_every_budget(package, id):
    experiment = harness.discover(package)[id]
    assert experiment.reproduces
    for budget in harness.BUDGETS:
        json.dumps(harness.plain(harness.plan(experiment, budget)), allow_nan=False)
    assert harness.plan(experiment, "thesis")["shrunk"] == {}
