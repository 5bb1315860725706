"""Step sizes that account for what momentum does between two visits of a coordinate."""

import torch

import matheron as mt


def test_rows_that_know_nothing_of_each_other_do_not_diverge():
    # A block's eigenvalue is no larger than one row's: only the momentum between visits limits the step.
    system = mt.operators.Dense(torch.eye(400)) + mt.operators.Diagonal(0.01)
    targets = torch.linspace(-1, 1, 400)
    solver = mt.solvers.SDD(epochs=150, batch=16, tolerance=1e-3)
    result = solver.solve(system, targets, generator=torch.Generator().manual_seed(0))
    assert not any("event" in record for record in result.trace)
    assert result.converged
    torch.testing.assert_close(result.solution, targets / 1.01, rtol=0.0, atol=2e-2)
