"""The way from data to learnt hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from matheron.gp.fitting.exact import Exact
from matheron.gp.fitting.iterative import Iterative
from matheron.gp.fitting.priors import LogNormal
from matheron.gp.fitting.start import start_from_data
from matheron.gp.fitting.subset import Subset
from matheron.gp.fitting.task import Task
from matheron.kernels.feature_map import NoFeaturesError
from matheron.seeds import draw_seed
from matheron.solvers.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess

Method = Exact | Subset | Iterative
METHODS: dict[str, type[Method]] = {"exact": Exact, "subset": Subset, "iterative": Iterative}

EXACT_ROWS = 2_000
"""Up to here an exact evidence takes a fraction of a second."""

ITERATIVE_ROWS = 30_000
"""As many rows as a step of a few seconds takes; its cost grows with the square. Of more, this many are drawn."""

FEW = 10
"""Rows for each hyperparameter, below which the evidence runs to values that explain these rows and no others."""

WEAK = {"lengthscale": math.sqrt(3.0), "noise": 3.0}
"""Spreads of the priors there, around values read off the data: two thirds within a factor of 5.7, and of 20."""

NEIGHBORHOODS = Subset(subset_rows=5_000, centroids=5)
"""For kernels without random features."""


def fit(
    gp: GaussianProcess,
    X: Tensor,
    y: Tensor,
    method: str | Method,
    start: str,
    priors: Mapping[str, LogNormal] | None,
    generator: torch.Generator | int | None,
    progress: bool,
    checkpoint: Checkpoint | None,
    options: Mapping[str, Any],
) -> GaussianProcess:
    """What :meth:`GaussianProcess.fit` does."""
    if start not in ("data", "current"):
        raise ValueError(f"start must be 'data' or 'current', got {start!r}")
    before = {name: parameter.detach().clone() for name, parameter in gp.named_parameters()}
    units, warm = gp.units, gp.warm
    try:
        if start == "data":
            # Those of an earlier fit belong to its data; present hyperparameters are in them, a new start is not.
            gp.units = None
        data = gp.observations(X, y).detach()
        chosen, reason = choose(gp, data.X, method, options)
        if start == "data":
            start_from_data(gp, data)
        label = {"method": type(chosen).__name__.lower(), "reason": reason}
        task = Task(
            gp, data, priors or {}, draw_seed(generator), progress, checkpoint, label, rough=start == "data",
            least_noise=chosen.least_noise,
        )  # fmt: skip
        if priors is None and task.rough and isinstance(chosen, Exact):
            hold(task, label)
        gp.history, gp.warm = task.history, None
        if gp.standardize:
            gp.units = data.units
        chosen.learn(task)
    except BaseException:
        # As it was: the same call then finds its own checkpoint, and nobody takes half-learnt values for learnt ones.
        gp.load_state_dict(before, strict=False)
        gp.units, gp.warm = units, warm
        raise
    return gp


def hold(task: Task, label: dict[str, str]) -> None:
    """Weak priors around values read off the data, where rows are few beside what there is to learn."""
    start = task.parameters.vector()
    if task.size < FEW * len(start):
        for ending, spread in WEAK.items():
            task.prior = task.prior.tied(start, spread, task.parameters.marked(ending))
        label["reason"] += f"; {task.size} are few for {len(start)} hyperparameters: {', '.join(WEAK)} have weak priors"


def choose(gp: GaussianProcess, X: Tensor, method: str | Method, options: Mapping[str, Any]) -> tuple[Method, str]:
    """The method as a value, and why this one."""
    if isinstance(method, Method):
        if options:
            raise TypeError(f"{', '.join(options)} given beside method={method!r}; set it there")
        return method, "as asked"
    if method == "auto":
        if options:
            raise TypeError(f"{', '.join(options)} given with method='auto'; name the method that it belongs to")
        return automatic(gp, X)
    if method not in METHODS:
        known = ", ".join(map(repr, METHODS))
        raise ValueError(f"method must be 'auto', {known} or one of these as a value, got {method!r}")
    return METHODS[method](**options), "as asked"


def automatic(gp: GaussianProcess, X: Tensor) -> tuple[Method, str]:
    """By the number of rows, and by whether the kernel has prior functions to sample."""
    rows = X.shape[0]
    if rows <= EXACT_ROWS:
        return Exact(), f"{rows} rows are few enough for exact evidences"
    try:
        gp.kernel.features(Iterative.num_features, dimension=X.shape[1], generator=torch.Generator())
    except NoFeaturesError:
        return NEIGHBORHOODS, f"{rows} rows are too many for exact evidences, and the kernel has no random features"
    if rows > ITERATIVE_ROWS:
        return Iterative(rows=ITERATIVE_ROWS), f"{ITERATIVE_ROWS} random rows; steps on all {rows} take long"
    return Iterative(), f"{rows} rows are too many for exact evidences"
