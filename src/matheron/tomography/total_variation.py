"""Images of few edges that fit a scan."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count, require_positive_number
from matheron.operators.base import Operator
from matheron.operators.diagonal import Diagonal
from matheron.seeds import source_of
from matheron.solvers.result import ConvergenceWarning
from matheron.solvers.spectrum import largest_eigenvalue
from matheron.tomography.differences import Differences
from matheron.tomography.measurements import require_measurements, require_shape, require_weights

MARGIN = 1.05
"""Power iteration approaches a norm from below."""

ADAPTIVITY, FADING = 0.5, 0.95
"""By how much the two step sizes may be rebalanced at first, and how fast this fades; so it cannot go on forever."""


@dataclass(frozen=True, eq=False)
class TotalVariation:
    """An image, its objective, and after each step how far from optimal it was: the larger of the primal residual over
    ``‖AᵀBy‖`` and of the dual one over ``‖y‖_B``.

    >>> from matheron.operators import Dense
    >>> found = total_variation(Dense(torch.eye(4)), torch.tensor([0.0, 0.0, 2.0, 2.0]), shape=(1, 4), strength=0.5)
    >>> [round(value, 2) for value in found.image.flatten().tolist()], round(found.objective, 2)
    ([0.25, 0.25, 1.75, 1.75], 0.88)
    """

    image: Float[Tensor, " m"]
    objective: float
    residuals: Float[Tensor, " steps"]


def total_variation(
    A: Operator,
    y: Float[Tensor, " n"],
    *,
    shape: int | Sequence[int] | None = None,
    strength: float,
    weights: Float[Tensor, " n"] | None = None,
    iterations: int = 2000,
    tolerance: float = 1e-4,
    generator: torch.Generator | int | None = None,
) -> TotalVariation:
    """``min ½ ‖A x − y‖²_B + strength · ‖D x‖₁`` with ``D`` the differences of neighbors (§ 7.1).

    Chambolle and Pock's primal-dual method: with ``K = (B^½ A, c D)``, ``c`` making the two equally large,
    ``x ← x − τ Kᵀp`` and ``p ← prox(p + σ K (2x' − x))``, ``τ σ ‖K‖² < 1``, the norm measured. The ratio of ``τ`` and
    ``σ`` follows the residuals, so that data and image may have any unit. ``shape`` is that of the image where the scan
    does not know it.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam
    >>> scan = ParallelBeam(16, torch.arange(8) * math.pi / 8, 25)
    >>> image = torch.zeros(16, 16)
    >>> image[4:10, 5:12] = 1.0
    >>> y = scan.operator() @ scan.flatten(image)
    >>> found = total_variation(scan.operator(), y, strength=0.1)
    >>> bool((scan.image(found.image) - image).abs().max() < 0.05)
    True
    """
    require_count("iterations", iterations)
    require_positive_number("tolerance", tolerance)
    strength = require_positive_number("strength", strength)
    root, columns = require_weights(weights, A)[:, 0].sqrt(), require_measurements(y, A)
    if y.ndim != 1:
        raise ValueError(f"y has shape {tuple(y.shape)}; total variation takes one sinogram at a time, ({len(y)},)")
    sizes = require_shape(A, shape)
    target, weighted = root * columns[:, 0], Diagonal(root) @ A
    steepest = float((weighted.T @ target).norm())
    if steepest == 0.0:  # nothing pulls away from zero
        nothing, value = A.T @ torch.zeros_like(target), 0.5 * float(target.square().sum())
        return TotalVariation(nothing, value, torch.zeros(1, dtype=torch.float64))
    D = Differences(sizes, dtype=A.dtype, device=A.device)
    source = source_of(0 if generator is None else generator)
    norm = MARGIN * math.sqrt(float(largest_eigenvalue(weighted.T @ weighted, source, steps=30)))
    # ‖D‖² is at most four for each axis.
    balance = norm / math.sqrt(4 * len(sizes))
    limit = strength / balance

    x = torch.zeros(A.shape[1], dtype=A.dtype, device=A.device)
    p, q = torch.zeros_like(target), torch.zeros(D.shape[0], dtype=A.dtype, device=A.device)
    fit, edges = torch.zeros_like(p), torch.zeros_like(q)
    pull = torch.zeros_like(x)
    tau = sigma = 1.0 / (math.sqrt(2.0) * norm)
    adaptivity, history = ADAPTIVITY, []
    for _ in range(iterations):
        next_x = x - tau * pull
        next_fit, next_edges = weighted @ next_x, balance * (D @ next_x)
        next_p = (p + sigma * (2 * next_fit - fit - target)) / (1 + sigma)
        next_q = (q + sigma * (2 * next_edges - edges)).clamp(-limit, limit)
        next_pull = weighted.T @ next_p + balance * (D.T @ next_q)
        primal = float(((x - next_x) / tau - (pull - next_pull)).norm()) / steepest
        dual = math.hypot(
            float(((p - next_p) / sigma - (fit - next_fit)).norm()),
            float(((q - next_q) / sigma - (edges - next_edges)).norm()),
        ) / float(target.norm())
        x, p, q, fit, edges, pull = next_x, next_p, next_q, next_fit, next_edges, next_pull
        history.append(max(primal, dual))
        if history[-1] < tolerance:
            break
        if max(primal, dual) > 2 * min(primal, dual):
            factor = 1 - adaptivity if primal < dual else 1 / (1 - adaptivity)
            tau, sigma, adaptivity = tau * factor, sigma / factor, adaptivity * FADING
    else:
        warnings.warn(
            f"total variation stopped after {iterations} iterations at a residual of {history[-1]:.2g} where "
            f"{tolerance:g} was asked for; give it more iterations or a larger tolerance",
            ConvergenceWarning,
            stacklevel=2,
        )
    objective = 0.5 * (fit - target).square().sum() + strength * (D @ x).abs().sum()
    return TotalVariation(x, float(objective), torch.tensor(history, dtype=torch.float64))
