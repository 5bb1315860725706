"""The evidence against the prior precision ``a``, and two lower bounds whose distribution over weights is held fixed.

The affine model of six observations, ``B = 2I``, ``A = aI``. One bound uses the exact posterior at ``a = 6``, which is
the right distribution there and nowhere else; the other uses a Gaussian with half its mean and an isotropic covariance,
which is right nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from experiments import style
from experiments.claims import at_least, at_most, within
from experiments.harness import Experiment, Progress, Record, Report
from experiments.toy_line import (
    AFFINE_PRECISION,
    NOISE_PRECISION,
    affine,
    curve,
    draw_fit,
    draw_loss,
    grid,
    observations,
)
from matheron.linear.exact import Gaussian, Primal, push

EXACT, OTHER = QS = ("posterior at a = 6", "another Gaussian, Q")
COLORS = {EXACT: style.ORANGE, OTHER: style.GREEN}


@dataclass(frozen=True)
class Config:
    """Sizes; precisions are spread evenly on a logarithmic scale, with 6 among them."""

    precisions: int = 401
    factor: float = 100.0
    other_variance: float = 0.04
    seed: int = 0


def run(config: Config, progress: Progress) -> Report:
    x, (inputs, y) = grid(-4.0, 4.0, 201), observations(config.seed)
    Phi = affine(inputs)
    model = Primal(Phi, A=AFFINE_PRECISION, B=NOISE_PRECISION)
    posterior = model.weights(y)
    other = Gaussian(0.5 * posterior.mean, config.other_variance * torch.eye(2, dtype=torch.float64))
    distributions = dict(zip(QS, (posterior, other), strict=True))
    exponents = torch.linspace(-math.log(config.factor), math.log(config.factor), config.precisions)
    precisions = (AFFINE_PRECISION * exponents.double().exp()).tolist()
    models = [Primal(Phi, A=a, B=NOISE_PRECISION) for a in precisions]
    evidence = torch.stack([m.log_evidence(y) for m in models])
    bounds = {name: torch.stack([m.elbo(q, y) for m in models]) for name, q in distributions.items()}
    slack = {name: evidence - bound for name, bound in bounds.items()}
    best = {"evidence": precisions[int(evidence.argmax())]}
    best |= {name: precisions[int(bound.argmax())] for name, bound in bounds.items()}
    at = precisions.index(min(precisions, key=lambda a: abs(a - AFFINE_PRECISION)))
    # The bound is −½a E‖w‖² + ½d log a plus what does not depend on a.
    stationary = {name: 2.0 / float(q.mean.square().sum() + q.variance.sum()) for name, q in distributions.items()}
    table = [{"objective": "evidence", "best a": best["evidence"], "largest": float(evidence.max())}]
    table += [
        {
            "objective": f"ELBO, {name}",
            "best a": best[name],
            "best a in closed form": stationary[name],
            "largest": float(bounds[name].max()),
            "least slack": float(slack[name].min()),
            "slack at a = 6": float(slack[name][at]),
        }
        for name in QS
    ]
    claims = [
        at_least(
            "evidence less bound, least over all a and both bounds",
            measured=min(float(s.min()) for s in slack.values()),
            limit=-1e-9,
            published="a lower bound",
        ),
        at_most(
            "evidence less bound at a = 6, posterior at a = 6",
            measured=float(slack[EXACT][at]),
            limit=1e-9,
            published="tight at a = 6",
        ),
        at_least(
            "evidence less bound, least over a, other Gaussian",
            measured=float(slack[OTHER].min()),
            limit=0.1,
            published="never tight",
        ),
        at_least(
            "best a of the bound against that of the evidence, posterior at a = 6: |log ratio|",
            measured=abs(math.log(best[EXACT] / best["evidence"])),
            limit=0.05,
            published="they differ",
        ),
        at_least(
            "the same, other Gaussian",
            measured=abs(math.log(best[OTHER] / best["evidence"])),
            limit=0.05,
            published="biased too",
        ),
        within(
            "best a of the bound over its closed form, posterior at a = 6",
            measured=best[EXACT] / stationary[EXACT],
            target=1.0,
            tolerance=0.03,
        ),
        at_least(
            "evidence at the best a of the bound less that at a = 6, posterior at a = 6",
            measured=float(evidence[precisions.index(best[EXACT])] - evidence[at]),
            limit=0.0,
            published="EM does not decrease the evidence",
        ),
    ]
    curves = {
        "data": {"x": inputs[:, 0], "y": y},
        "precisions": precisions,
        "evidence": evidence,
        "bounds": bounds,
        "best": best,
        "weights": {name: {"mean": q.mean, "covariance": q.covariance} for name, q in distributions.items()},
        "least loss": float(model.loss(posterior.mean, y)),
        "functions": {name: curve(x, push(affine(x), q)) for name, q in distributions.items()},
    }
    return Report(table, claims, curves)


def draw(record: Record) -> Figure:
    curves = record["curves"]
    figure, (left, middle, right) = style.panels(3, width=4.6, height=4.0)
    lines = {"evidence": curves["evidence"]} | curves["bounds"]
    for (key, values), name in zip(lines.items(), ("evidence", *(f"ELBO, {q}" for q in QS)), strict=True):
        left.plot(curves["precisions"], values, color=COLORS.get(key, style.INK), label=name)
        left.plot(curves["best"][key], max(values), "o", color=style.RED, zorder=5)
    left.plot([], [], "o", color=style.RED, label="best a")
    left.axvline(AFFINE_PRECISION, color=style.GRAY, linewidth=1.0, linestyle=":")
    top = max(curves["evidence"])
    left.set(title="Log evidence and its bounds", xlabel="prior precision a", xscale="log")
    left.set(ylim=(top - 4.0, top + 0.4), xlim=(0.5, 100.0))
    left.set_xticks([1, 6, 10, 100], ["1", "6", "10", "100"])
    left.legend(loc="lower left", fontsize=8.5)
    at_six = curves["weights"][EXACT] | {"least loss": curves["least loss"]}
    draw_loss(middle, at_six, intercepts=(-0.9, 1.1), slopes=(-0.6, 1.2), top=16.0)
    for name, weights in curves["weights"].items():
        style.ellipses(middle, weights["mean"], weights["covariance"], color=COLORS[name], label=name)
        draw_fit(right, curves["functions"][name], curves["data"], color=COLORS[name], label=f"{name}: ± 2 std")
    middle.set_title("Loss at a = 6 and both Gaussians")
    right.set(title="Functions", ylim=(-3.6, 3.6))
    right.legend(loc="upper left", fontsize=8.5)
    return figure


EXPERIMENT = Experiment(
    id="evidence-and-elbos",
    title="Evidence of a line against its prior precision, and two lower bounds",
    reproduces=("Figure 3.2 (evidence and ELBOs of the affine model), section 3.1",),
    budgets={"quick": Config(), "full": Config(), "thesis": Config()},
    run=run,
    draw=draw,
    sizes=lambda config: {"observations": 6, "precisions": config.precisions},
)
