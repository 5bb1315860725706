"""Maximizing the exact evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_between, require_count
from matheron.gp.evidence import exact_evidence
from matheron.gp.fitting.task import Task

FORBIDDEN = 1e10
"""What a point without an evidence counts as, per row: the line search turns back."""


@dataclass(frozen=True)
class Exact:
    """``max_θ log N(y; m, K + N)`` by L-BFGS within bounds, each evidence by Cholesky; small ``n``.

    Ends after ``steps`` evidences or when one improves the last by less than ``tolerance`` per row. It draws nothing.
    A checkpoint holds the evidences so far, which a resumed run reads instead of computing. Factorized in float64,
    noise may fall to 10⁻⁸ of the variance of the targets: a simulator that has none is followed to four digits.

    >>> Exact(steps=50)
    Exact(steps=50, tolerance=1e-07)
    """

    steps: int = 100
    tolerance: float = 1e-7
    least_noise: ClassVar[float] = 1e-8

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_between("tolerance", self.tolerance, -1e-300, 1.0)

    def learn(self, task: Task) -> None:
        """Set the parameters of ``task.gp``."""
        task.finish(*self.maximize(task))

    def maximize(self, task: Task) -> tuple[Float64[Tensor, " p"], str | None]:
        """The best vector, and what went wrong if something did."""
        seen = _Evaluations(self, task)
        with tqdm(total=self.steps, disable=not task.progress, unit="evidence", desc="Exact") as bar:

            def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = seen(torch.from_numpy(np.array(x)))
                bar.update()
                bar.set_postfix(evidence_per_row=f"{-value:.4f}")
                return value, gradient.numpy()

            bounds = list(zip(task.bounds.low.tolist(), task.bounds.high.tolist(), strict=True))
            options = {"maxfun": self.steps, "maxiter": self.steps, "ftol": self.tolerance, "gtol": 1e-6}
            begin = task.bounds.clamp(task.parameters.vector()).numpy()
            minimize(objective, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return seen.best()


class _Evaluations:
    """``−(log evidence + log prior) / rows`` and its gradient, remembered in order."""

    def __init__(self, method: Exact, task: Task) -> None:
        self.task = task
        self.points: list[Tensor] = []
        self.values: list[float] = []
        self.gradients: list[Tensor] = []
        self.replayed = 0
        self.identity = task.identity(method)
        saved = task.checkpoint.load(self.identity) if task.checkpoint else None
        if saved:
            tensors, header = saved
            self.points, self.gradients = list(tensors["points"]), list(tensors["gradients"])
            self.values = tensors["values"].tolist()
            task.history.extend(header["history"])
            task.began -= header["seconds"]

    def __call__(self, vector: Float64[Tensor, " p"]) -> tuple[float, Float64[Tensor, " p"]]:
        place, self.replayed = self.replayed, self.replayed + 1
        if place < len(self.values) and torch.equal(self.points[place], vector):
            return self.values[place], self.gradients[place]
        value, gradient, measured = self.evaluate(vector)
        self.points.append(vector)
        self.values.append(value)
        self.gradients.append(gradient)
        self.task.record(vector, gradient_norm=float(gradient.norm()), **measured)
        if self.task.checkpoint is not None and self.task.checkpoint.due:
            self.save()
        return value, gradient

    def evaluate(self, vector: Float64[Tensor, " p"]) -> tuple[float, Float64[Tensor, " p"], dict[str, Any]]:
        """One factorization."""
        gp, data = self.task.gp, self.task.data
        self.task.parameters.assign(vector)
        noise = gp.noise.detach().expand(data.rows) if gp.log_noise.ndim == 0 else data.noise
        try:
            found = exact_evidence(gp.kernel, data.X, data.Y, noise, gp.mean.detach().expand(data.outputs))
        except ValueError as error:
            return FORBIDDEN, torch.zeros_like(vector), {"evidence": None, "event": str(error)}
        prior, by_prior = self.task.prior.log_density(vector)
        gradient = (self.task.parameters.gradient(found.kernel, found.noise, found.mean) + by_prior) / self.task.size
        value = -(found.value + prior) / self.task.size
        measured = {"evidence": found.value - data.rows * float(data.units.y_scale.log().sum())}
        if not (torch.isfinite(gradient).all() and np.isfinite(value)):
            return FORBIDDEN, torch.zeros_like(vector), measured | {"event": "not finite"}
        return value, -gradient, measured

    def best(self) -> tuple[Float64[Tensor, " p"], str | None]:
        """The smallest value seen; an event where there is none."""
        best = int(np.argmin(self.values))
        event = self.task.history[best].get("event") if self.values[best] == FORBIDDEN else None
        return self.points[best], event

    def save(self) -> None:
        """Write a checkpoint."""
        assert self.task.checkpoint is not None
        tensors = {
            "points": torch.stack(self.points),
            "gradients": torch.stack(self.gradients),
            "values": torch.tensor(self.values, dtype=torch.float64),
        }
        header = {"identity": self.identity, "history": self.task.history, "seconds": self.task.seconds}
        self.task.checkpoint.save(tensors, header)
