"""What a network can learn of scans before it sees one: to turn rough reconstructions of ellipses into ellipses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from matheron.arguments import require_count, require_positive_number
from matheron.operators.base import Operator
from matheron.seeds import source_of
from matheron.tomography.cgls import cgls
from matheron.tomography.dip import CLIP, require_network, require_output
from matheron.tomography.measurements import require_shape
from matheron.tomography.scan import require_sizes

MOST_ELLIPSES = 12
"""In one image."""


def random_ellipses(
    num: int,
    shape: int | Sequence[int],
    *,
    generator: torch.Generator | int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "num *shape"]:
    """``num`` images of up to twelve ellipses, or ellipsoids, of random places, axes, turns and shades, from 0 to 1.

    >>> import torch
    >>> images = random_ellipses(4, (24, 32), generator=torch.Generator().manual_seed(0))
    >>> images.shape, float(images.min()) >= 0.0, float(images.max()) <= 1.0
    (torch.Size([4, 24, 32]), True, True)
    """
    require_count("num", num)
    sizes = require_sizes("shape", shape, len(shape) if isinstance(shape, Sequence) else 2)
    dims, source = len(sizes), source_of(generator)

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=source, dtype=dtype)

    axes = [(torch.arange(size, dtype=dtype) - (size - 1) / 2) / (size / 2) for size in sizes]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, dims)

    def image() -> Tensor:
        total = torch.zeros(len(places), dtype=dtype)
        for _ in range(int(torch.randint(1, MOST_ELLIPSES + 1, (), generator=source))):
            center, lengths = 1.2 * uniform(dims) - 0.6, 0.05 + 0.45 * uniform(dims)
            # The orthogonal factor of a normal matrix turns any direction into any other alike.
            turn = torch.linalg.qr(torch.randn(dims, dims, generator=source, dtype=dtype))[0]
            inside = (((places - center) @ turn) / lengths).square().sum(1) <= 1.0
            total += (2.0 * uniform(1) - 0.5) * inside
        # One that is empty, as ellipses can be darker than nothing or fall between pixels, is drawn again.
        return total.clamp(min=0.0) / total.max() if float(total.max()) > 0.0 else image()

    return torch.stack([image() for _ in range(num)]).reshape(num, *sizes)


@torch.enable_grad()
def pretrain(
    network: nn.Module,
    A: Operator,
    *,
    shape: int | Sequence[int] | None = None,
    steps: int = 1000,
    batch: int = 4,
    iterations: int = 10,
    noise: float = 0.05,
    learning_rate: float = 3e-3,
    generator: torch.Generator | int | None = None,
    progress: bool = False,
) -> list[float]:
    """``min_v E ‖u g(v, x̂) − x‖² / ‖x‖²`` over random ellipses ``x`` and their rough reconstructions ``x̂``, in place.

    ``x̂`` are ``iterations`` of conjugate gradients on ``A x`` with ``noise``, relative to the mean absolute
    measurement; ``u`` is the unit that :class:`DeepImagePrior` multiplies the network's output by. Give the fit an
    ``input`` of the same kind, ``cgls(A, y, iterations=10).image``: it then starts from a fair image and needs fewer
    steps. Returns the loss of every step. Thesis, section 7.1.3.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam, UNet
    >>> g = torch.Generator().manual_seed(0)
    >>> A = ParallelBeam(16, torch.arange(8) * math.pi / 8, 23).operator()
    >>> network = UNet(scales=2, channels=4, skip_channels=2, generator=g)
    >>> losses = pretrain(network, A, steps=60, learning_rate=1e-2, generator=g)
    >>> sum(losses[-10:]) < sum(losses[:10])
    True
    """
    for name, value in (("steps", steps), ("batch", batch), ("iterations", iterations)):
        require_count(name, value)
    require_positive_number("noise", noise, zero=True)
    require_positive_number("learning_rate", learning_rate)
    sizes, source = require_shape(A, shape, dims=getattr(network, "dims", None)), source_of(generator)
    require_network(network, A)
    require_output(network, torch.linspace(0.0, 1.0, A.shape[1], dtype=A.dtype, device=A.device).reshape(1, 1, *sizes))
    parameters = [p for p in network.parameters() if p.requires_grad]
    adam, losses = torch.optim.Adam(parameters, lr=learning_rate), []
    training = network.training
    network.train()
    for _ in tqdm(range(steps), disable=not progress, unit="step", desc="pretraining"):
        with torch.no_grad():
            x = random_ellipses(batch, sizes, generator=source, dtype=A.dtype).to(A.device)
            clean = A @ x.flatten(1).mT
            draws = torch.randn(clean.shape, generator=source, dtype=A.dtype).to(A.device)
            y = clean + noise * clean.abs().mean(0) * draws
            rough = cgls(A, y, iterations=iterations).image.mT.reshape(x.shape)
            unit = cgls(A, y, iterations=1).image.square().mean(0).sqrt().reshape(-1, *(1,) * len(sizes))
        adam.zero_grad()
        error, size = (network(rough[:, None])[:, 0] - x / unit).square(), (x / unit).square()
        loss = (error.flatten(1).mean(1) / size.flatten(1).mean(1)).mean()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            network.train(training)
            raise FloatingPointError(
                f"the loss became {losses[-1]} at step {len(losses) - 1}; take a smaller learning_rate, and a network "
                "with new weights"
            )
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        adam.step()
    network.train(training)
    for parameter in parameters:
        parameter.grad = None
    return losses
