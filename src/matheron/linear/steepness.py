"""How steep the objectives are, which sets their steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear.curvature import Curvature
from matheron.linear.data import Batch, Data
from matheron.linear.prior import Prior

PROBES = 4
"""Batches on which it is measured, with as many products each."""


def steepness(
    data: Data, prior: Prior, pull: Float[Tensor, " d"], mode: Float[Tensor, " d"] | None, generator: torch.Generator
) -> tuple[Float[Tensor, "t 2"], float]:
    """``λ_max(A⁻¹M) + 1`` over some batches together and over the steepest alone, in units of all data; and its passes.

    With ``mode`` a second row for the curvature of the loss there. ``pull``, a draw of ``ΦᵀBε``, leans toward the
    largest eigenvalues already.
    """
    probed = list(islice(data.batches(generator), min(PROBES, data.num_batches)))
    kinds = [[batch.curvature for batch in probed]]
    share = sum(batch.rows for batch in probed) / data.num_rows
    passes = PROBES * share
    if mode is not None:
        kinds.append([batch.loss_curvature(batch.features @ mode) for batch in probed])
        passes += (PROBES + 0.5) * share
    start = prior.covariance(pull[:, None]).mT
    found = [_power_iteration(data, prior, probed, curvatures, start) for curvatures in kinds]
    return torch.tensor(found, dtype=torch.float64) + 1.0, passes


def _power_iteration(
    data: Data, prior: Prior, probed: list[Batch], curvatures: Sequence[Curvature], start: Float[Tensor, "1 d"]
) -> tuple[float, float]:
    size = (start * prior.precision(start.mT).mT).sum(1).sqrt()
    start = start / torch.where(size > 0, size, 1.0)
    # One row for all batches together, then one for each.
    rows = start.expand(len(probed) + 1, -1).clone()
    largest = torch.zeros(len(rows), dtype=start.dtype, device=start.device)
    for _ in range(PROBES):
        images = torch.zeros_like(rows)
        for place, (batch, curvature) in enumerate(zip(probed, curvatures, strict=True), start=1):
            pair = rows[[0, place]]
            image = (batch.features.T @ (curvature @ (batch.features @ pair.mT))).mT * data.num_batches
            images[0] += image[0] / len(probed)
            images[place] = image[1]
        rows = prior.covariance(images.mT).mT
        largest = (rows * images).sum(1).clamp(min=0.0).sqrt()
        rows = rows / torch.where(largest > 0, largest, 1.0)[:, None]
    return float(largest[0]), float(largest[1:].max())
