"""The log evidence as a number: its determinant by products alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear.data import Data
from matheron.linear.dense import hessian
from matheron.linear.prior import Prior, require_prior
from matheron.seeds import own_source

FEW = 2_000
"""Weights whose determinant is factorized."""


@dataclass(frozen=True)
class Evidence:
    """``𝓖(w, A) = −ℓ(Φw) − ½‖w‖²_A − ½ logdet(I + A⁻¹M)``, up to the constant of the likelihood that ``ℓ`` leaves out.

    >>> Evidence(loss=3.0, penalty=1.0, log_determinant=2.0, error=0.0, epochs=1.0).value
    -5.0
    """

    loss: float
    """``ℓ(Φw)``."""
    penalty: float
    """``½‖w‖²_A``."""
    log_determinant: float
    error: float
    """The standard error of the determinant over probes; zero where it was factorized."""
    epochs: float

    @property
    def value(self) -> float:
        """``𝓖``."""
        return -self.loss - self.penalty - 0.5 * self.log_determinant


@torch.no_grad()
def log_evidence(
    data: Data,
    prior: Prior,
    w: Float[Tensor, " d"],
    *,
    probes: int = 8,
    steps: int = 24,
    generator: torch.Generator | int | None = None,
) -> Evidence:
    """``𝓖(w, A)``; at the mode of a Gaussian likelihood it is the log evidence itself.

    The determinant is factorized for few weights, else estimated from ``probes`` random weights by ``steps`` of
    Lanczos' recursion each, a pass over the data per step for all of them together. Thesis, sections 3.3.3 and 5.2.

    >>> import torch
    >>> from matheron.linear import DiagonalPrior, GaussianCurvature, StoredData
    >>> from matheron.operators import Dense
    >>> data = StoredData(Dense(torch.ones(3, 1)), GaussianCurvature(1.0, size=3), torch.ones(3))
    >>> found = log_evidence(data, DiagonalPrior(1.0, num_weights=1), torch.tensor([0.75]))
    >>> round(found.log_determinant, 4)  # log(1 + 3)
    1.3863
    """
    require_prior(prior, data)
    require_count("probes", probes)
    require_count("steps", steps)
    loss, column = 0.0, w[:, None]
    for batch in data.batches():
        loss += float(batch.loss(batch.features @ column))
    penalty = 0.5 * float((column * prior.precision(column)).sum().double())
    if data.num_weights <= FEW:
        determinant = float(torch.linalg.slogdet(hessian(data, prior, None))[1] - prior.log_determinant())
        return Evidence(loss, penalty, determinant, 0.0, 1.5)
    values, passes = log_determinant(data, prior, probes=probes, steps=steps, generator=generator)
    error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return Evidence(loss, penalty, float(values.mean()), error, 0.5 + passes)


@torch.no_grad()
def log_determinant(
    data: Data, prior: Prior, *, probes: int = 8, steps: int = 24, generator: torch.Generator | int | None = None
) -> tuple[Float[Tensor, " probes"], float]:
    """``logdet(I + A⁻¹M)``, an unbiased estimate of each probe but for the truncation of the recursion; and its passes.

    ``A⁻¹M`` is symmetric in the inner product of ``A``, where a probe ``z ~ N(0, A⁻¹)`` has the expected square ``d``;
    it is brought to that length, which takes away the variance along it. Directions are kept orthogonal to all before:
    ``steps × probes`` vectors of weights.
    """
    require_prior(prior, data)
    require_count("probes", probes)
    source = own_source(generator)
    q = prior.draw(probes, source).mT.contiguous()
    q /= _norms(q, prior)[:, None]
    steps = min(require_count("steps", steps), data.num_weights)
    basis, alphas, betas = [q], [], []
    for _ in range(steps):
        image = prior.covariance(_curved(data, basis[-1]).mT).mT
        weighted = prior.precision(image.mT).mT
        alphas.append((basis[-1] * weighted).sum(1))
        for _ in range(2):  # once leaves rounding behind
            for before in basis:
                image = image - (before * prior.precision(image.mT).mT).sum(1, keepdim=True) * before
        beta = _norms(image, prior)
        betas.append(beta)
        basis.append(image / torch.where(beta > 0, beta, 1.0)[:, None])
    diagonal, beside = torch.stack(alphas, 1).double(), torch.stack(betas, 1).double()[:, :-1]
    # A recursion that has run through all directions of a probe leaves rounding beyond, of no weight.
    ended = beside <= 1e-6 * diagonal.abs().amax(1, keepdim=True)
    beside = torch.where(ended.cumsum(1) > 0, 0.0, beside)
    T = torch.diag_embed(diagonal) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(T)
    quadrature = (vectors[:, 0].square() * values.clamp(min=0.0).log1p()).sum(1)
    return data.num_weights * quadrature.cpu(), float(steps)


def _curved(data: Data, W: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    """``M W``, one column per row."""
    total = torch.zeros_like(W)
    for batch in data.batches():
        F = batch.features @ W.mT
        total += (batch.features.T @ (batch.curvature @ F)).mT
    return total


def _norms(W: Float[Tensor, "k d"], prior: Prior) -> Float[Tensor, " k"]:
    return (W * prior.precision(W.mT).mT).sum(1).clamp(min=0.0).sqrt()
