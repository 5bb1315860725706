"""One regression task, many methods: each gives predictions over time, from runs that see no test target.

A run keeps what it would answer at a few points of its way, on disk and off the clock; scores are taken when it ends.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import matheron as mt
from experiments.harness import peak_memory
from matheron.data import Split

OURS = "CG, Nyström and blocks"
"""What Auto takes beyond a few thousand rows."""

SNAPSHOTS = 24
"""Points of a run that are kept at most: the first sweeps, then ever fewer."""


@dataclass(frozen=True, eq=False)
class Task:
    """Standardized data, and hyperparameters that every method shares."""

    split: Split
    kernel: mt.kernels.Kernel
    noise: float

    def scores(self, mean: Tensor, variance: Tensor) -> dict[str, float]:
        """Root mean squared error and mean negative log density of the test targets; ``variance`` has the noise."""
        normal = torch.distributions.Normal(mean, variance.sqrt())
        error = mean - self.split.y_test
        return {
            "rmse": float(error.square().mean().sqrt()),
            "nll": float(-normal.log_prob(self.split.y_test).mean()),
        }


@dataclass
class Outcome:
    """Scores along the way, the last one being the answer; peak memory in bytes before any scoring."""

    trace: list[dict[str, Any]]
    peak: int
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For a record."""
        return {"trace": self.trace, "peak": self.peak, **self.facts}


def posterior(
    task: Task, solver: Any, *, num_samples: int = 64, seed: int = 0, inducing: int | Tensor | None = None
) -> Outcome:
    """Ours: mean and functions from one solve."""
    process = mt.GaussianProcess(task.kernel, task.noise)
    generator = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)
        kept = Snapshots(Path(folder))
        began = time.perf_counter()
        post = process.condition(
            task.split.X_train, task.split.y_train, num_samples=num_samples, solver=solver, inducing=inducing,
            generator=generator, monitor=None if isinstance(solver, mt.solvers.Cholesky) else kept,
        )  # fmt: skip
        before_solve = time.perf_counter() - began - post.report.seconds - kept.seconds
        peak = peak_memory(resource.RUSAGE_SELF)
        trace = []
        for record in (record for record in post.report.trace if "kept" in record):
            weights = torch.load(kept.path(int(record["kept"])))
            paths = post.paths
            saved = paths.mean_weights, paths.sample_weights
            paths.mean_weights, paths.sample_weights = weights[:, :1].contiguous(), weights[:, 1:].contiguous()
            trace.append(point(task, post, record["seconds"] + before_solve, record["epochs"]))
            paths.mean_weights, paths.sample_weights = saved
        began = time.perf_counter()
        last = point(task, post, post.report.seconds + before_solve, post.report.epochs)
        last["predict_seconds"] = time.perf_counter() - began
    facts = {"solver": post.report.solver, "residual": post.report.residual, "converged": post.report.converged}
    events = [record["event"] for record in post.report.trace if "event" in record]
    return Outcome([*trace, last], peak, facts | {"restarts": len(events)})


def point(task: Task, post: mt.gp.Posterior, seconds: float, epochs: float) -> dict[str, Any]:
    """Scores of a posterior."""
    prediction = post.predict(task.split.X_test)
    return {"seconds": seconds, "epochs": epochs, **task.scores(prediction.mean, prediction.variance)}


class Snapshots:
    """A monitor that writes solutions to disk: sweeps 1 to 8, then every eighth more."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sweep, self.next, self.count = folder, 0, 1, 0
        self.seconds = 0.0

    def __call__(self, solution: Tensor) -> dict[str, float]:
        """Keep this one, if it is due."""
        self.sweep += 1
        if self.sweep < self.next or self.count >= SNAPSHOTS:
            return {}
        began = time.perf_counter()
        self.next = max(self.sweep + 1, math.ceil(self.sweep * 1.125))
        self.count += 1
        torch.save(solution, self.path(self.sweep))
        self.seconds += time.perf_counter() - began
        return {"kept": float(self.sweep)}

    def path(self, sweep: int) -> Path:
        """Of one snapshot."""
        return self.folder / f"{sweep}.pt"


def gpytorch_exact(task: Task, *, fast_variance: bool = False) -> Outcome:
    """GPyTorch's exact GP with its own solver, preconditioner and tolerances; mean and variance at the test inputs."""
    import gpytorch

    X, y = task.split.X_train, task.split.y_train
    model = _exact_model(X, y, task).eval()
    began = time.perf_counter()
    with torch.no_grad(), warnings.catch_warnings(), gpytorch.settings.fast_pred_var(fast_variance):
        warnings.simplefilter("ignore")
        prediction = model.likelihood(model(task.split.X_test))
        mean, variance = prediction.mean, prediction.variance
    seconds = time.perf_counter() - began
    peak = peak_memory(resource.RUSAGE_SELF)
    trace = [{"seconds": seconds, "epochs": None, **task.scores(mean, variance.clamp_min(1e-12))}]
    return Outcome(trace, peak, {"negative_variances": int((variance <= 0).sum())})


def _exact_model(X: Tensor, y: Tensor, task: Task) -> Any:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, peer_likelihood(task))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = peer_kernel(task)

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Model()


def peer_kernel(task: Task) -> Any:
    """The same Matérn-3/2 in GPyTorch."""
    import gpytorch

    kernel: Any = task.kernel
    covar = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=task.split.X_train.shape[1])
    )
    covar.outputscale = kernel.variance.item()
    covar.base_kernel.lengthscale = kernel.lengthscale.float()
    return covar.requires_grad_(False)


def peer_likelihood(task: Task) -> Any:
    """The same noise in GPyTorch, whose own lower bound of 1e-4 is above that of bike."""
    import gpytorch

    bound = gpytorch.constraints.GreaterThan(min(1e-4, 0.1 * task.noise))
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=bound)
    likelihood.noise = task.noise
    return likelihood


def gpytorch_svgp(
    task: Task,
    *,
    points: int,
    seed: int = 0,
    batch: int = 1024,
    rate: float = 0.01,
    most_epochs: int = 200,
    most_seconds: float = math.inf,
) -> Outcome:
    """GPyTorch's SVGP by Adam on minibatches, its locations learnt, until its bound stops rising.

    The plateau: the mean bound of the last five epochs is less than 0.001 nats per row above that of the five before.
    One that is stopped before it has ``capped`` among its facts.
    """
    import gpytorch

    torch.manual_seed(seed)  # GPyTorch draws from the global generator
    X, y = task.split.X_train, task.split.y_train
    chosen = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[:points]

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(points)
            super().__init__(
                gpytorch.variational.VariationalStrategy(self, X[chosen], distribution, learn_inducing_locations=True)
            )
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = peer_kernel(task)

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model, likelihood = Model(), peer_likelihood(task).requires_grad_(False)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    order = torch.Generator().manual_seed(seed)
    bounds: list[float] = []
    seconds, answers = 0.0, []

    def predict() -> tuple[Tensor, Tensor]:
        model.eval()
        with torch.no_grad():
            parts = [likelihood(model(part)) for part in task.split.X_test.split(batch)]
        model.train()
        return torch.cat([p.mean for p in parts]), torch.cat([p.variance for p in parts])

    model.train()
    while len(bounds) < most_epochs and seconds < most_seconds and not plateau(bounds):
        began, total = time.perf_counter(), 0.0
        for rows in torch.randperm(len(X), generator=order).split(batch):
            optimizer.zero_grad()
            loss = -bound(model(X[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total -= loss.item() * len(rows)
        seconds += time.perf_counter() - began
        bounds.append(total / len(X))
        answers.append((seconds, len(bounds), predict()))
    peak = peak_memory(resource.RUSAGE_SELF)
    trace = [{"seconds": s, "epochs": e, **task.scores(*answer)} for s, e, answer in answers]
    return Outcome(trace, peak, {"bound": bounds[-1], "capped": not plateau(bounds)})


def plateau(bounds: list[float], window: int = 5, rise: float = 1e-3) -> bool:
    """Whether the mean of the last ``window`` values is at most ``rise`` above that of the ones before."""
    if len(bounds) < 2 * window:
        return False
    return sum(bounds[-window:]) - sum(bounds[-2 * window : -window]) < rise * window


def solvers(epochs: float, steps: int = 0, rows: int = 1) -> dict[str, Any]:
    """Those of the thesis and newer, to the same tolerance.

    Those of the thesis may take ``steps`` of 512 of the ``rows``, its batch, where ``epochs`` are fewer.
    """
    new = {"epochs": epochs, "tolerance": 0.01}
    old = new | {"epochs": max(epochs, steps * 512 / rows)}
    return {
        OURS: mt.solvers.CG(**new, preconditioner=mt.solvers.NystromBlocks()),
        "SketchAndProject": mt.solvers.SketchAndProject(**new),
        "SDD": mt.solvers.SDD(**old),
        "SGD": mt.solvers.SGD(**old),
        "CG": mt.solvers.CG(**old, preconditioner=mt.solvers.PivotedCholesky(100)),
    }


Method = Callable[[Task], Outcome]


def ours(epochs: float, num_samples: int, seed: int, steps: int = 0) -> Iterator[tuple[str, Method]]:
    """Every solver as a method."""

    def work(task: Task, name: str) -> Outcome:
        solver = solvers(epochs, steps, len(task.split.y_train))[name]
        return posterior(task, solver, num_samples=num_samples, seed=seed)

    for name in solvers(epochs):
        yield name, partial(work, name=name)
