"""Where posterior functions have their maxima: what to observe next in search of an optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between, require_count, require_finite
from matheron.gp import Posterior
from matheron.gp.fitting.adam import Adam
from matheron.gp.paths import Paths
from matheron.seeds import own_source, permutation

ENTRIES = 2**24
"""Of the kernel matrix at a time: functions climb in groups of so many."""


@dataclass(frozen=True, eq=False)
class Maximizers:
    """``x_j = argmax f_j`` and ``f_j(x_j)``, one for each posterior function.

    >>> found = Maximizers(inputs=torch.tensor([[0.5], [0.7]]), values=torch.tensor([1.0, 2.0]))
    >>> found.inputs[found.values.argmax()]
    tensor([0.7000])
    """

    inputs: Float[Tensor, "num d"]
    values: Float[Tensor, " num"]


def thompson(
    posterior: Posterior,
    bounds: Any,
    num: int | None = None,
    *,
    candidates: int = 2000,
    starts: int = 3,
    steps: int = 50,
    learning_rate: float = 0.03,
    generator: torch.Generator | int | None = None,
    progress: bool = False,
) -> Maximizers:
    """``x_j = argmax_x f_j(x)`` in a box, for the first ``num`` functions of the posterior: parallel Thompson sampling.

    ``bounds`` is ``(low, high)``, a number or ``(d,)`` each. All functions are evaluated at ``candidates``, half of
    them anywhere in the box, half near data where the mean is largest; from the best ``starts`` of each, Adam climbs
    for ``steps``. Its first step is of ``learning_rate``, a share of the box, the last of nothing. Observe the function
    there, condition on all data anew, which draws other functions, and ask again; for a minimum, condition on ``−y``.
    Thesis, sections 2.3 and 4.5.2.

    >>> import matheron as mt
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(40, 1, generator=g)
    >>> y = -(X[:, 0] - 0.3).square()
    >>> posterior = mt.GaussianProcess(mt.kernels.RBF(0.3), 1e-5).condition(X, y, num_samples=8, generator=g)
    >>> found = thompson(posterior, (0.0, 1.0), generator=g)
    >>> found.inputs.shape, bool((found.inputs - 0.3).abs().max() < 0.05)
    (torch.Size([8, 1]), True)
    """
    paths = _require_paths(posterior)
    num = len(paths) if num is None else require_count("num", num)
    if num > len(paths):
        raise ValueError(f"num is {num} but the posterior has {len(paths)} functions; condition with num_samples={num}")
    require_count("candidates", candidates, least=2)
    require_count("steps", steps, least=0)
    starts = min(require_count("starts", starts), candidates)
    require_between("learning_rate", learning_rate, 0.0, 1.0)
    low, high = _require_bounds(bounds, paths)
    source = own_source(generator)
    with torch.no_grad():
        around = _candidates(posterior, low, high, candidates, source)
        heights = paths(around)[:num]
        begin = around[heights.topk(starts, dim=1).indices]
    group = max(1, ENTRIES // (starts * len(paths.support)))
    inputs, values = [], []
    for first in tqdm(range(0, num, group), disable=not progress, unit="group", desc="Thompson"):
        found = _climb(paths, begin[first : first + group], first, low, high, steps, learning_rate)
        inputs.append(found.inputs)
        values.append(found.values)
    return Maximizers(torch.cat(inputs), torch.cat(values))


def _climb(
    paths: Paths, begin: Float[Tensor, "s k d"], first: int, low: Tensor, high: Tensor, steps: int, learning_rate: float
) -> Maximizers:
    """From every start; the best point seen of each function."""
    unit = (begin - low) / (high - low)
    adam = Adam(unit, learning_rate)
    best, where = begin.new_full(begin.shape[:2], -torch.inf), begin
    for step in range(steps + 1):
        x = (low + unit * (high - low)).clamp(low, high).requires_grad_(step < steps)
        with torch.set_grad_enabled(step < steps):
            values = paths.each(x, first)
        better = values.detach() > best
        best, where = torch.where(better, values.detach(), best), torch.where(better[..., None], x.detach(), where)
        if step < steps:
            [slope] = torch.autograd.grad(values.sum(), x)
            adam.learning_rate = learning_rate * (1.0 - step / steps)
            # Held at a side of the box, a slope outward would only fill the running means.
            slope = torch.where(((unit >= 1.0) & (slope > 0.0)) | ((unit <= 0.0) & (slope < 0.0)), 0.0, slope)
            unit = (unit + adam.step(slope * (high - low))).clamp(0.0, 1.0)
    top = best.argmax(1)
    each = torch.arange(len(top), device=top.device)
    return Maximizers(where[each, top], best[each, top])


def _candidates(
    posterior: Posterior, low: Tensor, high: Tensor, num: int, generator: torch.Generator
) -> Float[Tensor, "num d"]:
    """Half anywhere in the box; half about as near as data are to each other to rows with the largest mean."""

    def uniform(count: int) -> Tensor:
        drawn = torch.rand(count, len(low), dtype=torch.float64, generator=generator)
        return drawn.to(low)

    anywhere = low + uniform(num - num // 2) * (high - low)
    paths = posterior.paths
    known = paths.support
    some = permutation(len(known), generator, known.device)[:num]
    rows = (known[some].double() * paths.units.x_scale + paths.units.x_mean).to(low)
    rows = rows[((rows >= low) & (rows <= high)).all(1)]
    if len(rows) == 0:
        return torch.cat([anywhere, low + uniform(num // 2) * (high - low)])
    top = rows[posterior.mean(rows).argsort(descending=True)[: max(1, len(rows) // 10)]]
    spacing = 0.5 * (high - low) * float(len(known)) ** (-1.0 / len(low))
    centers = top[torch.arange(num // 2) % len(top)]
    return torch.cat([anywhere, (centers + (2.0 * uniform(num // 2) - 1.0) * spacing).clamp(low, high)])


def _require_paths(posterior: Any) -> Paths:
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior must be that of a Gaussian process, got {type(posterior).__name__}")
    if len(posterior.paths) == 0:
        raise ValueError("posterior has no functions; condition with num_samples= of at least one")
    if posterior.paths.outputs != 1:
        raise ValueError(f"posterior has {posterior.paths.outputs} outputs; condition on the one to be maximized")
    if posterior.paths.support.layout != torch.strided:
        raise TypeError("posterior has sparse inputs, which no box holds; rank candidates by posterior.sample(x)")
    return posterior.paths


def _require_bounds(bounds: Any, paths: Paths) -> tuple[Tensor, Tensor]:
    """Both ``(d,)``, in the dtype of the inputs."""
    d, device = paths.support.shape[1], paths.support.device
    try:
        pair = [torch.as_tensor(side, dtype=paths.dtype, device=device).expand(d).clone() for side in bounds]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"bounds must be (low, high), a number or {d} values each, got {bounds!r}") from error
    if len(pair) != 2:
        raise ValueError(f"bounds must be (low, high), a number or {d} values each, got {len(pair)} of them")
    low, high = (require_finite("bounds", side) for side in pair)
    if not bool((low < high).all()):
        worst = int((low >= high).nonzero()[0])
        raise ValueError(
            f"bounds must have low < high, got {float(low[worst]):g} and {float(high[worst]):g} at {worst}"
        )
    return low, high
