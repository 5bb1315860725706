"""From a prior and data to a posterior, by one solve for the mean and all samples."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_count
from matheron.gp.covariance import Factors
from matheron.gp.draws import PriorDraws, PriorFunctions, normals
from matheron.gp.fitting.task import digest
from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.observations import Observations, require_noise, require_rows, require_targets
from matheron.gp.paths import Paths
from matheron.gp.posterior import Posterior
from matheron.gp.report import Report
from matheron.gp.rounding import MUCH, rounding
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel
from matheron.kernels.feature_map import NoFeaturesError
from matheron.operators import Diagonal, KernelOperator, Operator
from matheron.solvers import CG, Auto, Cholesky, Result
from matheron.solvers.iteration import IterativeSolver, draw_seed

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess

Solver = Auto | Cholesky | IterativeSolver | InducingSGD


class Conditioning(nn.Module):
    """``(K + N) [α_y | α_f] = [y − m | f(X) + ε]``: the systems behind a posterior (thesis §4.1).

    Everything is in standard units, and in float64 where it is small enough to be factorized or where rounding to
    float32 would drown the noise, whatever ``dtype`` the data came in and answers go out in. The kernel is a copy, so
    that a posterior stays what it is while the process it came from is fitted to something else.
    """

    X: Float[Tensor, "n d"]
    row_noise: Float[Tensor, " n"]
    targets: Float[Tensor, "n k"]
    center: Float[Tensor, " c"]
    noise: Float[Tensor, ""] | None
    prior: PriorFunctions | None
    bound: float | None = None

    def __init__(
        self,
        kernel: Kernel,
        prior: PriorFunctions | None,
        X: Tensor,
        row_noise: Float[Tensor, " n"],
        targets: Float[Tensor, "n k"],
        center: Float[Tensor, " c"],
        noise: Float[Tensor, ""] | None,
        units: Standardization,
        solver: Solver,
        *,
        single: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.kernel, self.prior, self.units, self.solver, self.single = kernel, prior, units, solver, single
        self.dtype = dtype
        self.register_buffer("X", X)
        self.register_buffer("row_noise", row_noise)
        self.register_buffer("targets", targets)
        self.register_buffer("center", center)
        self.register_buffer("noise", noise)

    @property
    def support(self) -> Tensor:
        """The inputs whose kernel functions make up the answer."""
        return self.X

    @property
    def outputs(self) -> int:
        """``c``."""
        return len(self.center)

    def system(self) -> Operator:
        """``K + N``."""
        return KernelOperator(self.kernel, self.X) + Diagonal(self.row_noise)

    def solve(self, targets: Float[Tensor, "n k"], **options: Any) -> Result:
        """``(K + N)⁻¹`` times the targets."""
        if isinstance(self.solver, InducingSGD):
            raise TypeError("solver is InducingSGD but there are no inducing points; pass inducing= too")
        return self.solver.solve(self.system(), targets, **options)

    def factorize(self) -> Factors:
        """The factor exact covariances are read from."""
        return Cholesky().factor(self.system()), None

    def new_targets(
        self, X: Tensor, residual: Float[Tensor, "r c"], row_noise: Float[Tensor, " r"], generator: torch.Generator
    ) -> Float[Tensor, "r k"]:
        """``[y − m | f(X) + ε]`` for rows yet unseen."""
        if self.prior is None:
            return residual
        noise = row_noise.sqrt()[:, None] * normals(X.shape[0], self.prior.num, X, generator)
        return torch.cat([residual, self.prior(X) + noise], dim=1)

    def posterior(self, *, guess: Tensor | None, generator: torch.Generator, seed: int, **options: Any) -> Posterior:
        """Solve, and put the posterior together."""
        result = self.solve(self.targets, guess=guess, generator=generator, **options)
        c = self.outputs
        mean, samples = result.solution[:, :c].contiguous(), result.solution[:, c:].contiguous()
        paths = Paths(
            self.kernel, self.support, mean, samples, self.prior, self.center, self.units, single=self.single,
            dtype=self.dtype,
        )  # fmt: skip
        report = Report.of(
            result,
            rows=self.X.shape[0],
            outputs=c,
            num_samples=len(paths),
            num_features=0 if self.prior is None else self.prior.features.num,
            inducing=None if self.support is self.X else self.support.shape[0],
            evidence_bound=self.bound,
            variance="exact" if result.exact else f"mean square of {len(paths) * c} zero-mean functions",
            seed=seed,
            precision=str(self.X.dtype).removeprefix("torch."),
        )
        return Posterior(paths, self, report, exact_variance=result.exact)

    def extend(
        self,
        weights: Float[Tensor, "n k"],
        X: Tensor,
        y: Tensor,
        *,
        noise: float | Tensor | None,
        generator: torch.Generator | None,
        progress: bool,
    ) -> Posterior:
        """Condition on more rows, from the solution ``weights`` of those before."""
        X = _require_more(self, X)
        X, Y = X.to(self.X.dtype), require_targets(y, X).to(self.X.dtype)
        X = self.units.inputs(X)
        if Y.shape[1] != self.outputs:
            raise ValueError(f"y has {Y.shape[1]} columns but the posterior has {self.outputs} outputs; give as many")
        row_noise = self._more_noise(noise, X)
        seed = draw_seed(generator)
        source = torch.Generator().manual_seed(seed)
        new = self.new_targets(X, self.units.targets(Y) - self.center.to(Y.dtype), row_noise, source)
        longer = copy.copy(self)
        longer._buffers = dict(self._buffers)
        longer.X = torch.cat([self.X, X])
        longer.row_noise = torch.cat([self.row_noise, row_noise])
        longer.targets = torch.cat([self.targets, new])
        guess = longer.padded(weights, X.shape[0])
        return longer.posterior(guess=guess, generator=source, seed=seed, progress=progress)

    def padded(self, weights: Float[Tensor, "n k"], rows: int) -> Float[Tensor, "N k"]:
        """The old solution, and for the new rows what solves their own equations with the old held fixed."""
        old = weights.shape[0]
        if rows > MOST_PADDED:
            return torch.cat([weights, weights.new_zeros(rows, weights.shape[1])])
        new = self.X[old:]
        left = self.targets[old:] - KernelOperator(self.kernel, new, self.X[:old], memory=0) @ weights
        block = KernelOperator(self.kernel, new) + Diagonal(self.row_noise[old:])
        return torch.cat([weights, Cholesky().solve(block, left).solution])

    def _more_noise(self, noise: float | Tensor | None, X: Tensor) -> Float[Tensor, " r"]:
        if noise is not None:
            return require_noise(noise, X.shape[0], X) / self.units.y_scale[0].square().to(X.dtype)
        if self.noise is None:
            raise ValueError("noise is missing: the training rows had one variance each; give those of the new rows")
        return self.noise.to(X.dtype).expand(X.shape[0])

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        moved = super()._apply(fn, recurse)
        moved.units = self.units.to(moved.center.device)
        return moved


MOST_PADDED = 5_000
"""New rows beyond which their own block is not solved beforehand."""


def condition(
    process: GaussianProcess,
    X: Tensor,
    y: Tensor,
    *,
    num_samples: int,
    solver: Solver | str,
    inducing: int | Tensor | None,
    noise: float | Tensor | None,
    num_features: int,
    generator: torch.Generator | None,
    **options: Any,
) -> Posterior:
    """See :meth:`GaussianProcess.condition`; ``options`` are those of a solve."""
    data = process.observations(X, y, noise)
    require_count("num_samples", num_samples, least=0)
    chosen = require_solver(solver)
    seed = draw_seed(generator)
    source = torch.Generator().manual_seed(seed)
    given = data
    if _factorizes(process, data, chosen, inducing) or _drowns(process, data, chosen, inducing):
        data = data.double()
    center = process.mean.detach().expand(data.outputs).clone()
    shared = process.log_noise.ndim == 0 and noise is None
    with torch.no_grad():
        kernel, draws, guess = _draws(process, given, data, num_samples * data.outputs, num_features, source)
        columns = [data.Y - center.to(data.Y.dtype)]
        if draws is not None:
            noisy = draws.noisy(data.X, data.noise) if inducing is None else data.noise.sqrt()[:, None] * draws.normals
            columns.append(noisy)
        parts: dict[str, Any] = {
            "kernel": kernel,
            "prior": None if draws is None else draws.functions,
            # A copy: what is done to the caller's tensor later must not reach the posterior.
            "X": data.X.clone(memory_format=torch.contiguous_format) if data.X.layout == torch.strided else data.X,
            "row_noise": data.noise.contiguous(),
            "targets": torch.cat(columns, dim=1),
            "center": center,
            "noise": process.noise.detach().clone() if shared else None,
            "units": data.units,
            "solver": chosen,
            "single": data.single,
            "dtype": given.X.dtype,
        }
    if inducing is None:
        system = Conditioning(**parts)
    else:
        from matheron.gp.inducing import InducingConditioning, locations

        system, guess = InducingConditioning(locations(inducing, data, given.X.dtype, source), **parts), None
    return system.posterior(guess=guess, generator=source, seed=seed, **options)


def require_solver(solver: Solver | str) -> Solver:
    """Return a solver for ``"auto"``, or the one given."""
    if solver == "auto":
        return Auto()
    if isinstance(solver, Solver):
        return solver
    raise TypeError(f'solver must be "auto" or one of matheron.solvers such as SDD(), got {solver!r}')


def _factorizes(process: GaussianProcess, data: Observations, solver: Solver, inducing: int | Tensor | None) -> bool:
    """Whether a factorization will be made: rounding to float32 on the way to and from it would be all its error."""
    if not isinstance(solver, Auto) or inducing is not None:
        return isinstance(solver, Auto | Cholesky)
    system = KernelOperator(process.kernel, data.X) + Diagonal(data.noise)
    return isinstance(solver.choose(system)[0], Cholesky)


def _drowns(process: GaussianProcess, data: Observations, solver: Solver, inducing: int | Tensor | None) -> bool:
    """Whether conjugate gradients, which rely on the noise, would find rounding errors in its place."""
    return inducing is None and isinstance(solver, Auto | CG) and rounding(process.kernel, data) > MUCH


def _draws(
    process: GaussianProcess,
    given: Observations,
    data: Observations,
    num: int,
    num_features: int,
    generator: torch.Generator,
) -> tuple[Kernel, PriorDraws | None, Tensor | None]:
    """A frozen copy of the kernel, prior functions that refer to it, and where to start: where learning left off.

    ``data`` are those ``given``, perhaps in another precision.
    """
    if num == 0:
        return copy.deepcopy(process.kernel).requires_grad_(False), None, None
    warm = process.warm
    if warm is not None and warm.digest == digest(given.X, given.Y):
        kernel, draws = copy.deepcopy((process.kernel, warm.draws))
        kernel.requires_grad_(False)
        draws = draws.cast(data.X.dtype)
        guess = data.Y.new_zeros(data.rows, data.outputs + num)
        known = min(guess.shape[1], warm.solution.shape[1])
        guess[:, :known] = warm.solution[:, :known]
        return kernel, draws.resized(num, generator), guess
    kernel = copy.deepcopy(process.kernel).requires_grad_(False)
    try:
        draws = PriorDraws.draw(kernel, data.X, num, num_features=num_features, generator=generator)
    except NoFeaturesError as reason:
        raise NoFeaturesError(
            f"sampled functions need random features, and {reason}; pass num_samples=0 for the mean, and "
            "variance(x, exact=True) for error bars"
        ) from reason
    return kernel, draws, None


def _require_more(conditioning: Conditioning, X: Tensor) -> Tensor:
    """Rows to add; one is enough."""
    X = require_rows(conditioning.kernel, X, least=1)
    if X.shape[1] != conditioning.X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but the training inputs had {conditioning.X.shape[1]}; give the same columns"
        )
    if X.dtype != conditioning.dtype:
        raise TypeError(
            f"X is {X.dtype} but the training inputs were {conditioning.dtype}; "
            f"convert it, for example X.to({conditioning.dtype})"
        )
    return X
