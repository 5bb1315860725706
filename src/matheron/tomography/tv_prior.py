"""The prior of smooth filters for a fitted network, learnt from its scan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from matheron.linear import Descent, draw_regularizers
from matheron.linear.filter_prior import FilterPrior, Held
from matheron.linear.filters import Filters, Part
from matheron.linear.slopes import SHARE, FactorizedSlopes, SampledSlopes
from matheron.networks import TangentModel
from matheron.networks.inference import SMALL
from matheron.operators import Dense
from matheron.operators.memory import free_memory
from matheron.seeds import normals
from matheron.solvers import CG, Cholesky
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography.inference import COPIES, KEEP, ImageModel
from matheron.tomography.predcp import PredCP
from matheron.tomography.type_two import LearntFilters, TypeTwo, TypeTwoMAP, learn_filters

PROBES = 32
"""Random measurements that tell how much of them each block moves."""


def blocks_of(tangent: TangentModel) -> list[int]:
    """Which block, that is which submodule of the network, every parameter belongs to, counted as they come.

    >>> from matheron.tomography import UNet
    >>> blocks_of(TangentModel(UNet(scales=2, channels=2, skip_channels=1, groups=None).eval()))
    [0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4]
    """
    owners = [name.partition(".")[0] for name in tangent.names]
    place = {name: index for index, name in enumerate(dict.fromkeys(owners))}
    return [place[name] for name in owners]


def block_groups(tangent: TangentModel) -> Int[Tensor, " d"]:
    """The block of every weight.

    >>> from matheron.tomography import UNet
    >>> tangent = TangentModel(UNet(scales=2, channels=2, skip_channels=1, groups=None).eval())
    >>> block_groups(tangent).bincount().tolist()  # In, Down_0, Skip_0, Up_0, Out
    [20, 76, 3, 94, 3]
    """
    return torch.tensor(blocks_of(tangent), device=tangent.device)[tangent.groups]


def filters_of(tangent: TangentModel) -> Filters:
    """The convolution filters of a network, a block for each of its submodules.

    >>> from matheron.tomography import UNet
    >>> tangent = TangentModel(UNet(scales=2, channels=2, skip_channels=1, groups=None).eval())
    >>> filters_of(tangent).smooth.tolist()
    [True, True, False, True, False]
    """
    parts = []
    for name, shape, block in zip(tangent.names, tangent.shapes, blocks_of(tangent), strict=True):
        owner, _, leaf = name.rpartition(".")
        convolves = isinstance(tangent.model.get_submodule(owner), nn.Conv1d | nn.Conv2d | nn.Conv3d)
        parts.append(Part(shape.numel(), tuple(shape[2:]) if convolves and leaf == "weight" else (), block))
    return Filters(parts)


def learning_method(method: str, tangent: TangentModel, rows: int, descent: Descent | None = None) -> str:
    """``"exact"`` or ``"cg"`` for a scan of so many measurements, by what fits; what cannot be learnt is refused."""
    filters = filters_of(tangent)
    if not bool(filters.smooth.any()):
        raise ValueError("prior 'tv' needs convolution filters of more than one pixel; the network has none")
    if method == "sgd" or descent is not None:
        raise ValueError("prior 'tv' is learnt through the measurements; use method='exact' or 'cg', or em_steps=0")
    fits = rows <= SMALL and FactorizedSlopes.bytes(filters, rows) <= SHARE * free_memory(tangent.device)
    kept = COPIES * rows * tangent.num_weights * tangent.dtype.itemsize
    fits = fits and kept <= KEEP * free_memory(tangent.device)
    return ("exact" if fits else "cg") if method == "auto" else method


def starting_filters(tangent: TangentModel, model: ImageModel, generator: torch.Generator) -> FilterPrior:
    """``a_k = r tr(Φ_k Φ_kᵀ) / ‖y‖²``, ``ψ_k = 1``: each of ``r`` blocks explains as much of the scan a priori.

    The trace is estimated from random measurements.
    """
    filters, data = filters_of(tangent), model.data
    assert data.targets is not None
    pulled = data.features.T @ normals((data.num_rows, PROBES), data, generator)
    traces = filters.forms(pulled, pulled)[:, 0].mean(1)
    start = filters.num_blocks * traces / data.targets.double().square().sum().cpu()
    # A block that moves no measurement has no say in them, whatever its precision.
    start = start.clamp(min=1e-12 * float(start.max()))
    return FilterPrior(start, torch.ones_like(start), filters, dtype=data.dtype, device=data.device)


def learn_tv(
    start: FilterPrior,
    model: ImageModel,
    predcp: PredCP | None,
    settings: TypeTwoMAP,
    *,
    learn_noise: bool,
    generator: torch.Generator,
    progress: bool = False,
    checkpoint: Checkpoint | Path | str | None = None,
) -> LearntFilters:
    """Precisions, lengthscales and noise, by the evidence factorized or its gradient sampled, as the model solves.

    Checkpoints, one beside ``checkpoint`` for each step, stay until :func:`forget_tv`.
    """
    data, solver = model.data, getattr(model.step, "solver", None)
    assert data.targets is not None
    free = settings.em_steps is None
    slopes: FactorizedSlopes | SampledSlopes
    if isinstance(solver, Cholesky) and isinstance(data.features, Dense):
        slopes = FactorizedSlopes(start.filters, data.features.matrix, data.targets if free else None)
    else:
        assert isinstance(solver, CG)
        loose = replace(solver, tolerance=settings.residual)
        slopes = SampledSlopes(start.filters, data, loose, settings.probes, generator, with_targets=free)
    history: list[dict[str, Any]] = []
    now, b, seconds = start, data.noise_precision, 0.0
    # A mode of its own makes every step a problem of its own.
    for beside in _places(checkpoint, settings):
        objective = TypeTwo(
            now, slopes, predcp, held=None if free else mode_of(model, now, b, generator), equal=start.values,
            noise_precision=b, learn_noise=learn_noise, power=float(data.targets.double().square().mean()),
            rows=data.num_rows,
        )  # fmt: skip
        exact = isinstance(slopes, FactorizedSlopes)
        learnt = learn_filters(objective, settings, exact=exact, progress=progress, checkpoint=beside)
        now, b, history = learnt.prior, learnt.noise_precision, [*history, *learnt.history]
        seconds += learnt.seconds
    return replace(learnt, history=history, seconds=seconds)


def forget_tv(checkpoint: Checkpoint | Path | str | None, settings: TypeTwoMAP) -> None:
    """What was learnt has been put to use."""
    for place in _places(checkpoint, settings):
        if place is not None:
            place.remove()


def _places(checkpoint: Checkpoint | Path | str | None, settings: TypeTwoMAP) -> list[Checkpoint | None]:
    place, steps = Checkpoint.of(checkpoint), range(settings.em_steps or 1)
    return [None if place is None else replace(place, path=f"{place.path}.{step}") for step in steps]


def mode_of(
    model: ImageModel, prior: FilterPrior, noise_precision: float, generator: torch.Generator
) -> tuple[Held, float]:
    """``w⋆`` under a prior and a noise precision, with ``‖y − Φw⋆‖²``."""
    data = model.data.with_noise_precision(noise_precision)
    drawn = draw_regularizers(data, 1, generator, mode=True, keep_noise=model.step.keep_noise)
    found = model.step.posterior(data, prior, drawn, mode=True, generator=generator)
    assert found.mode is not None
    assert data.targets is not None
    residual = data.targets - data.features @ found.mode
    return Held(prior.filters, found.mode), float(residual.double().square().sum())
