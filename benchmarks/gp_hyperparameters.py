"""Learning hyperparameters on UCI sets: gradients from warm-started posterior samples against GPyTorch's ExactGP.

Both take the same number of Adam steps at the same learning rate from the same starting values, each in a child
process. GPyTorch runs as it comes: conjugate gradients with its preconditioner, its tolerance and its number of probes,
since the sets are larger than its ``max_cholesky_size``. It learns softplus parameters, matheron logarithms. The
evidence of what was learnt is exact for both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.peer import GIB, Peer
from experiments.regression_problem import random_rows
from matheron.gp.fitting.start import start_from_data

LIMIT = 14 * GIB
PATIENCE = 4 * 3600.0
"""Seconds a child may take."""


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows at most."""

    sets: tuple[str, ...] = ("pol", "elevators")
    rows: int | None = None
    steps: int = 100
    learning_rate: float = 0.1
    seed: int = 0


def data(name: str, rows: int | None, seed: int) -> tuple[Tensor, Tensor]:
    split = random_rows(name, rows, seed)
    return split.X_train, split.y_train


def starting(X: Tensor, y: Tensor) -> mt.GaussianProcess:
    """A process at the values read off the data."""
    gp = mt.GaussianProcess(mt.kernels.Matern32(lengthscale=torch.ones(X.shape[1])))
    start_from_data(gp, gp.observations(X, y))
    return gp


def matheron(name: str, rows: int | None, steps: int, learning_rate: float, seed: int) -> Callable[[], Record]:
    X, y = data(name, rows, seed)

    def work() -> Record:
        gp = starting(X, y)
        generator = torch.Generator().manual_seed(seed)
        # As many steps as the peer, from the same start.
        gp.fit(
            X, y, "iterative", steps=steps, learning_rate=learning_rate, tolerance=0.0, start="current",
            generator=generator,
        )  # fmt: skip
        seconds = [record["seconds"] for record in gp.history]
        values = {
            "noise": gp.noise.item(),
            "mean": gp.mean.item(),
            "variance": gp.kernel.variance.item(),
            "lengthscale": gp.kernel.lengthscale.tolist(),
        }
        return {"values": values, "clock": seconds}

    return work


def gpytorch(name: str, rows: int | None, steps: int, learning_rate: float, seed: int) -> Callable[[], Record]:
    import gpytorch as peer

    X, y = data(name, rows, seed)
    start = starting(X, y)

    class Model(peer.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = peer.means.ConstantMean()
            matern = peer.kernels.MaternKernel(nu=1.5, ard_num_dims=X.shape[1])
            self.covar_module = peer.kernels.ScaleKernel(matern)

        def forward(self, x: Tensor) -> Any:
            return peer.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def work() -> Record:
        likelihood = peer.likelihoods.GaussianLikelihood()
        model = Model(likelihood)
        likelihood.noise = start.noise.item()
        model.mean_module.initialize(constant=start.mean.item())
        model.covar_module.outputscale = start.kernel.variance.item()
        model.covar_module.base_kernel.lengthscale = start.kernel.lengthscale.detach().float()
        evidence = peer.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        torch.manual_seed(seed)
        model.train(), likelihood.train()
        began, seconds = time.perf_counter(), []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = -evidence(model(X), y)
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - began)
        values = {
            "noise": likelihood.noise.item(),
            "mean": model.mean_module.constant.item(),
            "variance": model.covar_module.outputscale.item(),
            "lengthscale": model.covar_module.base_kernel.lengthscale[0].tolist(),
        }
        return {"values": values, "clock": seconds}

    return work


def run(config: Config, progress: Progress) -> Report:
    table, claims, curves = [], [], {}
    for name in progress(config.sets, "sets"):
        rows = {}
        for peer in ("matheron", "gpytorch"):
            row, seconds = progress.once(f"{name} {peer}", lambda name=name, peer=peer: measure(name, peer, config))
            rows[peer] = row
            table.append(row)
            curves[f"{name}, {peer}"] = seconds
        ratio = rows["matheron"]["seconds"] / rows["gpytorch"]["seconds"]
        gain = rows["matheron"]["evidence_per_row"] - rows["gpytorch"]["evidence_per_row"]
        claims += [
            at_most(f"{name}: seconds over GPyTorch's for {config.steps} steps", measured=ratio, limit=1 / 3),
            at_least(f"{name}: log evidence per row above GPyTorch's", measured=gain, limit=0.0),
        ]
    return Report(table, claims, curves)


def measure(name: str, peer: str, config: Config) -> tuple[Record, list[float]]:
    """One run in a child, and the exact evidence of what it learnt."""
    arguments = {
        "name": name,
        "rows": config.rows,
        "steps": config.steps,
        "learning_rate": config.learning_rate,
        "seed": config.seed,
    }
    child = Peer(f"benchmarks.gp_hyperparameters:{peer}", arguments, memory=LIMIT, timeout=PATIENCE)
    seconds = child.run()
    child.close()
    X, y = data(name, config.rows, config.seed)
    facts = child.runs[-1] if child.runs else None
    row = {
        "set": name,
        "peer": peer,
        "rows": len(y),
        "seconds": seconds,
        "seconds_per_step": seconds / config.steps,
        "evidence_per_row": evidence(facts["values"], X, y) if facts else math.nan,
        "noise": facts["values"]["noise"] if facts else None,
        "variance": facts["values"]["variance"] if facts else None,
        "peak_memory_bytes": child.peak,
        "ended": child.ended,
    }
    return row, facts["clock"] if facts else []


@torch.no_grad()
def evidence(values: Record, X: Tensor, y: Tensor) -> float:
    """Exact, per row."""
    kernel = mt.kernels.Matern32(values["lengthscale"], values["variance"])
    gp = mt.GaussianProcess(kernel, noise=values["noise"], mean=values["mean"])
    return gp.log_evidence(X, y).item() / len(y)


def draw(record: Record) -> Figure:
    sets = record["config"]["sets"]
    figure, panels = style.panels(len(sets), width=5.0, height=3.4)
    for axes, name in zip(panels, sets, strict=True):
        for peer, label, color in (("matheron", "matheron", style.BLUE), ("gpytorch", "GPyTorch", style.ORANGE)):
            row = next(r for r in record["table"] if r["set"] == name and r["peer"] == peer)
            seconds = record["curves"][f"{name}, {peer}"]
            score = row["evidence_per_row"]
            text = f"{label}: {score:.3f} per row" if score is not None else f"{label}: {row['ended']}"
            axes.plot(range(1, len(seconds) + 1), seconds, color=color, label=text)
        axes.set(title=f"{name}, {row['rows']:,} rows", xlabel="Adam steps", ylabel="seconds", yscale="log")
        axes.legend(title="log evidence learnt")
    return figure


EXPERIMENT = Experiment(
    id="gp-hyperparameters",
    title="Hyperparameters by Adam: warm-started posterior samples against GPyTorch's conjugate gradients",
    reproduces=("Section 3.2.1 (hyperparameter learning with CG) and section 8.2 (future work), measured",),
    budgets={"quick": Config(rows=3_000, steps=20), "full": Config(steps=50), "thesis": Config()},
    run=run,
    draw=draw,
    data=lambda config: config.sets,
    sizes=lambda config: {"rows": config.rows or "all", "steps": config.steps},
)
