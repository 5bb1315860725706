"""The exact evidence of a Gaussian process, and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.kernels import Kernel
from matheron.kernels.contraction import contract, contract_inputs
from matheron.operators.gradient import refuse_second
from matheron.operators.kernel import upper_triangle
from matheron.operators.memory import SAFE, free_memory, gibibytes
from matheron.solvers.cholesky import factor_in_place, substitute

if TYPE_CHECKING:
    from matheron.gp.observations import Observations
    from matheron.gp.prior import GaussianProcess


@dataclass(frozen=True)
class Evidence:
    """A log evidence, with its gradient in the kernel's parameters, each row's noise, each output's mean, and the data.

    That in the inputs is there where it was asked for.
    """

    value: float
    kernel: list[Tensor]
    noise: Float[Tensor, " n"]
    mean: Float[Tensor, " c"]
    targets: Float[Tensor, "n c"]
    inputs: Float[Tensor, "n d"] | None = None


def log_evidence(
    kernel: Kernel,
    X: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    noise: Float[Tensor, " n"],
    mean: Float[Tensor, " c"],
) -> Float[Tensor, ""]:
    """``Σ_c log N(y_c; m_c, K + N)`` in float64, differentiable in the kernel's parameters and all the others.

    The gradient is computed along with the value, where one is wanted; see :func:`exact_evidence`. Thesis §2.4.3.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> log_evidence(RBF(), torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), torch.zeros(1)).item()  # N(0; 0, 2)
    -1.2655121...
    """
    if not torch.is_grad_enabled():  # which the function could not tell: its inputs ask for a gradient all the same
        return torch.tensor(_solved(kernel, X, Y, noise, mean)[0], dtype=torch.float64, device=X.device)
    return _Evidence.apply(kernel, X, Y, noise, mean, *kernel.parameters())


class _Evidence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, X: Tensor, Y: Tensor, noise: Tensor, mean: Tensor, *parameters: Tensor
    ) -> Tensor:
        if not any(ctx.needs_input_grad):
            return torch.tensor(_solved(kernel, X, Y, noise, mean)[0], dtype=torch.float64, device=X.device)
        found = exact_evidence(kernel, X, Y, noise, mean, inputs=ctx.needs_input_grad[1])
        of_data = [None if g is None else g.to(X.dtype) for g in (found.inputs, found.targets)]
        ctx.save_for_backward(*of_data, found.noise.to(noise.dtype), found.mean.to(mean.dtype), *found.kernel)
        return torch.tensor(found.value, dtype=torch.float64, device=X.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second("the log evidence")
        return None, *(None if g is None else (upstream * g).to(g.dtype) for g in ctx.saved_tensors)


@torch.no_grad()
def exact_evidence(
    kernel: Kernel,
    X: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    noise: Float[Tensor, " n"],
    mean: Float[Tensor, " c"],
    *,
    inputs: bool = False,
) -> Evidence:
    """``−½ Σ_c r_cᵀ H⁻¹ r_c − (c/2) log det H − (nc/2) log 2π`` with ``H = K + N``, ``r = y − m``, by Cholesky.

    The gradient is ``Σ_ij W_ij ∂H_ij`` with ``W = ½(A Aᵀ − c H⁻¹)``, ``A = H⁻¹ r``, contracted with ``∂K`` in tiles;
    ``H⁻¹`` takes the place of the factor, that of ``H``, so that memory is ``8 n²`` bytes and a few tiles. That in the
    targets is ``−A``, and with ``inputs=True`` there is one in these.
    """
    value, factor, weights = _solved(kernel, X, Y, noise, mean)
    X, c = X.detach().to(torch.float64), Y.shape[1]
    inverse = torch.cholesky_inverse(factor, out=factor)

    def weigh(rows: slice, columns: slice, scale: float, out: Tensor) -> None:
        left, right = weights[rows], weights[columns].mT
        torch.addmm(inverse[rows, columns], left, right, beta=-0.5 * scale * c, alpha=0.5 * scale, out=out)

    by_noise = 0.5 * (weights.square().sum(1) - c * inverse.diagonal())
    by_inputs = contract_inputs(kernel, X, weigh) if inputs else None
    return Evidence(value, contract(kernel, X, weigh), by_noise, weights.sum(0), -weights, by_inputs)


@torch.no_grad()
def _solved(
    kernel: Kernel, X: Tensor, Y: Tensor, noise: Tensor, mean: Tensor
) -> tuple[float, Float[Tensor, "n n"], Float[Tensor, "n c"]]:
    """The log evidence, ``L`` with ``L Lᵀ = H``, and ``A = H⁻¹ r``."""
    n, c = Y.shape
    require_memory(n, X.device)
    X, Y, noise, mean = (t.detach().to(torch.float64) for t in (X, Y, noise, mean))
    factor = factorized(kernel, X, noise)
    residual = Y - mean
    weights = substitute(factor, residual)
    fit = float((residual * weights).sum())
    value = -0.5 * fit - c * float(factor.diagonal().log().sum()) - 0.5 * n * c * math.log(2.0 * math.pi)
    return value, factor, weights


def factorized(kernel: Kernel, X: Float[Tensor, "n d"], noise: Float[Tensor, " n"]) -> Float[Tensor, "n n"]:
    """``L`` with ``L Lᵀ = K + N`` over the memory of ``K + N``; rounding is met with a relative ``1e-10`` once."""
    for jitter in (0.0, 1e-10):
        matrix = upper_triangle(kernel, X)
        matrix.diagonal().add_(noise + jitter * matrix.diagonal().mean())
        factor, failed = factor_in_place(matrix)
        if not failed:
            return factor
        del matrix, factor
    raise ValueError(
        f"K + N of {X.shape[0]} rows is not positive definite at row {failed}, also with a relative 1e-10 added to its "
        "diagonal; raise the noise"
    )


def require_memory(n: int, device: torch.device) -> None:
    """Refuse what would not fit."""
    # The factor, and what LAPACK and the tiles take beside it.
    needed, free = 8.8 * n**2, free_memory(device)
    if needed > SAFE * free:
        raise MemoryError(
            f"the exact evidence of {n} rows needs {gibibytes(needed)} in float64 and {gibibytes(free)} are free; "
            "use fit(method='iterative') or 'subset', or the evidence of fewer rows"
        )


def observed_evidence(gp: GaussianProcess, data: Observations) -> Float[Tensor, ""]:
    """The log evidence of observations in the units of the targets, differentiable in the process' parameters."""
    noise = gp.noise.expand(data.rows) if gp.log_noise.ndim == 0 else data.noise
    value = log_evidence(gp.kernel, data.X, data.Y, noise, gp.mean.expand(data.outputs))
    return value - data.rows * data.units.y_scale.log().sum()
