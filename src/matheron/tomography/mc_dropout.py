"""Monte Carlo dropout, the usual baseline of error bars for a deep image prior."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_between, require_count
from matheron.operators.base import Operator
from matheron.seeds import own_source
from matheron.tomography.dip import DeepImagePrior
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.measurements import require_sinogram, require_weights

RATE = 0.05


class MonteCarloDropout(ImagePosterior):
    """``x_j = g(v, m_j)``: images of one network with random units left out, in its fit as in prediction (§ 7.4.1).

    After every convolution of more than one pixel each unit is zero with probability ``rate``, all others are divided
    by ``1 − rate``. The objective is that of :class:`DeepImagePrior`, whose arguments these are, with fresh ``m`` at
    every step; mean and deviations are those of the images drawn.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam, UNet
    >>> g = torch.Generator().manual_seed(0)
    >>> A = ParallelBeam(12, torch.arange(6) * math.pi / 6, 17).operator()
    >>> truth = torch.zeros(12, 12)
    >>> truth[3:8, 4:9] = 1.0
    >>> network = UNet(scales=2, channels=4, skip_channels=2, generator=g)
    >>> post = MonteCarloDropout(A, network).fit(A @ truth.flatten(), steps=100, generator=g)
    >>> post.mean.shape, post.sample(5).shape, bool((post.std > 0).all())
    (torch.Size([12, 12]), torch.Size([5, 12, 12]), True)
    """

    def __init__(
        self,
        A: Operator,
        network: nn.Module | None = None,
        *,
        rate: float = RATE,
        tv: float | None = None,
        input: Tensor | None = None,
        shape: int | Sequence[int] | None = None,
    ) -> None:
        self.rate = require_between("rate", rate, 0.0, 0.99)
        self._dip = DeepImagePrior(A, network, tv=tv, input=input, shape=shape)
        if not convolutions(self._dip.network):
            raise ValueError("network has no convolution of more than one pixel to leave units out after")

    @property
    def network(self) -> nn.Module:
        """Fitted in place."""
        return self._dip.network

    @property
    def history(self) -> list[dict[str, float]]:
        """``loss``, ``fit`` and ``variation`` of every step, each with its own units left out."""
        return self._dip.history

    def fit(
        self,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        steps: int = 2000,
        learning_rate: float = 3e-3,
        final_samples: int = 64,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
    ) -> MonteCarloDropout:
        """Fit the network, then draw ``final_samples`` images; the noise is what their mean leaves of ``y``.

        ``weights`` are the precisions of the rays up to one factor, as for :class:`DeepImagePrior`.
        """
        require_count("final_samples", final_samples, least=2)
        y, root = require_sinogram(y, self._dip.A), require_weights(weights, self._dip.A)[:, 0].sqrt()
        source = own_source(generator)
        options: dict[str, Any] = {"learning_rate": learning_rate, "generator": source, "progress": progress}
        with leaving_out(self.network, self.rate, source), torch.no_grad():
            with torch.enable_grad():
                self._dip.fit(y, weights=weights, steps=steps, **options)
            assert self._dip.input is not None
            drawn = [self._dip.output(self.network, self._dip.input).flatten() for _ in range(final_samples)]
        images = torch.stack(drawn)
        mean = images.mean(0)
        misfit, power = (root * (y - self._dip.A @ mean)).square().mean(), (root * y).square().mean()
        # The mean is that of the draws themselves, which makes their mean square too small.
        deviations = math.sqrt(final_samples / (final_samples - 1)) * (images - mean)
        self.adopt(mean.reshape(self._dip.shape), deviations, 1.0 / float(misfit.clamp(min=1e-12 * power)))
        return self

    def __repr__(self) -> str:
        state = "not fitted" if self._deviations is None else f"{len(self.deviations)} samples"
        return f"MonteCarloDropout({tuple(self._dip.shape)}, rate={self.rate:g}, {state})"


def convolutions(network: nn.Module) -> list[nn.Module]:
    """Those of more than one pixel.

    >>> from matheron.tomography import UNet
    >>> len(convolutions(UNet(scales=2)))
    5
    """
    kinds = nn.Conv1d | nn.Conv2d | nn.Conv3d
    return [module for module in network.modules() if isinstance(module, kinds) and math.prod(module.kernel_size) > 1]


@contextmanager
def leaving_out(network: nn.Module, rate: float, generator: torch.Generator) -> Iterator[None]:
    """Within, every pass through ``network`` leaves out its own random units after each convolution.

    >>> layer = nn.Conv2d(1, 1, 3, padding=1)
    >>> with leaving_out(layer, 0.5, torch.Generator().manual_seed(0)):
    ...     share = float((layer(torch.ones(1, 1, 50, 50)) == 0).float().mean())
    >>> 0.4 < share < 0.6
    True
    """

    def drop(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        kept = torch.rand(output.shape, generator=generator, device=generator.device) >= rate
        return output * kept.to(output) / (1.0 - rate)

    hooks = [module.register_forward_hook(drop) for module in convolutions(network)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
