"""Which data to label next."""

from __future__ import annotations

from typing import Any

import torch

from matheron.arguments import require_count
from matheron.linear.design import Design, greedy_design, require_criterion
from matheron.networks import LinearizedLaplace


def most_informative(
    posterior: LinearizedLaplace,
    pool: Any,
    num: int,
    criterion: str = "eig",
    *,
    generator: torch.Generator | int | None = None,
) -> Design:
    """``argmax_I ½ logdet(I + Lᵀ K_II L)`` greedily: the ``num`` inputs whose labels together say most.

    ``K`` is the joint covariance of the posterior's functions at the pool, ``B = LLᵀ`` how sharply a label is seen.
    An input that resembles one already chosen has little left to say, which a score of each input by itself does not
    know. ``criterion="ese"`` takes the trace in place of the determinant; ``"evr"`` what labels would tell of
    the rest of the pool, which passes over outliers. ``pool`` are inputs, or a ``DataLoader``.
    Thesis, section 7.4, and its chapter on future work.

    >>> import torch
    >>> from torch import nn
    >>> from matheron.networks import LinearizedLaplace
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.randn(40, 2, generator=g)
    >>> la = LinearizedLaplace(nn.Linear(2, 1).eval(), "regression", prior="isotropic")
    >>> y = X.sum(1, keepdim=True) + 0.3 * torch.randn(40, 1, generator=g)
    >>> la = la.fit((X, y), em_steps=20, generator=g)
    >>> pool = torch.tensor([[20.0, 0.0], [20.0, 0.1], [0.0, 15.0]])
    >>> most_informative(la, pool, 2, generator=g).indices.tolist()
    [0, 2]
    """
    if not isinstance(posterior, LinearizedLaplace):
        raise TypeError(f"posterior must be a LinearizedLaplace that was fitted, got {type(posterior).__name__}")
    require_count("num", num)
    require_criterion(criterion)
    return greedy_design(posterior.whitened_samples(pool), num, criterion, generator=generator)
