"""MacKay's fixed point for the scales of signal and noise."""

from __future__ import annotations

import math

from jaxtyping import Float64
from torch import Tensor, nn

from matheron.gp.fitting.task import Task
from matheron.kernels import Kernel
from matheron.kernels.composite import Product, Scaled, Sum

LARGEST = math.log(10.0)
"""A step changes a scale by at most this factor: far from the solution the ratio means little."""


def fixed_point(data: Float64[Tensor, " p"], samples: Float64[Tensor, " p"]) -> Float64[Tensor, " p"]:
    """``log(v_yᵀ K v_y / γ)`` and ``log(σ² ‖v_y‖² / (n − γ))``: the steps of the log-scales (thesis §6.2.1 and §8.2).

    With ``z_j = H⁻¹ξ_j``, the effective dimension is ``γ = E zᵀ K z`` and ``n − γ = σ² E ‖z‖²``. So MacKay's updates,
    ``σ_f² ← σ_f² · v_yᵀ K v_y / γ`` and ``σ² ← σ⁴ ‖v_y‖² / (n − γ)``, multiply every scale by what the targets make of
    ``∂H`` over what the samples make of it: the two halves of its gradient, ``data`` and ``samples``.

    >>> import torch
    >>> data, samples = torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    >>> fixed_point(data, samples).exp()
    tensor([2., 1.], dtype=torch.float64)
    """
    ratio = data.clamp_min(1e-300).log() - samples.clamp_min(1e-300).log()
    return ratio.clamp(-LARGEST, LARGEST)


def amplitudes(task: Task) -> list[int]:
    """Places of the noise and of one variance per term of the kernel, those that are to be learnt."""
    wanted = {id(p) for p in (*scales(task.gp.kernel), task.gp.log_noise)}
    if bool((task.prior.precision[_places(task, wanted)] > 0).any()):
        raise ValueError("amplitude='mackay' knows no priors on noise and variances; use amplitude='gradient'")
    return _places(task, wanted)


def _places(task: Task, wanted: set[int]) -> list[int]:
    named = zip(task.parameters.places.values(), task.parameters.tensors.values(), strict=True)
    return [place for span, p in named if id(p) in wanted for place in range(span.start, span.stop)]


def scales(kernel: Kernel) -> list[nn.Parameter]:
    """One multiplier per term: two for the same term would both make its whole step."""
    if isinstance(kernel, Sum):
        return [scale for part in kernel for scale in scales(part)]
    if isinstance(kernel, Product):
        return scales(next(iter(kernel)))
    found = kernel._parameters.get("log_scale" if isinstance(kernel, Scaled) else "log_variance")
    return [found] if found is not None else []
