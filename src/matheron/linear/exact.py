"""The Gaussian linear model in closed form, on explicit matrices in float64: what everything else is checked against.

``Y = Φ w + ε`` with ``w ~ N(0, A⁻¹)`` and ``ε ~ N(0, B⁻¹)``, once through the ``d × d`` matrix ``H = ΦᵀBΦ + A`` and
once through the ``n × n`` matrix ``K + B⁻¹`` with ``K = Φ A⁻¹ Φᵀ``. Neither side uses the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float, require_inputs
from matheron.linear.precision import log_normalizer, precision, root, square, times
from matheron.seeds import normals, source_of


@dataclass(frozen=True, eq=False)
class Gaussian:
    """``N(mean, covariance)``.

    >>> import torch
    >>> Gaussian(torch.zeros(2), torch.diag(torch.tensor([1.0, 4.0]))).variance
    tensor([1., 4.])
    """

    mean: Float[Tensor, " m"]
    covariance: Float[Tensor, "m m"]

    @property
    def variance(self) -> Float[Tensor, " m"]:
        """The diagonal, never negative."""
        return self.covariance.diagonal().clamp(min=0.0)

    def sample(self, num: int, generator: torch.Generator | int | None = None) -> Float[Tensor, "num m"]:
        """``mean + L u`` with ``L Lᵀ = covariance`` and ``u ~ N(0, I)``, one sample per row."""
        shape = (require_count("num", num), len(self.mean))
        draws = normals(shape, self.mean, source_of(generator))
        return self.mean + draws @ root("covariance", self.covariance).mT


@dataclass(frozen=True, eq=False)
class Primal:
    """The model through ``H = M + A`` with ``M = ΦᵀBΦ``, at a cost of ``O(d³)`` (thesis §2.1).

    ``A`` and ``B`` are numbers, diagonals or matrices; ``A`` is positive definite, ``B`` may be singular.

    >>> import torch
    >>> model = Primal(torch.tensor([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]]), A=1.0, B=4.0)
    >>> posterior = model.weights(torch.tensor([0.0, 1.0, 2.0]))
    >>> posterior.mean
    tensor([0.9231, 0.8889], dtype=torch.float64)
    >>> posterior.variance
    tensor([0.0769, 0.1111], dtype=torch.float64)
    """

    Phi: Float[Tensor, "n d"]
    A: float | Float[Tensor, ""] | Float[Tensor, " d"] | Float[Tensor, "d d"]
    B: float | Float[Tensor, ""] | Float[Tensor, " n"] | Float[Tensor, "n n"]

    def __post_init__(self) -> None:
        require_inputs("Phi", self.Phi)
        _ = self.prior_precision, self.noise_precision

    @property
    def features(self) -> Float[Tensor, "n d"]:
        """``Φ`` in float64."""
        return self.Phi.double()

    @cached_property
    def prior_precision(self) -> Float[Tensor, "d d"]:
        """``A``."""
        A = precision("A", self.A, self.Phi.shape[1], self.Phi.device)
        A = A if A.ndim == 2 else torch.diag(A)
        if int(torch.linalg.cholesky_ex(A).info):
            raise ValueError("A is not positive definite, so the prior is improper; raise its smallest eigenvalues")
        return A

    @cached_property
    def noise_precision(self) -> Float[Tensor, " n"] | Float[Tensor, "n n"]:
        """``B``, as a vector where it is diagonal."""
        return precision("B", self.B, self.Phi.shape[0], self.Phi.device)

    @cached_property
    def curvature(self) -> Float[Tensor, "d d"]:
        """``M = ΦᵀBΦ``."""
        return self.features.mT @ times(self.noise_precision, self.features)

    @cached_property
    def hessian(self) -> Float[Tensor, "d d"]:
        """``H = M + A``, of the loss ``½‖Y − Φw‖²_B + ½‖w‖²_A``."""
        return self.curvature + self.prior_precision

    @cached_property
    def covariance(self) -> Float[Tensor, "d d"]:
        """``Σ = H⁻¹``, of the weights given any targets."""
        return torch.cholesky_inverse(torch.linalg.cholesky(self.hessian))

    def weights(self, Y: Float[Tensor, " n"]) -> Gaussian:
        """``w | Y ~ N(H⁻¹ΦᵀBY, H⁻¹)``."""
        Y = _targets(Y, len(self.Phi))
        return Gaussian(
            self.covariance @ (self.features.mT @ times(self.noise_precision, Y[:, None])[:, 0]), self.covariance
        )

    def functions(self, Phi_new: Float[Tensor, "m d"], Y: Float[Tensor, " n"]) -> Gaussian:
        """``f(X′) | Y ~ N(Φ′w⋆, Φ′H⁻¹Φ′ᵀ)``, without observation noise.

        >>> import torch
        >>> line = Primal(torch.ones(4, 1), A=1.0, B=1.0)
        >>> line.functions(torch.tensor([[2.0]]), torch.full((4,), 5.0)).mean.round(decimals=6)
        tensor([8.], dtype=torch.float64)
        """
        return push(Phi_new, self.weights(Y))

    def loss(self, w: Float[Tensor, "*s d"], Y: Float[Tensor, " n"]) -> Float[Tensor, "*s"]:
        """``½‖Y − Φw‖²_B + ½‖w‖²_A``: minus the log posterior density of ``w``, up to a constant."""
        w = w.double()
        residual = (_targets(Y, len(self.Phi)) - w @ self.features.mT)[..., None]
        fit = (residual * times(self.noise_precision, residual)).sum((-2, -1))
        return 0.5 * (fit + (w @ self.prior_precision * w).sum(-1))

    def log_evidence(self, Y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """``½ (logdet B − n log 2π) − loss(w⋆) − ½ (logdet H − logdet A)``: fit, size of the weights, contraction.

        >>> import torch
        >>> Primal(torch.ones(1, 1), A=1.0, B=1.0).log_evidence(torch.zeros(1))  # of N(0, 2) at 0
        tensor(-1.2655, dtype=torch.float64)
        """
        contraction = torch.logdet(self.hessian) - torch.logdet(self.prior_precision)
        normalizer = log_normalizer(self.noise_precision, self.B)
        return normalizer - self.loss(self.weights(Y).mean, Y) - 0.5 * contraction

    def elbo(self, q: Gaussian, Y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """``E_q[log p(Y|w) + log π(w)] + H(q)``: at most the log evidence, equal where ``q`` is the posterior (§3.1.1).

        >>> import torch
        >>> model, Y = Primal(torch.ones(3, 1), A=1.0, B=1.0), torch.ones(3)
        >>> bool(torch.isclose(model.elbo(model.weights(Y), Y), model.log_evidence(Y)))
        True
        """
        spread = torch.logdet(self.prior_precision) + torch.logdet(q.covariance) + len(q.mean)
        spread = spread - torch.einsum("ij,ji->", self.hessian, q.covariance)
        return log_normalizer(self.noise_precision, self.B) - self.loss(q.mean, Y) + 0.5 * spread

    def effective_dimension(self) -> Float[Tensor, ""]:
        """``γ = tr(H⁻¹M)``, the directions of weight space that the data determine (thesis §2.4.4).

        >>> import torch
        >>> Primal(torch.ones(9, 1), A=1.0, B=1.0).effective_dimension()
        tensor(0.9000, dtype=torch.float64)
        """
        return torch.einsum("ij,ji->", self.covariance, self.curvature)

    def effective_dimension_from_prior(self) -> Float[Tensor, ""]:
        """``γ = d − tr(AH⁻¹)``: weights, less those the prior holds."""
        return self.Phi.shape[1] - torch.einsum("ij,ji->", self.prior_precision, self.covariance)


@dataclass(frozen=True, eq=False)
class Dual:
    """The model through ``K + B⁻¹``, at a cost of ``O(n³)``; all it knows of ``Φ`` is ``K = ΦA⁻¹Φᵀ`` (thesis §2.2).

    ``B`` may be singular: with ``B = LLᵀ``, ``(K + B⁻¹)⁻¹`` is ``L(I + LᵀKL)⁻¹Lᵀ``, and ``B`` is never inverted.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> x, k = torch.tensor([[0.0], [1.0]], dtype=torch.float64), RBF().requires_grad_(False)
    >>> model = Dual(k(x), B=100.0)
    >>> at = torch.tensor([[0.5], [9.0]], dtype=torch.float64)
    >>> model.functions(k(at, x), k(at), Y=torch.tensor([1.0, 1.0])).variance
    tensor([0.0365, 1.0000], dtype=torch.float64)
    """

    K: Float[Tensor, "n n"]
    B: float | Float[Tensor, ""] | Float[Tensor, " n"] | Float[Tensor, "n n"]

    def __post_init__(self) -> None:
        square("K", self.K)
        _ = self.noise_root

    @classmethod
    def of(cls, model: Primal) -> Dual:
        """The same model with ``K = ΦA⁻¹Φᵀ``."""
        return cls(model.features @ torch.linalg.solve(model.prior_precision, model.features.mT), model.B)

    @cached_property
    def noise_precision(self) -> Float[Tensor, " n"] | Float[Tensor, "n n"]:
        """``B``, as a vector where it is diagonal."""
        return precision("B", self.B, len(self.K), self.K.device)

    @cached_property
    def noise_root(self) -> Float[Tensor, " n"] | Float[Tensor, "n n"]:
        """``L`` with ``LLᵀ = B``, as a vector where it is diagonal."""
        return root("B", self.noise_precision)

    @property
    def _transposed(self) -> Float[Tensor, " n"] | Float[Tensor, "n n"]:
        return self.noise_root if self.noise_root.ndim == 1 else self.noise_root.mT

    @cached_property
    def _factor(self) -> Float[Tensor, "n n"]:
        """The Cholesky factor of ``I + LᵀKL``, whose eigenvalues are at least 1."""
        identity = torch.eye(len(self.K), dtype=torch.float64, device=self.K.device)
        return torch.linalg.cholesky(identity + times(self._transposed, times(self._transposed, self.K.double()).mT))

    def solve(self, V: Float[Tensor, "n *s"]) -> Float[Tensor, "n *s"]:
        """``(K + B⁻¹)⁻¹ V``, that is ``L(I + LᵀKL)⁻¹LᵀV``."""
        inner = times(self._transposed, V.double().reshape(len(self.K), -1))
        return times(self.noise_root, torch.cholesky_solve(inner, self._factor)).reshape(V.shape)

    def representer_weights(self, Y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """``α⋆ = (K + B⁻¹)⁻¹ Y``, with ``f⋆(·) = K_·X α⋆`` and ``w⋆ = A⁻¹Φᵀα⋆``."""
        return self.solve(_targets(Y, len(self.K)))

    def functions(self, cross: Float[Tensor, "m n"], prior: Float[Tensor, "m m"], Y: Float[Tensor, " n"]) -> Gaussian:
        """``N(K_·X α⋆, K_·· − K_·X (K + B⁻¹)⁻¹ K_X·)`` from ``cross = K_·X`` and ``prior = K_··``."""
        require_inputs("cross", cross)
        if cross.shape[1] != len(self.K):
            raise ValueError(
                f"cross has {cross.shape[1]} columns but K has {len(self.K)} rows; give it k(x_new, X), shape (m, n)"
            )
        square("prior", prior)
        reduction = cross.double() @ self.solve(cross.mT)
        return Gaussian(cross.double() @ self.representer_weights(Y), prior.double() - reduction)

    def log_evidence(self, Y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """``−½ (n log 2π + logdet(K + B⁻¹) + Yᵀ(K + B⁻¹)⁻¹Y)``, for ``B`` that has an inverse."""
        contraction = 2.0 * self._factor.diagonal().log().sum()  # logdet(I + LᵀKL) = logdet(K + B⁻¹) + logdet B
        fit = _targets(Y, len(self.K)) @ self.representer_weights(Y)
        return log_normalizer(self.noise_precision, self.B) - 0.5 * (contraction + fit)

    def effective_dimension(self) -> Float[Tensor, ""]:
        """``γ = tr(K(K + B⁻¹)⁻¹)``."""
        return self.solve(self.K).diagonal().sum()


def dual_weights(model: Primal, Y: Float[Tensor, " n"]) -> Gaussian:
    """``w | Y ~ N(A⁻¹Φᵀα⋆, A⁻¹ − A⁻¹Φᵀ(K + B⁻¹)⁻¹ΦA⁻¹)``: the functions at ``Φ′ = I``.

    >>> import torch
    >>> dual_weights(Primal(torch.ones(4, 1), A=1.0, B=1.0), torch.full((4,), 5.0)).mean
    tensor([4.], dtype=torch.float64)
    """
    prior = torch.linalg.inv(model.prior_precision)
    return Dual.of(model).functions(prior @ model.features.mT, prior, Y)


def push(Phi_new: Float[Tensor, "m d"], weights: Gaussian) -> Gaussian:
    """``Φ′w ~ N(Φ′μ, Φ′ΣΦ′ᵀ)`` where ``w ~ N(μ, Σ)``.

    >>> import torch
    >>> push(torch.ones(1, 2), Gaussian(torch.ones(2).double(), torch.eye(2).double())).variance
    tensor([2.], dtype=torch.float64)
    """
    features = require_inputs("Phi_new", Phi_new).double()
    if features.shape[1] != len(weights.mean):
        raise ValueError(
            f"Phi_new has {features.shape[1]} columns but there are {len(weights.mean)} weights; "
            "use the features of the training inputs"
        )
    return Gaussian(features @ weights.mean, features @ weights.covariance @ features.mT)


def _targets(Y: Any, rows: int) -> Tensor:
    Y = require_float("Y", Y)
    if Y.shape != (rows,):
        raise ValueError(f"Y has shape {tuple(Y.shape)} but there are {rows} rows; give it shape ({rows},)")
    return require_finite("Y", Y).double()
