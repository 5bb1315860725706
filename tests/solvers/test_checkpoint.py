"""An interrupted solve goes on to the same result."""

import dataclasses

import pytest
import torch

from matheron.solvers import SDD, Checkpoint
from tests.solvers.problems import ITERATIVE, SLOW_TO_CONVERGE, name, regression


class Interrupt:
    """Stops a solve after some sweeps, as a user would."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, solution):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return {}


@pytest.mark.parametrize("solver", [*ITERATIVE, SLOW_TO_CONVERGE], ids=name)
def test_resumes_to_the_same_result(solver, tmp_path):
    solver = dataclasses.replace(solver, tolerance=min(solver.tolerance, 0.02))
    system, Z = regression()
    whole = solver.solve(system, Z, generator=torch.Generator().manual_seed(4))
    path = tmp_path / "solve.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        solver.solve(
            system,
            Z,
            generator=torch.Generator().manual_seed(4),
            checkpoint=Checkpoint(path, seconds=0.0),
            monitor=Interrupt(after=2),
        )
    assert path.exists()
    resumed = solver.solve(system, Z, checkpoint=path)
    assert torch.equal(resumed.solution, whole.solution)
    assert resumed.epochs == pytest.approx(whole.epochs, abs=1e-9)
    assert len(resumed.trace) == len(whole.trace)
    assert not path.exists()


def test_an_interruption_before_the_first_interval_leaves_a_checkpoint(tmp_path):
    system, Z = regression()
    path = tmp_path / "solve.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        SDD(batch=64).solve(system, Z, checkpoint=path, monitor=Interrupt(after=0))
    assert path.exists()


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    system, Z = regression()
    path = tmp_path / "notes.txt"
    path.write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"notes\.txt is not a checkpoint.*remove it"):
        SDD().solve(system, Z, checkpoint=path)
    assert path.read_text() == "not a checkpoint"


def test_a_truncated_checkpoint_is_refused(tmp_path):
    system, Z = regression()
    path = tmp_path / "solve.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        SDD(batch=64).solve(system, Z, checkpoint=path, monitor=Interrupt(after=0))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        SDD(batch=64).solve(system, Z, checkpoint=path)


@pytest.mark.parametrize("change", ["solver", "targets", "system"])
def test_a_checkpoint_of_another_solve_is_refused(change, tmp_path):
    system, Z = regression()
    path = tmp_path / "solve.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        SDD(batch=64).solve(system, Z, checkpoint=path, monitor=Interrupt(after=0))
    solver = SDD(batch=32) if change == "solver" else SDD(batch=64)
    other = regression(noise=0.2)[0] if change == "system" else system
    with pytest.raises(ValueError, match=f"another solve: its {change}"):
        solver.solve(other, 2.0 * Z if change == "targets" else Z, checkpoint=path)


def test_a_missing_directory_is_refused(tmp_path):
    system, Z = regression()
    with pytest.raises(ValueError, match="existing directory"):
        SDD().solve(system, Z, checkpoint=tmp_path / "nowhere" / "solve.checkpoint")
