import torch

import matheron as mt


def test_descent_recovers_from_divergence():
    # Rows that know nothing of each other: between two visits momentum carries a coordinate ten steps too far.
    system = mt.operators.Dense(torch.eye(400)) + mt.operators.Diagonal(0.01)
    targets = torch.linspace(-1, 1, 400)
    solver = mt.solvers.SDD(epochs=150, batch=16, tolerance=1e-3)
    result = solver.solve(system, targets, generator=torch.Generator().manual_seed(0))
    assert any("diverged" in record.get("event", "") for record in result.trace)
    assert result.converged
    torch.testing.assert_close(result.solution, targets / 1.01, rtol=0.0, atol=2e-2)
