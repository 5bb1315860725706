"""Where the search for a mode sets out from."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.data import Data
from matheron.linear.prior import Prior

MULTIPLES = 12
"""How many multiples of a guess are tried."""


def set_out(
    data: Data, prior: Prior, guess: Float[Tensor, " d"] | None
) -> tuple[Float[Tensor, "d 1"], Float[Tensor, "m 1"]]:
    """``t w`` and ``t Φw`` of a guess ``w`` for the ``t`` of 0, 1, ½, ¼, … where the objective of the mode is least.

    At most one pass of ``Φ``, whose order predictions are in.
    """
    nothing = torch.zeros(data.num_weights, 1, dtype=data.dtype, device=data.device)
    if guess is None:
        return nothing, nothing.new_zeros(data.num_rows, 1)
    w, parts = guess.to(nothing)[:, None], list[Tensor]()
    sizes = torch.tensor([0.0, *(0.5**k for k in range(MULTIPLES))], dtype=data.dtype, device=data.device)
    values = 0.5 * sizes.double() ** 2 * float((w.double() * prior.precision(w)).sum())
    for batch in data.batches():
        parts.append(batch.features @ w)
        values += batch.loss(sizes * parts[-1])
    best = sizes[values.nan_to_num(torch.inf, torch.inf).argmin()]
    return (best * w, best * torch.cat(parts)) if best > 0.0 else (nothing, nothing.new_zeros(data.num_rows, 1))
