"""Hyperparameters from neighborhoods of a large data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float64, Int
from torch import Tensor
from tqdm import tqdm

from matheron.arguments import require_count
from matheron.gp.fitting.bounds import LEAST_NOISE
from matheron.gp.fitting.exact import Exact
from matheron.gp.fitting.task import Task
from matheron.gp.observations import Observations
from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows


@dataclass(frozen=True)
class Subset:
    """``θ = exp(mean_c log θ_c)``, ``θ_c`` of the most evidence on the ``subset_rows`` rows nearest to centroid ``c``.

    Neighborhoods keep the spacing of the data, which random subsets thin out (thesis §4.5.1, with 10 centroids of
    10,000 rows). The average is that of the logarithms, so that it does not depend on whether a lengthscale or its
    inverse is learnt; the mean is averaged as it is. A checkpoint is written after every centroid.

    >>> import torch
    >>> import matheron as mt
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(1000, 1, generator=g)
    >>> y = (6 * X[:, 0]).sin() + 0.1 * torch.randn(1000, generator=g)
    >>> gp = mt.GaussianProcess(mt.kernels.RBF()).fit(X, y, Subset(200, centroids=3), generator=g)
    >>> 0.05 < gp.noise.sqrt().item() < 0.15
    True
    """

    subset_rows: int = 10_000
    centroids: int = 10
    steps: int = 100
    least_noise: ClassVar[float] = LEAST_NOISE

    def __post_init__(self) -> None:
        require_count("subset_rows", self.subset_rows, least=2)
        require_count("centroids", self.centroids)
        require_count("steps", self.steps)

    def learn(self, task: Task) -> None:
        """Set the parameters of ``task.gp``."""
        start, identity = task.parameters.vector(), task.identity(self)
        saved = task.checkpoint.load(identity) if task.checkpoint else None
        vectors: list[Tensor] = []
        seed = task.seed
        if saved:
            tensors, header = saved
            vectors, seed = list(tensors["vectors"]), header["seed"]
            task.history.extend(header["history"])
            task.began -= header["seconds"]
        generator = torch.Generator().manual_seed(seed)
        # Whole neighborhoods of a small set would be the set itself, every time.
        count = self.centroids if self.subset_rows < task.data.rows else 1
        chosen = torch.randperm(task.data.rows, generator=generator)[:count]
        with tqdm(total=len(chosen), disable=not task.progress, unit="centroid", desc="Subset") as bar:
            bar.update(len(vectors))
            for place in range(len(vectors), len(chosen)):
                task.parameters.assign(start)
                rows = nearest(task.gp.kernel, task.data.X, int(chosen[place]), self.subset_rows)
                vectors.append(self.on(task, rows, place))
                bar.update()
                if task.checkpoint is not None:
                    header = {"identity": identity, "seed": seed, "history": task.history, "seconds": task.seconds}
                    task.checkpoint.save({"vectors": torch.stack(vectors)}, header)
        task.finish(torch.stack(vectors).mean(0))

    def on(self, task: Task, rows: Int[Tensor, " r"], place: int) -> Tensor:
        """The best vector on some rows."""
        vector, event = maximize_on(task, rows, self.steps, {"centroid": place})
        if event is not None:
            raise ValueError(f"centroid {place} has no evidence at any point tried: {event}")
        return vector


def maximize_on(
    task: Task, rows: Int[Tensor, " r"], steps: int, label: Mapping[str, Any], *, spread: float | None = None
) -> tuple[Float64[Tensor, " p"], str | None]:
    """The vector of most evidence on some rows, and what went wrong if something did; its steps join the record.

    With a ``spread``, what has no prior is given one around its value now.
    """
    part = Task(task.gp, restricted(task.data, rows), task.priors, task.seed, unit=task.unit)
    part.began = task.began
    if spread is not None:
        part.prior = part.prior.tied(part.parameters.vector(), spread)
    vector, event = Exact(steps=steps).maximize(part)
    for record in part.history:
        task.history.append(task.labelled({**record, **label, "rows": len(rows)}))
    return vector, event


def restricted(data: Observations, rows: Int[Tensor, " r"]) -> Observations:
    """Some rows of the data."""
    return replace(data, X=take_rows(data.X, rows), Y=data.Y[rows], noise=data.noise[rows])


@torch.no_grad()
def nearest(kernel: Kernel, X: Tensor, center: int, count: int) -> Int[Tensor, " r"]:
    """The ``count`` rows nearest to one, in units of each input's spread; in the kernel's for sparse inputs."""
    if X.layout == torch.strided:
        spread = X.std(0, correction=0)
        distance = ((X - X[center]) / torch.where(spread > 0, spread, 1.0)).square().sum(1)
    else:
        row = take_rows(X, torch.tensor([center], device=X.device))
        distance = kernel.diagonal(X) - 2.0 * kernel(X, row)[:, 0]
    return distance.argsort(stable=True)[:count]
