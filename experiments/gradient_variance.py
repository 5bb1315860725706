"""Variance of the gradient from one random datum, for the two objectives of a posterior sample, as SGD goes along.

With ``z = f + ε``, a prior sample and a draw of the noise, both objectives of section 4.2.2 have the gradient
``K (K α − z + σ² α)``. The plain one, L, fits ``z``; the other, L′, fits ``f`` and has ``ε`` in its regularizer:

    L:   n k_j (k_jᵀ α − f_j − ε_j) + σ² Φ Φᵀ α
    L′:  n k_j (k_jᵀ α − f_j)       + σ² Φ Φᵀ (α − ε/σ²)

Over the datum ``j`` the variance is a sum over all data, ``n Σ_j ‖k_j‖² r_j² − ‖K r‖²``, no estimate. That of the
random features is averaged over a few draws of them. Each objective is measured along its own path, at the average
that the solver returns. The kernel is an RBF with the lengthscales, variance and noise published for the Matérn-3/2.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.regression_problem import checkpoints, published_kernel, random_rows, share

OBJECTIVES = ("L", "L′")


@dataclass(frozen=True)
class Config:
    """Sizes; ``batch`` is that of the path, the variance is that of one datum."""

    rows: int | None
    samples: int = 16
    epochs: int = 400
    batch: int = 512
    features: int = 100
    feature_draws: int = 8
    measurements: int = 40
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Samples:
    """Prior samples ``f`` and noise draws ``ε`` at the data, one per column, all in float64."""

    X: Tensor
    kernel: mt.kernels.Kernel
    noise: float
    K: Tensor
    prior: Tensor
    epsilon: Tensor

    def parts(self, objective: str, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals of the fit, and the weights in the regularizer."""
        fit = self.K @ alpha - self.prior
        return (fit - self.epsilon, alpha) if objective == "L" else (fit, alpha - self.epsilon / self.noise)

    def second_moment(self, residual: Tensor) -> float:
        """``n Σ_j ‖k_j‖² r_j²``, averaged over samples."""
        return float(len(self.K) * (self.K.square().sum(1)[:, None] * residual.square()).sum(0).mean())

    def fit_variance(self, objective: str, alpha: Tensor) -> float:
        """``n Σ_j ‖k_j‖² r_j² − ‖K r‖²``."""
        residual = self.parts(objective, alpha)[0]
        return self.second_moment(residual) - float((self.K @ residual).square().sum(0).mean())

    def feature_variance(self, objective: str, alpha: Tensor, config: Config) -> float:
        """``E‖σ² (Φ Φᵀ − K) v‖²``, over the same draws of ``Φ`` for every iterate and objective."""
        weights = self.noise * self.parts(objective, alpha)[1]
        expected = self.K @ weights
        generator = torch.Generator().manual_seed(config.seed)
        squares = 0.0
        for _ in range(config.feature_draws):
            features = self.kernel.features(config.features, generator=generator)(self.X)
            squares += float((features @ (features.mT @ weights) - expected).square().sum(0).mean())
        return squares / config.feature_draws


def draw_samples(config: Config, generator: torch.Generator) -> Samples:
    X = random_rows("elevators", config.rows, config.seed).X_train.double()
    matern, noise = published_kernel("elevators")
    assert isinstance(matern, mt.kernels.Matern32)
    kernel = mt.kernels.RBF(lengthscale=matern.lengthscale, variance=matern.variance).requires_grad_(False)
    K = kernel(X)
    # A jitter far below the noise: the factor is only there to draw functions.
    factor = torch.linalg.cholesky(K + 1e-8 * torch.eye(len(K), dtype=torch.float64))
    shape = (len(K), config.samples)
    prior = factor @ torch.randn(shape, dtype=torch.float64, generator=generator)
    epsilon = math.sqrt(noise) * torch.randn(shape, dtype=torch.float64, generator=generator)
    return Samples(X, kernel, noise, K, prior, epsilon)


def path(objective: str, samples: Samples, config: Config, generator: torch.Generator) -> list[dict[str, float]]:
    """Variances at the start and after sweeps of SGD, evenly spread on a logarithmic scale."""
    sweeps = set(checkpoints(config.epochs // 2, config.measurements))
    seen = 0

    def variances(alpha: Tensor) -> dict[str, float]:
        fit = samples.fit_variance(objective, alpha)
        features = samples.feature_variance(objective, alpha, config)
        return {"fit": fit, "features": features, "total": fit + features}

    def monitor(alpha: Tensor) -> dict[str, float]:
        nonlocal seen
        seen += 1
        return variances(alpha.double()) if seen in sweeps else {}

    operator = mt.operators.KernelOperator(samples.kernel, samples.X.float())
    system = operator + mt.operators.Diagonal(torch.tensor(samples.noise))
    solver = mt.solvers.SGD(epochs=config.epochs, batch=config.batch, features=config.features, tolerance=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mt.solvers.ConvergenceWarning)  # the path is wanted, not its end
        result = solver.solve(
            system,
            (samples.prior + samples.epsilon).float(),
            noise=None if objective == "L" else samples.epsilon.float(),
            generator=generator,
            monitor=monitor,
        )
    start = {"epochs": 0.0} | variances(torch.zeros_like(samples.prior))
    keep = ("epochs", "fit", "features", "total")
    end = {"epochs": result.epochs} | variances(result.solution.double())
    return [start, *({key: row[key] for key in keep} for row in result.trace if "total" in row), end]


def run(config: Config, progress: Progress) -> Report:
    generator = torch.Generator().manual_seed(config.seed)
    samples = draw_samples(config, generator)
    n, noise = len(samples.K), samples.noise
    factor = torch.linalg.cholesky(samples.K + noise * torch.eye(n, dtype=torch.float64))
    inverse = torch.cholesky_inverse(factor)
    seed = config.seed + 1
    paths = {
        objective: path(objective, samples, config, torch.Generator().manual_seed(seed))
        for objective in progress(OBJECTIVES, "objectives")
    }
    optimum = inverse @ (samples.prior + samples.epsilon)
    moments = {o: samples.second_moment(samples.parts(o, optimum)[0]) for o in OBJECTIVES}
    # Residuals at the optimum have variance σ²(1 − h_j) for L and σ² h_j for L′, with leverages h_j.
    leverage = 1.0 - noise * inverse.diagonal()
    weight = samples.K.square().sum(1)
    expected = float((weight * (1.0 - leverage)).sum() / (weight * leverage).sum())
    at_optimum = {
        o: samples.fit_variance(o, optimum) + samples.feature_variance(o, optimum, config) for o in OBJECTIVES
    }
    table = [
        {
            "objective": o,
            "variance at the start": paths[o][0]["total"],
            "variance in the end": paths[o][-1]["total"],
            "of it random features": paths[o][-1]["features"],
            "variance at the optimum": at_optimum[o],
        }
        for o in OBJECTIVES
    ]
    plain, low = ([row["total"] for row in paths[o]] for o in OBJECTIVES)
    claims = [
        at_least(
            "variance at the start, L over L′",
            measured=plain[0] / low[0],
            limit=1.0,
            published="L′ always preferred",
        ),
        at_least(
            "share of the path on which L′ has the lower variance",
            measured=share(low, plain),
            limit=0.9,
            published="throughout",
        ),
        at_least("variance in the end, L over L′", measured=plain[-1] / low[-1], limit=2.0, published="lower variance"),
        within(
            "second moments at the optimum, L over L′, over what the leverages predict",
            measured=moments["L"] / moments["L′"] / expected,
            target=1.0,
            tolerance=0.15,
        ),
    ]
    facts = {
        "rows": n,
        "effective dimension": float(leverage.sum()),
        "expected ratio at the optimum": expected,
        "variance at the optimum": at_optimum,
    }
    return Report(table, claims, facts | {"paths": paths})


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (left, right) = style.panels(2, width=4.8, height=3.9)
    colors = dict(zip(OBJECTIVES, (style.ORANGE, style.BLUE), strict=True))
    names = {"L": "L: noise in the targets", "L′": "L′: noise in the regularizer"}
    for objective, color in colors.items():
        path = curves["paths"][objective]
        epochs = [row["epochs"] for row in path]
        left.plot(epochs, [row["total"] for row in path], color=color, label=names[objective])
        left.axhline(curves["variance at the optimum"][objective], color=color, linewidth=1.0, linestyle="--")
        for part, look in (("fit", "-"), ("features", ":")):
            points = [(e, row[part]) for e, row in zip(epochs, path, strict=True) if row[part] > 0]
            names_of = {"fit": "one datum", "features": "random features"}
            label = f"{objective}: {names_of[part]}"
            right.plot(*zip(*points, strict=True), color=color, linestyle=look, label=label)
    left.set(title="Gradient variance, r = 1", xlabel="epochs", ylabel="trace of the covariance", yscale="log")
    left.plot([], [], color=style.GRAY, linewidth=1.0, linestyle="--", label="at the optimum")
    right.set(title="Its two sources", xlabel="epochs", yscale="log")
    left.legend()
    right.legend(loc="upper right", bbox_to_anchor=(1.0, 0.85))
    return figure


EXPERIMENT = Experiment(
    id="gradient-variance",
    title="Gradient variance of two objectives for posterior samples on elevators",
    reproduces=("Figure 4.2, right (gradient variance of the kernelized sampling objectives), section 4.2.2",),
    budgets={
        "quick": Config(rows=3_000, samples=8, epochs=200, batch=128),
        "full": Config(rows=8_000),
        "thesis": Config(rows=None, epochs=2_000),
    },
    run=run,
    draw=draw,
    data=lambda config: ("elevators",),
    sizes=lambda config: {"rows": config.rows or "all", "right_hand_sides": config.samples},
)
