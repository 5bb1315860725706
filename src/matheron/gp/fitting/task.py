"""What every method of learning is given, and how it ends."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.archive import digest
from matheron.gp.fitting.bounds import LEAST_NOISE, Bounds
from matheron.gp.fitting.parameters import Parameters
from matheron.gp.fitting.priors import LogNormal, Priors
from matheron.gp.observations import Observations
from matheron.solvers.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess


class FitWarning(UserWarning):
    """Learning ended where it should not have.

    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 30)[:, None]
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     gp = mt.GaussianProcess(mt.kernels.RBF()).fit(X, X[:, 0].sin())  # no noise at all
    >>> [warning.category.__name__ for warning in said]
    ['FitWarning']
    """


@dataclass(eq=False)
class Task:
    """A process, its data, priors and bounds, and the record that grows.

    ``unit`` is the spread of the targets, in which the mean is learnt; ``label`` says which method and why; ``rough``
    is whether it begins at values that were only read off the data; ``least_noise`` bounds the noise from below.
    """

    gp: GaussianProcess
    data: Observations
    priors: Mapping[str, LogNormal]
    seed: int
    progress: bool = False
    checkpoint: Checkpoint | None = None
    label: Mapping[str, str] = field(default_factory=dict)
    unit: float | None = None
    rough: bool = False
    least_noise: float = LEAST_NOISE
    history: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.unit is None:
            spread = float(self.data.Y.to(torch.float64).std(0, correction=0).mean())
            self.unit = spread if spread > 0 else 1.0
        self.parameters = Parameters(self.gp, self.unit)
        self.bounds = Bounds.around(self.parameters, self.data, self.least_noise)
        self.prior = Priors(self.priors, self.parameters)

    @property
    def size(self) -> int:
        """Numbers observed: evidences are reported per one of these."""
        return self.data.rows * self.data.outputs

    @property
    def seconds(self) -> float:
        """Since learning began, earlier parts of an interrupted one too."""
        return time.perf_counter() - self.began

    def record(self, vector: Float64[Tensor, " p"], **measured: Any) -> None:
        """One step."""
        step = {"step": len(self.history), "seconds": self.seconds, **measured}
        self.history.append(self.labelled(step | {"hyperparameters": self.parameters.natural(vector)}))

    def labelled(self, record: dict[str, Any]) -> dict[str, Any]:
        """With the method; the first record also says why this one."""
        wanted = self.label if not self.history else {k: v for k, v in self.label.items() if k != "reason"}
        return {**record, **wanted}

    def identity(self, method: object) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        start = torch.cat([self.parameters.vector(), self.prior.center, self.prior.precision])
        return {
            "method": repr(method),
            "rows": self.data.rows,
            "outputs": self.data.outputs,
            "data": digest(self.data.X, self.data.Y, self.data.noise if self.gp.log_noise.ndim else start[:0]),
            "start": digest(start),
        }

    def finish(self, vector: Float64[Tensor, " p"], event: str | None = None) -> None:
        """Set the values, and say so where they ran into a bound or learning broke off."""
        vector = self.bounds.clamp(vector)
        self.parameters.assign(vector)
        if self.checkpoint is not None:
            self.checkpoint.remove()
        if event is not None:
            warnings.warn(
                f"learning broke off at step {len(self.history)}: {event}; the last good values were kept; scale "
                "inputs and targets (standardize=True), set priors, or lower the learning rate",
                FitWarning,
                stacklevel=5,
            )
        # An input that says nothing has a lengthscale without bound, and no harm is done.
        labels = [self.parameters.label(i) for i in self.bounds.reached(vector) if not self.irrelevant(i, vector)]
        if labels:
            warnings.warn(
                f"{', '.join(labels)} ended at the bounds; the evidence has no maximum inside them: "
                "set a prior, fix the value with requires_grad_(False), or check units and duplicate rows",
                FitWarning,
                stacklevel=5,
            )

    def irrelevant(self, position: int, vector: Float64[Tensor, " p"]) -> bool:
        """Whether it is a lengthscale at its upper bound."""
        name = next(n for n, place in self.parameters.places.items() if place.start <= position < place.stop)
        return name.endswith("lengthscale") and float(vector[position]) > float(self.bounds.low[position]) + 1.0
