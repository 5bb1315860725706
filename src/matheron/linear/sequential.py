"""Measurements that come one after the other, and what is left to learn after each."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_finite, require_float, require_positive, require_same
from matheron.linear.design import conditioned
from matheron.operators import Operator
from matheron.operators.memory import SAFE, free_memory, gibibytes
from matheron.seeds import own_source


class SequentialPosterior:
    """``f | y ~ N(m, K − P Pᵀ)`` for ``f ~ N(0, K)`` and ``y = T f + ε``, ``ε ~ N(0, b⁻¹ I)``, as ``y`` grows.

    With ``T`` the rows of one measurement and ``G = (K − P Pᵀ) Tᵀ``, ``S = T G + b⁻¹ I``, each adds ``G S^(-½)`` to
    ``P``, which for all of them together is ``K Tᵀ (T K Tᵀ + b⁻¹ I)^(-½)``: only the new rows are multiplied with
    ``K``. ``samples``, joint draws ``f_j ~ N(0, K)`` by rows, go along by Matheron's rule,
    ``f_j − G S⁻¹ (T f_j + ε_j)``, and stay around zero; ``m ← m + G S⁻¹ (y − T m)`` where ``y`` is given. With a
    ``readout`` ``R``, samples are ``R f_j``, such as all that may yet be measured. ``P`` is ``(n, measurements)`` in
    float64. Thesis, section 7.4.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> g = torch.Generator().manual_seed(0)
    >>> K = Dense(torch.tensor([[4.0, 2.0], [2.0, 4.0]]))
    >>> f = torch.randn(1000, 2, generator=g) @ torch.linalg.cholesky(K.matrix).mT
    >>> found = SequentialPosterior(K, f, noise_precision=1.0, generator=g)
    >>> found.observe(Dense(torch.tensor([[1.0, 0.0]])), torch.tensor([5.0]))
    >>> found.mean, found.covariance(Dense(torch.eye(2)))  # 4/5 of 5; 4 − 16/5, 4 − 4/5
    (tensor([4., 2.]), tensor([[0.8000, 0.4000],
            [0.4000, 3.2000]], dtype=torch.float64))
    """

    def __init__(
        self,
        covariance: Operator,
        samples: Float[Tensor, "s r"],
        noise_precision: float,
        *,
        readout: Operator | None = None,
        generator: torch.Generator | int | None = None,
    ) -> None:
        samples = require_finite("samples", require_float("samples", samples))
        n = covariance.shape[0]
        wide, deep = (n, n) if readout is None else readout.shape
        if covariance.shape != (n, n) or samples.ndim != 2 or samples.shape[1] != wide or deep != n:
            raise ValueError(
                f"samples has shape {tuple(samples.shape)}, covariance {covariance.shape} and readout {(wide, deep)}; "
                "give (s, r), (n, n) and (r, n), or (s, n) without a readout"
            )
        require_same("samples", samples, "covariance", covariance)
        self.prior, self.samples, self.readout = covariance, samples, readout
        self.precision = float(require_positive("noise_precision", noise_precision))
        self.mean = torch.zeros(n, dtype=covariance.dtype, device=covariance.device)
        self.explained = torch.zeros(n, 0, dtype=torch.float64, device=covariance.device)
        """``P``."""
        self._source = own_source(generator)

    @torch.no_grad()
    def observe(self, T: Operator, y: Float[Tensor, " c"] | None = None, *, rows: slice | None = None) -> None:
        """Condition on one more measurement; without ``y`` the mean stays, and deviations shrink all the same.

        ``rows`` says where ``T`` stands in the readout, if there is one.
        """
        if (rows is None) != (self.readout is None):
            raise ValueError(f"rows is {rows} and the readout {self.readout}; give rows with a readout, and only then")
        transposed = self._require_rows(T)
        if y is not None and require_finite("y", require_float("y", y)).shape != (T.shape[0],):
            raise ValueError(f"y has shape {tuple(y.shape)} but T {T.shape[0]} rows; give one value for each")
        white = self.precision**0.5
        G = white * self._cross(transposed)
        S = white * (T @ G.to(T.dtype)).double()
        S = 0.5 * (S + S.mT)
        factor, failed = torch.linalg.cholesky_ex(S + torch.eye(len(S), dtype=S.dtype, device=S.device))
        if int(failed):
            raise ValueError(
                f"the covariance of the new measurement is not positive definite at row {int(failed)}: rounding, as "
                f"the noise of precision {self.precision:g} is small beside it; lower the precision or use float64"
            )
        observed = (T @ self.samples.mT).mT if rows is None else self.samples[:, rows]
        cross = G if self.readout is None else (self.readout @ G.to(T.dtype)).double()
        self.samples = conditioned(self.samples, white * observed, factor, cross.mT, self._source)
        if y is not None:
            error = white * (y - T @ self.mean).double()
            self.mean = self.mean + (G @ torch.cholesky_solve(error[:, None], factor))[:, 0].to(self.mean)
        self.explained = torch.cat(
            [self.explained, torch.linalg.solve_triangular(factor.mT, G, upper=True, left=False)], 1
        )

    @torch.no_grad()
    def covariance(self, T: Operator) -> Float[Tensor, "c c"]:
        """``T (K − P Pᵀ) Tᵀ`` in float64: exact, for few rows."""
        return (T @ self._cross(self._require_rows(T)).to(T.dtype)).double()

    def _cross(self, rows: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """``(K − P Pᵀ) Tᵀ`` from ``Tᵀ``."""
        return (self.prior @ rows).double() - self.explained @ (self.explained.mT @ rows.double())

    def _require_rows(self, T: Operator) -> Float[Tensor, "n c"]:
        """``Tᵀ`` as a matrix, if it and what follows from it fit."""
        n, (c, columns) = self.prior.shape[0], T.shape
        if columns != n:
            raise ValueError(f"T is {T.shape} but the covariance is of {n} entries; give rows of {n} columns")
        require_same("T", T, "the covariance", self.prior)
        needed, free = 8.0 * (n * (self.explained.shape[1] + 4 * c) + 3 * c**2), free_memory(T.device)
        if needed > SAFE * free:
            raise MemoryError(
                f"the covariance of {c} measurements with {n} entries needs {gibibytes(needed)} and {gibibytes(free)} "
                "are free; condition on fewer rows, or on a smaller image"
            )
        return T.T.dense()
