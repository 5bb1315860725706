"""Random Fourier features: sines and cosines of random frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels.base import Kernel
from matheron.kernels.feature_map import FeatureMap
from matheron.kernels.spectra import Spectrum


class FourierFeatures(FeatureMap):
    """``√(2σ²/num) [cos(xΩᵀ), sin(xΩᵀ)]`` with frequencies from the kernel's spectral measure.

    Pairs have less variance than random phases, and ``φ(x) φ(x)ᵀ = σ²`` exactly. For a product of kernels the spectral
    measures convolve: frequencies add and variances multiply.
    """

    def __init__(self, kernel: Kernel, num: int, spectra: Sequence[Spectrum]) -> None:
        super().__init__(kernel, num)
        self.spectra = nn.ModuleList(spectra)

    def turns(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n pairs"], Float[Tensor, "..."]]:
        """``xΩᵀ / 2π`` in float64, and ``σ²`` for all frequencies or for each."""
        spectra = [spectrum for spectrum in self.spectra if isinstance(spectrum, Spectrum)]
        turns, power = spectra[0](x), spectra[0].power()
        for spectrum in spectra[1:]:
            turns, power = turns + spectrum(x), power * spectrum.power()
        return turns, power

    def evaluate(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n num"]:
        """Cosines, then sines."""
        # Phases are summed in float64 and reduced to half a turn, so that float32 inputs far from the origin lose
        # nothing; the sines of small angles that follow are cheaper than those of large ones by more than that costs.
        turns, power = self.turns(x)
        angle = (turns - turns.round()).to(x.dtype) * (2.0 * math.pi)
        amplitude = (2.0 * power / self.num).sqrt().to(x.dtype)
        if amplitude.ndim == 1:
            amplitude = torch.cat([amplitude, amplitude])
        if torch.is_grad_enabled() and (angle.requires_grad or amplitude.requires_grad):
            return amplitude * torch.cat([angle.cos(), angle.sin()], dim=1)
        out = angle.new_empty(len(x), self.num)
        torch.cos(angle, out=out[:, : self.num // 2])
        torch.sin(angle, out=out[:, self.num // 2 :])
        return out.mul_(amplitude)
