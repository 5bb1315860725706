"""Rows that hang together with others, as the kernel sees it."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows

BLOCK = 2048
"""Rows of either side whose correlations exist at once."""


@torch.no_grad()
def neighbors(kernel: Kernel, X: Tensor, Z: Tensor, each: int) -> Int[Tensor, " r"]:
    """Rows ``j`` of ``Z`` with the largest ``|k(x_i, z_j)| k(z_j, z_j)^(−½)``, ``each`` of them for every row ``i``.

    For a stationary kernel these are the nearest. Rows that several have in common are there once, in order.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> neighbors(RBF(), torch.tensor([[0.0], [0.1]]), torch.tensor([[5.0], [0.2], [-1.0], [7.0]]), 2)
    tensor([1, 2])
    """
    found = [torch.zeros(0, dtype=torch.int64, device=X.device)]
    for top in range(0, X.shape[0] if each else 0, BLOCK):
        x = take_rows(X, slice(top, top + BLOCK))
        strength, place = (torch.zeros(x.shape[0], 0, dtype=t, device=X.device) for t in (X.dtype, torch.int64))
        for left in range(0, Z.shape[0], BLOCK):
            z = take_rows(Z, slice(left, left + BLOCK))
            here = kernel(x, z).abs() * kernel.diagonal(z).clamp_min(1e-30).rsqrt()
            columns = torch.arange(left, left + z.shape[0], device=X.device).expand(x.shape[0], -1)
            strength, place = torch.cat([strength, here], dim=1), torch.cat([place, columns], dim=1)
            strength, best = strength.topk(min(each, strength.shape[1]), dim=1)
            place = place.gather(1, best)
        found.append(place.flatten())
    return torch.cat(found).unique()
