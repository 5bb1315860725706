"""The posterior of a tangent model with its covariance whole: what approximations of it are measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear import Data, DiagonalPrior
from matheron.linear.dense import curvature_matrix
from matheron.linear.starting import set_out
from matheron.networks import NetworkData

KEEP = 2 * 2**30
"""Bytes of a Jacobian that is kept for the passes of the mode, which changes their time only."""

NEAR = 0.01
"""Posterior standard deviations from the mode at which a search for it ends."""


@dataclass(frozen=True, eq=False)
class FullCovariance:
    """``H = M + A`` with ``M = JᵀBJ`` in float64, assembled once, and modes under any ``A``."""

    data: Data
    M: Float[Tensor, "d d"]

    @classmethod
    def of(cls, data: NetworkData) -> FullCovariance:
        """In one pass over the data."""
        small = 4 * data.num_rows * data.num_weights <= KEEP
        held: Data = data.kept() if small else data
        return cls(held, curvature_matrix(held))

    def factor(self, prior: DiagonalPrior) -> Float[Tensor, "d d"]:
        """``L`` with ``LLᵀ = H``."""
        H = self.M.clone()
        H.diagonal().add_(prior.precision(torch.ones(len(H), 1))[:, 0])
        return torch.linalg.cholesky(H)

    def mode(self, prior: DiagonalPrior, factor: Tensor, start: Float[Tensor, " d"] | None) -> Float[Tensor, " d"]:
        """``argmin ℓ(Jw) + ½‖w‖²_A`` by L-BFGS in the coordinates ``u = Lᵀw``, where ``H`` is the identity."""
        start = set_out(self.data, prior, self.data.guess)[0][:, 0].double() if start is None else start
        u = factor.mT @ start
        u.requires_grad_(True)
        optimizer = torch.optim.LBFGS(
            [u], max_iter=60, max_eval=90, tolerance_grad=NEAR / len(u) ** 0.5, tolerance_change=0.0, history_size=20,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def weights() -> Tensor:
            return torch.linalg.solve_triangular(factor.mT, u.detach()[:, None], upper=True)[:, 0]

        def closure() -> float:
            value, gradient = objective(self.data, prior, weights().to(self.data.dtype))
            u.grad = torch.linalg.solve_triangular(factor, gradient.double()[:, None], upper=False)[:, 0]
            return value

        optimizer.step(closure)
        return weights()

    def layerwise(self, prior: DiagonalPrior, steps: int) -> list[DiagonalPrior]:
        """The priors of successive EM steps with ``a_g ← γ_g/‖w⋆_g‖²`` and ``γ_g`` from the inverse of ``H``."""
        path, mode = [prior], None
        for _ in range(steps):
            factor = self.factor(path[-1])
            mode = self.mode(path[-1], factor, mode)
            variances = torch.cholesky_inverse(factor).diagonal()[:, None]
            left = path[-1].group_sums(path[-1].precision(variances))[:, 0]
            squares = path[-1].group_sums(mode[:, None].square())[:, 0]
            path.append(path[-1].with_precision((path[-1].group_sizes - left).clamp(min=1e-6) / squares))
        return path

    def single(self, dimension: Callable[[float], float], start: float, steps: int) -> tuple[list[float], Tensor]:
        """The precisions of successive EM steps with one ``a ← γ(a)/‖w⋆‖²``, and the last mode."""
        path, mode = [start], None
        for _ in range(steps):
            prior = DiagonalPrior(path[-1], num_weights=len(self.M))
            mode = self.mode(prior, self.factor(prior), mode)
            path.append(dimension(path[-1]) / float(mode.square().sum()))
        assert mode is not None
        return path, mode


def objective(data: Data, prior: DiagonalPrior, w: Float[Tensor, " d"]) -> tuple[float, Float[Tensor, " d"]]:
    """``ℓ(Jw) + ½‖w‖²_A`` and its gradient, in one pass."""
    gradient = prior.precision(w[:, None])
    value = 0.5 * float((w[:, None] * gradient).sum().double())
    for batch in data.batches():
        F = batch.features @ w[:, None]
        value += float(batch.loss(F))
        gradient = gradient + batch.features.T @ batch.loss_gradient(F)
    return value, gradient[:, 0]


def functional_covariance(J: Float[Tensor, "b c d"], factor: Float[Tensor, "d d"]) -> Float[Tensor, "b c c"]:
    """``J H⁻¹ Jᵀ`` of every datum."""
    b, c, d = J.shape
    half = torch.linalg.solve_triangular(factor, J.reshape(-1, d).mT.double(), upper=False).mT.reshape(b, c, d)
    return half @ half.mT


def dimension_of(spectrum: Tensor) -> Callable[[float], float]:
    """``γ(a) = Σ λ/(λ + a)``."""
    return lambda a: float((spectrum / (spectrum + a)).sum())
