"""A posterior function as the sum of a prior function, its reduction near the data, and the posterior mean.

``f⋆(·) + f(·) − k(·, X)(K + σ²I)⁻¹(f(X) + ε)`` with ``f`` from the prior, by 2,000 random features, and ``ε`` noise.
Eight observations, RBF kernel with ``ψ = 0.5``. For the moments every function has features of its own: the prior's
covariance is then right on average, and standard errors tell the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import matheron as mt
from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_curve import LENGTHSCALE, NOISE, kernel, observations, system
from experiments.toy_line import grid
from matheron.linear.exact import Dual


@dataclass(frozen=True)
class Config:
    """Sizes."""

    samples: int = 2_000
    features: int = 2_000
    inputs: int = 161
    reach: float = 5.0
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    k, x, (X, y) = kernel(), grid(-config.reach, config.reach, config.inputs), observations(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    both = torch.cat([X, x])
    draws = [
        mt.kernels.sample_prior(k, both, 1, generator, config.features)[0]
        for _ in progress(range(config.samples), "prior functions")
    ]
    at_data, prior = torch.stack(draws).split([len(X), len(x)], dim=1)
    epsilon = NOISE**0.5 * torch.randn(at_data.shape, dtype=torch.float64, generator=generator)
    solution = mt.solvers.Cholesky().solve(system(X), torch.cat([y[None], at_data + epsilon]).mT).solution
    mean, reduction = (k(x, X) @ solution).mT.split([1, config.samples])
    posterior = mean + prior - reduction
    whole = mt.solvers.Cholesky().solve(system(X), (y - at_data - epsilon).mT).solution
    together = prior + (k(x, X) @ whole).mT
    exact = Dual(k(X), B=1.0 / NOISE).functions(k(x, X), k(x), y)

    distance = (x - X[:, 0]).abs().min(1).values
    far, near = distance > 5.0 * LENGTHSCALE, distance < 0.1 * LENGTHSCALE

    def spread(values: Tensor, where: Tensor) -> float:
        """Root mean square over functions and inputs."""
        return float(values[:, where].square().mean().sqrt())

    table = [
        {
            "inputs": label,
            "prior function": spread(prior, where),
            "reduction": spread(reduction, where),
            "prior less reduction": spread(prior - reduction, where),
            "exact posterior std": float(exact.variance[where].mean().sqrt()),
        }
        for label, where in (("near the data", near), ("far from the data", far))
    ]
    sparse = slice(None, None, 5)
    offset = (posterior - exact.mean)[:, sparse]
    claims = [
        at_most(
            "sum of the three parts against the one-solve form, largest difference",
            measured=float((posterior - together).abs().max()),
            limit=1e-8,
            published="equal",
        ),
        at_most(
            "mean of the functions against the exact one, in standard errors, largest",
            measured=standard_errors(offset),
            limit=4.5,
            published="the moments match",
        ),
        at_most(
            "covariance of the functions against the exact one, in standard errors, largest",
            measured=max(
                standard_errors(offset * offset[:, [j]] - exact.covariance[sparse, sparse][j])
                for j in range(offset.shape[1])
            ),
            limit=5.0,
            published="the moments match",
        ),
        at_most(
            "prior less reduction over prior, near the data",
            measured=table[0]["prior less reduction"] / table[0]["prior function"],
            limit=0.25,
            published="cancels the prior function",
        ),
        at_most(
            "reduction over prior function, far from the data",
            measured=table[1]["reduction"] / table[1]["prior function"],
            limit=0.01,
            published="reverts to the prior function",
        ),
        at_least(
            "standard deviation of the functions far from the data over the prior's",
            measured=spread(posterior - mean, far) / float(k.diagonal(x)[far].mean().sqrt()),
            limit=0.95,
            published="matches the prior uncertainty",
        ),
    ]
    curves = {
        "data": {"x": X[:, 0], "y": y},
        "x": x[:, 0],
        "mean": mean[0],
        "std": exact.variance.sqrt(),
        "prior": prior[0],
        "reduction": reduction[0],
        "posterior": posterior[:3],
    }
    return Report(table, claims, curves)


def standard_errors(values: Tensor) -> float:
    """The largest ``|mean|`` over rows in its standard errors."""
    return float((values.mean(0) * len(values) ** 0.5 / values.std(0)).abs().max())


def draw(record: Record) -> Figure:
    curves = record["curves"]
    x, data = curves["x"], curves["data"]
    figure, (left, middle, right) = style.panels(3, width=4.5, height=3.8)
    style.band(left, x, curves["mean"], curves["std"], color=style.BLUE, label="posterior mean ± 1 std")
    left.plot(x, curves["posterior"][0], color=style.RED, label="posterior function")
    left.set_title("Posterior function =")
    middle.plot(x, curves["prior"], color=style.ORANGE, label="prior function f")
    middle.plot(x, curves["reduction"], color=style.GREEN, linestyle="--", label="its reduction")
    difference = [p - r for p, r in zip(curves["prior"], curves["reduction"], strict=True)]
    middle.plot(x, difference, color=style.INK, linewidth=1.2, label="the difference")
    middle.set_title("prior function − reduction")
    right.plot(x, curves["mean"], color=style.BLUE, label="posterior mean")
    right.set_title("+ posterior mean")
    for ax in (left, right):
        ax.plot(data["x"], data["y"], "o", color=style.INK, markersize=4.5, zorder=4, label="observations")
    middle.plot(data["x"], [0.0] * len(data["x"]), "|", color=style.INK, markersize=9, label="inputs of the data")
    for ax in (left, middle, right):
        ax.set(xlabel="x", xlim=(-4.5, 4.5), ylim=(-2.3, 4.0))
        ax.legend(loc="upper left", fontsize=8.5)
    return figure


EXPERIMENT = Experiment(
    id="pathwise-decomposition",
    title="A posterior function as prior function, reduction and posterior mean",
    reproduces=("Figure 2.7 (pathwise construction of a posterior function), section 2.3",),
    budgets={"quick": Config(), "full": Config(samples=20_000), "thesis": Config(samples=20_000)},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": 8, "samples": config.samples, "features": config.features},
)
