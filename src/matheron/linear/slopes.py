"""How the evidence changes with the parts that a prior covariance is the sum of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_count
from matheron.linear.data import StoredData
from matheron.linear.dual import RowKernel
from matheron.linear.filter_prior import FilterPrior
from matheron.linear.filters import Filters
from matheron.operators import Diagonal, Operator
from matheron.operators.memory import free_memory, gibibytes
from matheron.seeds import normals
from matheron.solvers import CG, Factored
from matheron.solvers.system import System

SHARE = 0.5
"""Of the free memory, what the parts of a covariance may take."""


@dataclass(frozen=True, eq=False)
class Slopes:
    """``log N(y; 0, Σ_kc C_kc Φ_k S_c Φ_kᵀ + b⁻¹ I)``, where it is known, with its gradients in ``C`` and ``b⁻¹``.

    Without ``y`` it is the part that does not depend on it, the determinant and the constant.

    >>> Slopes(-1.5, torch.zeros(1, 1, dtype=torch.float64), noise=-0.25).value
    -1.5
    """

    value: float | None
    coefficients: Float64[Tensor, "k c"]
    noise: float


@runtime_checkable
class SlopesOf(Protocol):
    """The evidence and its gradients at a prior and a noise precision."""

    def __call__(self, prior: FilterPrior, noise_precision: float) -> Slopes:
        """By whatever way."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What the next gradient depends on besides where it is taken."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on as after the gradient whose state this is."""
        ...


class FactorizedSlopes:
    """``∂𝓖 = ½ αᵀ(∂S)α − ½ tr(S⁻¹ ∂S)`` with ``S = K + b⁻¹I``, ``α = S⁻¹y``, by one factorization in float64.

    The parts of ``K`` are kept, ``m²`` numbers for each component of the filters.

    >>> import torch
    >>> from matheron.linear.filters import Part
    >>> prior = FilterPrior(torch.ones(1), torch.ones(1), Filters([Part(1, (), 0)]))
    >>> slopes = FactorizedSlopes(prior.filters, torch.ones(1, 1), torch.zeros(1))
    >>> round(slopes(prior, 1.0).value, 4), round(slopes(prior, 1.0).noise, 4)  # of N(0, 2) at 0
    (-1.2655, -0.25)
    """

    def __init__(self, filters: Filters, Phi: Float[Tensor, "m d"], y: Float[Tensor, " m"] | None) -> None:
        needed = self.bytes(filters, len(Phi))
        if needed > SHARE * free_memory(Phi.device):
            raise MemoryError(
                f"the parts of the covariance of {len(Phi)} measurements take {gibibytes(needed)}; use method='cg'"
            )
        self.filters, self.grams = filters, filters.grams(Phi)
        self.y = self.grams.new_zeros(len(Phi)) if y is None else y.double()
        self._places = torch.tensor(filters.components).mT

    @staticmethod
    def bytes(filters: Filters, rows: int) -> int:
        """What it keeps and works with."""
        return 8 * (len(filters.components) + 3) * rows**2

    def __call__(self, prior: FilterPrior, noise_precision: float) -> Slopes:
        """One factorization."""
        values = self.filters.coefficients(prior.values, prior.lengthscales)
        weights = values[self._places[0], self._places[1]].to(self.y.device)
        S = torch.tensordot(weights, self.grams, dims=1)
        S.diagonal().add_(1.0 / noise_precision)
        factor = torch.linalg.cholesky(S)
        alpha = torch.cholesky_solve(self.y[:, None], factor)
        slope = 0.5 * (alpha @ alpha.mT - torch.cholesky_inverse(factor))
        by_part = torch.zeros_like(values)
        by_part[self._places[0], self._places[1]] = torch.tensordot(self.grams, slope, dims=2).cpu()
        fit, size = float(self.y @ alpha[:, 0]), 2.0 * float(factor.diagonal().log().sum())
        value = -0.5 * (fit + size + len(self.y) * math.log(2.0 * math.pi))
        return Slopes(value, by_part, float(slope.trace()))

    def state(self) -> dict[str, Tensor]:
        """Nothing: every gradient stands alone."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""


class SampledSlopes:
    """The same gradients by conjugate gradients: ``tr(S⁻¹ ∂S) = E[cᵀ(∂S)c]``, ``c = S⁻¹z``, ``z ~ N(0, S)``.

    Each probe is ``z = Φ w₀ + ε`` of one pair of draws that follow the hyperparameters; all systems are one solve, from
    where the last one ended. ``(∂S)`` is only met in quadratic forms of ``Φᵀc``. The factor of the preconditioner is
    renewed every ``renewal`` calls. Thesis, section 7.3.1; probes of covariance ``S`` in place of the identity make
    every estimate of a trace positive, and vary less.

    >>> import torch
    >>> from matheron.linear import GaussianCurvature
    >>> from matheron.linear.filters import Part
    >>> from matheron.operators import Dense
    >>> prior = FilterPrior(torch.ones(1), torch.ones(1), Filters([Part(1, (), 0)]))
    >>> data = StoredData(Dense(torch.ones(1, 1)), GaussianCurvature(1.0, size=1), torch.zeros(1))
    >>> slopes = SampledSlopes(prior.filters, data, CG(), 2000, torch.Generator().manual_seed(0))
    >>> abs(slopes(prior, 1.0).noise + 0.25) < 0.03
    True
    """

    def __init__(
        self,
        filters: Filters,
        data: StoredData,
        solver: CG,
        probes: int,
        generator: torch.Generator,
        *,
        with_targets: bool = True,
        renewal: int = 10,
    ) -> None:
        if with_targets and data.targets is None:
            raise ValueError("data has no targets; give StoredData targets=")
        self.filters, self.data, self.solver = filters, data, solver
        zero = torch.zeros(data.num_rows, dtype=data.dtype, device=data.device)
        self.targets = data.targets if with_targets and data.targets is not None else zero
        self.renewal = require_count("renewal", renewal)
        self.unit = normals((require_count("probes", probes), data.num_weights), data, generator)
        self.noise = normals((data.num_rows, probes), data, generator)
        self.generator, self.calls, self.epochs = generator, 0, 0.0
        self._factor: Tensor | None = None
        self._guess: Tensor | None = None

    @torch.no_grad()
    def __call__(self, prior: FilterPrior, noise_precision: float) -> Slopes:
        """One solve for the targets and all probes."""
        b = noise_precision
        kernel = RowKernel(self.data.with_noise_precision(b), prior)
        system = kernel + Diagonal(1.0)
        # S = (I + LᵀKL)/b: with unit noise and √b Φ the system is that of posterior samples.
        probes = b**0.5 * kernel.predict(prior.root(self.unit.mT), rooted=False) + self.noise
        columns = torch.cat([b**0.5 * self.targets[:, None], probes], dim=1)
        found = self._solver(system).solve(system, columns, guess=self._guess, generator=self.generator)
        self._guess, self.calls = found.solution, self.calls + 1
        solved = b**0.5 * found.solution
        pulled = self.data.features.T @ solved
        self.epochs += kernel.epochs + 0.5
        forms = self.filters.forms(pulled, pulled)
        squares = solved.double().square().sum(0)
        by_part = 0.5 * (forms[..., 0] - forms[..., 1:].mean(-1))
        return Slopes(None, by_part, 0.5 * float(squares[0] - squares[1:].mean()))

    def state(self) -> dict[str, Tensor]:
        """Where the last solve ended, its preconditioner and the generator that the next draws from."""
        found = {
            "generator": self.generator.get_state(),
            "counts": torch.tensor([float(self.calls), self.epochs], dtype=torch.float64),
        }
        kept = {"guess": self._guess, "factor": self._factor}
        return found | {name: value for name, value in kept.items() if value is not None}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        self.generator.set_state(state["generator"])
        calls, self.epochs = state["counts"].tolist()
        self.calls = int(calls)
        moved = {name: state[name].to(self.data.device) for name in ("guess", "factor") if name in state}
        self._guess, self._factor = moved.get("guess"), moved.get("factor")

    def _solver(self, system: Operator) -> CG:
        if self.solver.preconditioner is None:
            return self.solver
        if self._factor is None or self.calls % self.renewal == 0:
            self._factor = self.solver.preconditioner.factor(System(system), self.generator)
        return replace(self.solver, preconditioner=Factored(known=self._factor))
