"""Whether float32 will do for a system."""

from __future__ import annotations

import torch

from matheron.gp.observations import Observations
from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows
from matheron.operators import KernelOperator
from matheron.seeds import permutation

ROWS = 512
"""Rows of the matrix that are looked at."""

MUCH = 0.02
"""Conjugate gradients converged on every set with up to a quarter of this, and with ten times as much hardly moved."""


@torch.no_grad()
def rounding(kernel: Kernel, data: Observations) -> float:
    """``‖(K̃ − K)v‖ / ‖Nv‖`` for ``K̃`` in the dtype of the data, ``K`` in float64 and one random ``v``, on some rows.

    Almost all of ``v`` lies where ``K`` has small eigenvalues and ``(K + N)v ≈ Nv``: where this is not small, rounding
    errors drown the noise, and whoever relies on it.
    """
    if data.X.dtype == torch.float64:
        return 0.0
    source = torch.Generator().manual_seed(0)  # a probe, the same at every call
    v = torch.randn(data.rows, 1, generator=source).to(data.X.device)
    picked = permutation(data.rows, source, data.X.device)[:ROWS]
    rows = take_rows(data.X, picked)
    coarse = KernelOperator(kernel, rows, data.X, memory=0) @ v.to(data.X.dtype)
    fine = KernelOperator(kernel, rows.double(), data.X.double(), memory=0) @ v.double()
    return float((coarse.double() - fine).norm() / (data.noise[picked, None] * v[picked]).norm())
