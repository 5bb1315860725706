"""Scores of class probabilities, one by one and together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_likelihood(p: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> float:
    """``mean_i log p_i(y_i)``.

    >>> import torch
    >>> round(log_likelihood(torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([0, 0])), 4)
    -0.3993
    """
    chosen = _require(p, y).double().gather(1, y[:, None])
    return float(chosen.clamp(min=torch.finfo(torch.float64).tiny).log().mean())


def dyadic_log_likelihood(
    logs: Float[Tensor, "s n"], kappa: int, *, shuffles: int = 10, generator: torch.Generator
) -> float:
    """``mean log (1/s) Σ_j Π_t p(y_t | f_j)`` of sets of ``τ = 10(κ − 1)`` labels drawn from ``κ`` data each.

    ``logs`` holds ``log p(y_i | f_j)`` of every function and datum. With ``κ = 1`` sets are single labels, which makes
    it the marginal log-likelihood. Data are grouped anew in each of ``shuffles``; those left over are left out. A
    predictor of independent labels has τ times its marginal score; one that knows what labels of the same datum share
    loses far less (thesis, section 6.3.2).

    >>> import torch
    >>> logs = torch.tensor([[0.9, 0.9], [0.1, 0.1]]).log()  # two opinions on two data
    >>> g = torch.Generator().manual_seed(0)
    >>> round(dyadic_log_likelihood(logs, 1, generator=g), 3), round(dyadic_log_likelihood(logs, 2, generator=g), 3)
    (-0.693, -1.747)
    """
    if logs.ndim != 2 or not 1 <= kappa <= logs.shape[1]:
        raise ValueError(
            f"kappa is {kappa} but logs has shape {tuple(logs.shape)}; give (s, n) with n of at least kappa"
        )
    s, n = logs.shape
    logs = logs.double()
    total = 0.0
    for _ in range(shuffles):
        order = torch.randperm(n, generator=generator)[: n // kappa * kappa].reshape(-1, kappa)
        tau = 1 if kappa == 1 else 10 * (kappa - 1)
        picked = torch.randint(kappa, (len(order), tau), generator=generator)
        joint = logs[:, order.gather(1, picked).to(logs.device)].sum(2)
        total += float((joint.logsumexp(0) - math.log(s)).mean())
    return total / shuffles


@dataclass(frozen=True, eq=False)
class Reliability:
    """Per bin of the predicted probability: its mean, how often the class was right, and how many fell in.

    >>> import torch
    >>> found = Reliability(torch.tensor([0.25, 0.75]), torch.tensor([0.25, 0.5]), torch.tensor([50, 50]))
    >>> found.error
    0.125
    """

    confidence: Float[Tensor, " bins"]
    accuracy: Float[Tensor, " bins"]
    counts: Int[Tensor, " bins"]

    @property
    def error(self) -> float:
        """The expected calibration error: ``Σ_b n_b |acc_b − conf_b| / n``."""
        gaps = (self.accuracy - self.confidence).abs().nan_to_num()
        return float((self.counts * gaps).sum() / self.counts.sum())


def reliability(p: Float[Tensor, "n c"], y: Int[Tensor, " n"], bins: int = 10) -> Reliability:
    """How often classes predicted with a probability are the right ones, all classes of all data together.

    >>> import torch
    >>> p = torch.tensor([[0.75, 0.25]]).expand(100, 2)
    >>> reliability(p, torch.arange(100) // 75).error  # a quarter of the labels are of the second class
    0.0
    """
    p = _require(p, y).double()
    right = torch.nn.functional.one_hot(y, p.shape[1]).double().flatten()
    place = (p.flatten() * bins).long().clamp(max=bins - 1)
    counts = torch.bincount(place, minlength=bins)
    confidence = torch.bincount(place, weights=p.flatten(), minlength=bins) / counts
    return Reliability(confidence, torch.bincount(place, weights=right, minlength=bins) / counts, counts)


def entropy(p: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """``−Σ_k p_k log p_k``.

    >>> import torch
    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0.0000, 0.6931])
    """
    return torch.special.entr(p).sum(-1)


def ranking(inside: Float[Tensor, " n"], outside: Float[Tensor, " m"]) -> float:
    """The chance that a score from outside is above one from inside, the area under the ROC curve; ties count half.

    >>> import torch
    >>> ranking(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.2]))
    0.875
    """
    scores = torch.cat([inside, outside]).double()
    _, inverse, counts = scores.unique(return_inverse=True, return_counts=True)
    below = counts.cumsum(0) - counts
    ranks = (below + 0.5 * (counts - 1).double() + 1.0)[inverse]
    n, m = len(inside), len(outside)
    if n == 0 or m == 0:
        raise ValueError(f"inside has {n} scores and outside {m}; give at least one of each")
    return float((ranks[n:].sum() - 0.5 * m * (m + 1)) / (n * m))


def _require(p: Tensor, y: Tensor) -> Tensor:
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise ValueError(f"p has shape {tuple(p.shape)} and y {tuple(y.shape)}; give (n, c) and (n,)")
    if len(y) == 0:
        raise ValueError("there are no data to score")
    if not bool(((p >= 0) & (p <= 1 + 1e-5)).all()):
        raise ValueError("p must hold probabilities between 0 and 1; apply softmax to logits first")
    return p
