"""From a prior and data to a posterior: what is checked, drawn and decided before the solve."""

from __future__ import annotations

import copy
import numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count
from matheron.gp.conditioning import Conditioning, Solver
from matheron.gp.draws import PriorDraws
from matheron.gp.inducing import DIRECT, InducingConditioning, locations
from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.observations import Observations
from matheron.gp.posterior import Posterior
from matheron.gp.rounding import MUCH, rounding
from matheron.kernels import Kernel
from matheron.kernels.feature_map import NoFeaturesError
from matheron.kernels.rows import copy_rows
from matheron.operators import Diagonal, KernelOperator
from matheron.seeds import draw_seed
from matheron.solvers import CG, Auto, Checkpoint, Cholesky

if TYPE_CHECKING:
    from matheron.gp.prior import GaussianProcess

SEED = "seed of the posterior"
"""A note in the checkpoint of its solve."""


# A posterior is differentiated in its inputs later, also where it was made in inference mode.
@torch.inference_mode(False)
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
    generator: torch.Generator | int | None,
    checkpoint: Checkpoint | Path | str | None,
    **options: Any,
) -> Posterior:
    """See :meth:`GaussianProcess.condition`; ``options`` are those of a solve."""
    data = process.observations(X, y, noise)
    num_samples = require_count("num_samples", num_samples, least=0)
    num_features = require_count("num_features", num_features)
    inducing = require_inducing(inducing)
    chosen = require_solver(solver, inducing)
    checkpoint = Checkpoint.of(checkpoint)
    seed = _seed(generator, checkpoint)
    source = torch.Generator().manual_seed(seed)
    given = data
    if _factorizes(process, data, chosen, inducing) or _drowns(process, data, chosen, inducing):
        data = data.double()
    center = process.mean.detach().expand(data.outputs).clone()
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
            "X": copy_rows(data.X),
            "row_noise": data.noise.contiguous(),
            "targets": torch.cat(columns, dim=1),
            "center": center,
            "noise": _common_noise(process, data, noise),
            "units": data.units,
            "solver": chosen,
            "single": data.single,
            "dtype": given.X.dtype,
        }
    if inducing is None:
        system = Conditioning(**parts)
    else:
        system = InducingConditioning(locations(kernel, inducing, data, given.X.dtype, source), **parts)
    if guess is not None and process.warm is not None:
        system.reused = min(num_samples, process.warm.draws.num // data.outputs)
    guess = guess if inducing is None else None
    return system.posterior(guess=guess, generator=source, seed=seed, checkpoint=checkpoint, **options)


def _seed(generator: torch.Generator | int | None, checkpoint: Checkpoint | None) -> int:
    """That of the interrupted call where there is one: its draws are behind the targets it was solving for."""
    seed = draw_seed(generator)
    if checkpoint is None:
        return seed
    known = checkpoint.recall(SEED)
    checkpoint.notes[SEED] = seed if known is None else int(known)
    return checkpoint.notes[SEED]


def _common_noise(
    process: GaussianProcess, data: Observations, noise: float | Tensor | None
) -> Float[Tensor, ""] | None:
    """What stands for all rows, those to come too; ``None`` where each has its own."""
    if noise is None:
        return process.noise.detach().clone() if process.log_noise.ndim == 0 else None
    return data.noise[0].to(torch.float64) if torch.as_tensor(noise).numel() == 1 else None


def require_solver(solver: Solver | str, inducing: int | Tensor | None) -> Solver:
    """Return a solver for ``"auto"``, or the one given if it is made for such a system."""
    if solver == "auto":
        return Auto()
    if not isinstance(solver, Solver):
        raise TypeError(f'solver must be "auto" or one of matheron.solvers such as SDD(), got {solver!r}')
    if inducing is None and isinstance(solver, InducingSGD):
        raise TypeError("solver is InducingSGD but there are no inducing points; pass inducing= too")
    if inducing is not None and not isinstance(solver, Auto | Cholesky | InducingSGD):
        raise TypeError(f"with inducing points the solver is Cholesky(), InducingSGD() or auto, got {solver!r}")
    return solver


def require_inducing(inducing: Any) -> int | Tensor | None:
    """Return it if it is a number of points or their locations; these are looked at with the data."""
    if inducing is None or isinstance(inducing, Tensor):
        return inducing
    if isinstance(inducing, numbers.Integral):
        return require_count("inducing", inducing)
    raise TypeError(
        f"inducing must be a number of points or their locations in a torch.Tensor, got {type(inducing).__name__}; "
        "convert it with torch.as_tensor"
    )


def _factorizes(process: GaussianProcess, data: Observations, solver: Solver, inducing: int | Tensor | None) -> bool:
    """Whether a factorization will be made: rounding to float32 on the way to and from it would be all its error."""
    if inducing is not None:
        points = inducing.shape[0] if isinstance(inducing, Tensor) else inducing
        return isinstance(solver, Cholesky) or (isinstance(solver, Auto) and points <= DIRECT)
    if not isinstance(solver, Auto):
        return isinstance(solver, Cholesky)
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
    if warm is not None and warm.fits(process.kernel, given, num_features):
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
