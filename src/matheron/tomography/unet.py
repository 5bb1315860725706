"""The U-net whose output a deep image prior takes for the image."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from matheron.arguments import require_count
from matheron.seeds import source_of

SLOPE = 0.2
"""Of the leaky ReLU where its input is negative."""


class UNet(nn.Module):
    """``x = Out(Up_0(Skip_0, Up_1(Skip_1, … Down_1(Down_0(In z)))))``: an image ``(b, 1, *size)`` from one of any size.

    ``In`` is a 3 × 3 convolution; each ``Down_i`` halves the image by a stride of two, then convolves; each ``Up_i``
    enlarges it bilinearly to the size of ``Skip_i``, a 1 × 1 convolution of what entered ``Down_i``, and convolves both
    twice; ``Out`` is a 1 × 1 convolution. Group norm stands before every 3 × 3 convolution (``groups=None``: none) and
    a leaky ReLU after it. The blocks are the submodules by these names, so that each can have a prior of its own.
    ``scales`` counts image sizes, the first one included; ``dims=3`` makes all of it spatial. Weights are drawn from
    ``generator``, without one from a fresh seed; biases are zero. Thesis, section 7.2.3 and appendix on tomographic
    reconstruction.

    >>> import torch
    >>> net = UNet(scales=3, channels=32, skip_channels=4, generator=torch.Generator().manual_seed(0))
    >>> net.blocks
    ('In', 'Down_0', 'Down_1', 'Skip_1', 'Up_1', 'Skip_0', 'Up_0', 'Out')
    >>> net(torch.zeros(1, 1, 28, 35)).shape, sum(p.numel() for p in net.parameters())
    (torch.Size([1, 1, 28, 35]), 77435)
    """

    def __init__(
        self,
        *,
        scales: int = 3,
        channels: int = 32,
        skip_channels: int = 4,
        groups: int | None = 4,
        dims: int = 2,
        generator: torch.Generator | int | None = None,
    ) -> None:
        super().__init__()
        require_count("scales", scales, least=2)
        require_count("channels", channels)
        require_count("skip_channels", skip_channels)
        if groups is not None:
            require_count("groups", groups)
        if dims not in (2, 3):
            raise ValueError(f"dims must be 2 for images or 3 for volumes, got {dims!r}")
        self.dims, self.scales = dims, scales
        # Channels that are normalized together; one of them alone needs more than one pixel.
        self._together = math.inf if groups is None else channels // math.gcd(groups, channels)

        def convolution(before: int, stride: int = 1) -> nn.Sequential:
            norm = [] if groups is None else [nn.GroupNorm(math.gcd(groups, before), before)]
            layer = _undrawn(dims, before, channels, 3, stride=stride, padding=1)
            return nn.Sequential(*norm, layer, nn.LeakyReLU(SLOPE))

        def pointwise(after: int) -> nn.Module:
            return _undrawn(dims, channels, after, 1)

        self.add_module("In", convolution(1))
        for scale in range(scales - 1):
            self.add_module(f"Down_{scale}", nn.Sequential(convolution(channels, 2), convolution(channels)))
        for scale in reversed(range(scales - 1)):
            self.add_module(f"Skip_{scale}", nn.Sequential(pointwise(skip_channels), nn.LeakyReLU(SLOPE)))
            joined = convolution(channels + skip_channels)
            self.add_module(f"Up_{scale}", nn.Sequential(joined, convolution(channels)))
        self.add_module("Out", pointwise(1))
        self._draw(source_of(generator))

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks, as their parameters come."""
        return tuple(name for name, _ in self.named_children())

    def forward(self, z: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 1 *size"]:
        """Down, keeping what passes by; up, taking it in."""
        if z.ndim != self.dims + 2 or z.shape[1] != 1:
            raise ValueError(f"z has shape {tuple(z.shape)}; give images (b, 1, *size) with {self.dims} sizes")
        smallest = math.prod(-(-size // 2 ** (self.scales - 1)) for size in z.shape[2:])
        if smallest * self._together == 1 or (math.prod(z.shape[2:]) == 1 and self._together < math.inf):
            raise ValueError(
                f"z has shape {tuple(z.shape)}, of which {self.scales} scales leave one pixel, and group norm has "
                "nothing to compare it with; take fewer scales, more channels, or groups=None"
            )
        passing = [self.get_submodule("In")(z)]
        for scale in range(self.scales - 1):
            passing.append(self.get_submodule(f"Down_{scale}")(passing[-1]))
        x = passing.pop()
        for scale in reversed(range(self.scales - 1)):
            beside = self.get_submodule(f"Skip_{scale}")(passing.pop())
            mode = "bilinear" if self.dims == 2 else "trilinear"
            x = functional.interpolate(x, size=beside.shape[2:], mode=mode, align_corners=False)
            x = self.get_submodule(f"Up_{scale}")(torch.cat([x, beside], dim=1))
        return self.get_submodule("Out")(x)

    def _draw(self, generator: torch.Generator) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, nonlinearity="leaky_relu", generator=generator)
                assert module.bias is not None
                nn.init.zeros_(module.bias)


def _undrawn(dims: int, *sizes: int, **options: int) -> nn.Module:
    """A convolution whose weights PyTorch has not drawn from its global state."""
    layer = nn.utils.skip_init(nn.Conv2d if dims == 2 else nn.Conv3d, *sizes, **options)
    assert isinstance(layer, nn.Module)
    return layer
