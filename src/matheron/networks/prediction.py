"""Predictions from functions: class probabilities, observations, joint densities."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from matheron.networks.likelihood import Likelihood, losses
from matheron.networks.likelihoods import Bernoulli, Categorical

LINKS = ("probit", "mc")


def require_link(link: str) -> str:
    """Return ``link`` if it is one."""
    if link not in LINKS:
        raise ValueError(f"link_approx must be one of {', '.join(LINKS)}, got {link!r}")
    return link


def probabilities(
    likelihood: Likelihood, mean: Float[Tensor, "b c"], deviations: Float[Tensor, "s b c"], link: str
) -> Float[Tensor, "b c"]:
    """``E[σ(f)]``: of functions ``μ + δ`` (``"mc"``), or ``σ(μ / √(1 + π v / 8))``, ``v`` of ``δ`` (``"probit"``)."""
    if require_link(link) == "mc":
        return squash(likelihood, mean + deviations).mean(0)
    variance = deviations.square().mean(0)
    return squash(likelihood, mean / (1.0 + math.pi / 8.0 * variance).sqrt())


def squash(likelihood: Likelihood, outputs: Float[Tensor, "*s b c"]) -> Float[Tensor, "*s b c"]:
    """Class probabilities of outputs."""
    if isinstance(likelihood, Categorical):
        return outputs.softmax(-1)
    if isinstance(likelihood, Bernoulli):
        return outputs.sigmoid()
    raise TypeError(
        f"{type(likelihood).__name__} has no class probabilities; functional_samples gives functions to average over"
    )


def log_likelihoods(
    likelihood: Likelihood, functions: Float[Tensor, "s b c"], targets: Shaped[Tensor, "b ..."]
) -> Float[Tensor, "s b"]:
    """``log p(y_i | f_j(x_i))`` of every function."""
    return -torch.stack([losses(likelihood, outputs, targets) for outputs in functions])


def log_mean_exp(values: Float[Tensor, "s *b"]) -> Float[Tensor, "*b"]:
    """``log mean_j exp(v_j)``."""
    return torch.logsumexp(values, dim=0) - math.log(len(values))
