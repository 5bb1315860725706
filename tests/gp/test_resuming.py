"""A call of condition that was interrupted goes on where it was, from the same draws."""

import warnings

import pytest
import torch

import matheron as mt
from matheron.solvers import auto
from tests.gp.test_posterior import problem
from tests.solvers.test_auto import singular
from tests.solvers.test_checkpoint import Interrupt

SOLVER = mt.solvers.SDD(batch=32, epochs=30)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        yield


@pytest.mark.parametrize("seed", [None, 9])
def test_an_interrupted_call_goes_on_to_the_same_posterior(seed, tmp_path):
    X, y, x = problem(200)
    gp, path = mt.GaussianProcess(mt.kernels.RBF(), 0.1), tmp_path / "c.checkpoint"
    options = {"num_samples": 3, "solver": SOLVER}
    whole = gp.condition(X, y, generator=torch.Generator().manual_seed(4), **options)
    with pytest.raises(KeyboardInterrupt):
        gp.condition(X, y, generator=torch.Generator().manual_seed(4), checkpoint=path, monitor=Interrupt(3), **options)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    resumed = gp.condition(X, y, generator=generator, checkpoint=path, **options)
    assert torch.equal(resumed.sample(x), whole.sample(x))
    assert resumed.report.seed == whole.report.seed
    assert not path.exists()


def test_a_second_attempt_goes_on_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "EXACT_ROWS", 100)
    system, Z = singular(1e-9)
    path, solver = tmp_path / "c.checkpoint", mt.solvers.Auto(epochs=40)
    whole = solver.solve(system, Z, generator=torch.Generator().manual_seed(0))
    first = next(place for place, record in enumerate(whole.trace) if "ended CG" in record.get("event", ""))
    with pytest.raises(KeyboardInterrupt):
        solver.solve(
            system, Z, generator=torch.Generator().manual_seed(0), checkpoint=path, monitor=Interrupt(first + 2)
        )
    assert not path.exists()
    resumed = solver.solve(system, Z, checkpoint=path)
    assert resumed.epochs == pytest.approx(whole.epochs)
    assert torch.equal(resumed.solution, whole.solution)
    assert not list(tmp_path.iterdir())


def test_writing_stays_a_small_share_of_the_time(tmp_path):
    left, asked = (mt.solvers.Checkpoint(tmp_path / "c.checkpoint", seconds=seconds) for seconds in (None, 0.0))
    for checkpoint in (left, asked):
        checkpoint.save({}, {"identity": {}})
        assert checkpoint.recall("anything") is None
        checkpoint._cost, checkpoint._written = 60.0, checkpoint._written - 100.0
    assert not left.due
    assert asked.due
