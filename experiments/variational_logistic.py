"""Logistic regression on a line: a Gaussian variational posterior beside the true one, from a grid over two weights.

Labels are Bernoulli with ``p = σ(w₀ + w₁ x)`` and ``w ~ N(0, a⁻¹I)``. The Gaussian maximizes the ELBO; each of its
expectations is of one Gaussian variable and is taken by quadrature, so that nothing is random. The thesis compares with
Hamiltonian Monte Carlo; two weights allow a grid, which has no sampling error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import logsigmoid

from experiments import style
from experiments.claims import at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import affine, grid
from matheron.linear.exact import Gaussian, push

TRUE, FITTED = "true posterior", "Gaussian fit Q"


@dataclass(frozen=True)
class Config:
    """Sizes; the grid reaches over ``intercepts`` and ``slopes``, ``side`` points each."""

    observations: int = 14
    slope: float = 2.0
    prior_precision: float = 0.1
    side: int = 801
    intercepts: tuple[float, float] = (-10.0, 10.0)
    slopes: tuple[float, float] = (-4.0, 16.0)
    nodes: int = 64
    steps: int = 200
    seed: int = 0


def labels(config: Config) -> tuple[Tensor, Tensor]:
    """Inputs ``(n, 1)`` evenly in ``[-3, 3]`` and labels ±1."""
    x = grid(-3.0, 3.0, config.observations)
    uniform = torch.rand(len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(config.seed))
    return x, torch.where(uniform < torch.sigmoid(config.slope * x[:, 0]), 1.0, -1.0).double()


def log_joint(w: Tensor, x: Tensor, y: Tensor, precision: float) -> Tensor:
    """``log p(Y|w) + log π(w)`` for weights ``(m, 2)``."""
    log_prior = -0.5 * precision * w.square().sum(1) + math.log(precision / (2.0 * math.pi))
    return logsigmoid(y * (w @ affine(x).mT)).sum(1) + log_prior


def quadrature(config: Config) -> tuple[Tensor, Tensor]:
    """Nodes and weights of expectations under ``N(0, 1)``."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(config.nodes)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def variational_fit(x: Tensor, y: Tensor, config: Config) -> tuple[Gaussian, float]:
    """The Gaussian with the largest ELBO, by L-BFGS in its mean and Cholesky factor; and that ELBO."""
    Phi, (nodes, weights) = affine(x), quadrature(config)
    mean = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    log_scales = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    below = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [mean, log_scales, below],
        max_iter=config.steps,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def factor() -> Tensor:
        corner = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
        return torch.diag(log_scales.exp()) + below * corner

    def elbo() -> Tensor:
        L = factor()
        logits = Phi @ mean + nodes[:, None] * (Phi @ L).norm(dim=1)
        fit = (weights[:, None] * logsigmoid(y * logits)).sum()
        size = mean.square().sum() + L.square().sum()
        log_prior = math.log(config.prior_precision / (2.0 * math.pi)) - 0.5 * config.prior_precision * size
        entropy = 1.0 + math.log(2.0 * math.pi) + log_scales.sum()
        return fit + log_prior + entropy

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -elbo()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        L = factor()
        return Gaussian(mean.detach(), L @ L.mT), float(elbo())


def run(config: Config, progress: Progress) -> Report:
    x, y = labels(config)
    at = grid(-6.0, 6.0, 121)
    intercepts, slopes = (
        torch.linspace(*ends, config.side, dtype=torch.float64) for ends in (config.intercepts, config.slopes)
    )
    cell = float((intercepts[1] - intercepts[0]) * (slopes[1] - slopes[0]))
    w = torch.cartesian_prod(intercepts, slopes)
    joint = log_joint(w, x, y, config.prior_precision)
    log_evidence = float(joint.logsumexp(0)) + math.log(cell)
    p = (joint - joint.logsumexp(0)).exp()
    true = moments(w, p)
    edge = p.reshape(config.side, config.side)
    on_edge = float(edge[[0, -1]].sum() + edge[:, [0, -1]].sum())

    q, elbo = variational_fit(x, y, config)
    log_q = torch.distributions.MultivariateNormal(q.mean, q.covariance).log_prob(w)
    divergence = float((log_q.exp() * (log_q - joint + log_evidence)).sum()) * cell
    nodes, weights = quadrature(config)
    logits = push(affine(at), q)
    fitted = (weights[:, None] * (logits.mean + nodes[:, None] * logits.variance.sqrt()).sigmoid()).sum(0)
    exact = torch.stack([(p * (w @ row).sigmoid()).sum() for row in affine(at)])

    skewness = float((p * ((w[:, 1] - true.mean[1]) / true.variance[1].sqrt()) ** 3).sum())
    order = slopes[(edge.sum(0).cumsum(0) >= 0.5).nonzero()[0]]
    below_median = float(torch.distributions.Normal(q.mean[1], q.variance[1].sqrt()).cdf(order))

    def steepness(predictive: Tensor) -> float:
        """The steepest rise per unit of x."""
        return float(predictive.diff().max() / (at[1, 0] - at[0, 0]))

    table = [
        {
            "posterior": label,
            "mean intercept": float(gaussian.mean[0]),
            "mean slope": float(gaussian.mean[1]),
            "std of the intercept": float(gaussian.variance[0].sqrt()),
            "std of the slope": float(gaussian.variance[1].sqrt()),
            "steepness of the prediction": steepness(predictive),
            "log evidence or bound": bound,
        }
        for label, gaussian, predictive, bound in (
            (TRUE, true, exact, log_evidence),
            (FITTED, q, fitted, elbo),
        )
    ]
    shrinkage = torch.linalg.det(q.covariance) / torch.linalg.det(true.covariance)
    claims = [
        at_most("posterior mass on the edge of the grid", measured=on_edge, limit=1e-4),
        at_least("log evidence less ELBO", measured=log_evidence - elbo, limit=0.0, published="a lower bound"),
        at_most(
            "log evidence less ELBO against KL(Q‖posterior), difference",
            measured=abs(log_evidence - elbo - divergence),
            limit=1e-3,
            published="equal",
        ),
        at_least(
            "skewness of the slope under the true posterior",
            measured=skewness,
            limit=0.2,
            published="non quadratic",
        ),
        at_most(
            "mean slope, fit over truth",
            measured=float(q.mean[1] / true.mean[1]),
            limit=1.0,
            published="more mass on low slopes",
        ),
        at_least(
            "mass of the fit below the true median slope",
            measured=below_median,
            limit=0.5,
            published="more mass on low slopes",
        ),
        at_most(
            "volume of the fit over the true one, by determinants of covariances",
            measured=float(shrinkage),
            limit=1.0,
        ),
        at_most(
            "predicted probability, fit against truth, largest difference",
            measured=float((fitted - exact).abs().max()),
            limit=0.05,
            published="similar predictions",
        ),
        at_most(
            "steepness of the prediction, fit over truth",
            measured=steepness(fitted) / steepness(exact),
            limit=1.0,
            published="slight underestimation",
        ),
    ]
    curves = {
        "data": {"x": x[:, 0], "label": (y + 1.0) / 2.0},
        "Q": {"mean": q.mean, "covariance": q.covariance},
        "true mean": true.mean,
        "slopes": slopes[::4],
        "slope densities": {
            TRUE: edge.sum(0)[::4] / (slopes[1] - slopes[0]),
            FITTED: torch.distributions.Normal(q.mean[1], q.variance[1].sqrt()).log_prob(slopes[::4]).exp(),
        },
        "x": at[:, 0],
        "predictions": {TRUE: exact, FITTED: fitted},
    }
    return Report(table, claims, curves)


def moments(w: Tensor, p: Tensor) -> Gaussian:
    """Mean and covariance of the points ``w`` with weights ``p``."""
    mean = p @ w
    return Gaussian(mean, (w - mean).mT @ (p[:, None] * (w - mean)))


def draw(record: Record) -> Figure:
    curves, config = record["curves"], record["config"]
    figure, (left, middle, right) = style.panels(3, width=4.5, height=3.9)
    x = torch.tensor(curves["data"]["x"], dtype=torch.float64)[:, None]
    y = 2.0 * torch.tensor(curves["data"]["label"], dtype=torch.float64) - 1.0
    center, spread = np.asarray(curves["Q"]["mean"]), np.sqrt(np.diag(curves["Q"]["covariance"]))
    low, high = center - [4.0, 3.2] * spread, center + [4.0, 5.5] * spread
    sides = [torch.linspace(a, b, 161, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
    joint = log_joint(torch.cartesian_prod(*sides), x, y, config["prior_precision"]).reshape(161, 161).mT
    depth = (joint.max() - joint).numpy()
    style.landscape(left, *(side.numpy() for side in sides), depth, top=14.0, label="loss above its least")
    # Levels at which a Gaussian has 1, 2 and 3 standard deviations.
    left.contour(*sides, depth, levels=[0.5, 2.0, 4.5], colors=style.BLUE, linewidths=1.4)
    left.plot([], [], color=style.BLUE, linewidth=1.4, label=TRUE)
    style.ellipses(left, center, curves["Q"]["covariance"], color=style.ORANGE, label=FITTED, dash="--")
    left.set(title="Two weights", xlabel="intercept", ylabel="slope", xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    left.legend(loc="upper left", frameon=True, framealpha=0.9)
    for name, color, dash in ((TRUE, style.BLUE, "-"), (FITTED, style.ORANGE, "--")):
        middle.plot(curves["slopes"], curves["slope densities"][name], color=color, linestyle=dash, label=name)
        right.plot(curves["x"], curves["predictions"][name], color=color, linestyle=dash, label=name)
    middle.set(title="Density of the slope", xlabel="slope", xlim=(low[1], high[1]))
    middle.legend()
    right.plot(curves["data"]["x"], curves["data"]["label"], "o", color=style.INK, markersize=5, label="labels")
    right.set(title="Predicted probability of label 1", xlabel="x", xlim=(-3.3, 3.3))
    right.legend(loc="center right")
    return figure


EXPERIMENT = Experiment(
    id="variational-logistic",
    title="Logistic regression: a Gaussian variational posterior beside the true one",
    reproduces=("Figure 3.1 (classification with an affine model), section 3.1",),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": config.observations, "grid": config.side**2},
)
