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

BLOCK = 256


class FourierFeatures(FeatureMap):
    """``√(2σ²/num) [cos(xΩᵀ), sin(xΩᵀ)]`` with frequencies from the kernel's spectral measure.

    Pairs have less variance than random phases, and ``φ(x) φ(x)ᵀ = σ²`` exactly. For a product of kernels the spectral
    measures convolve: frequencies add and variances multiply.
    """

    def __init__(self, kernel: Kernel, num: int, spectra: Sequence[Spectrum]) -> None:
        super().__init__(kernel, num)
        self.spectra = nn.ModuleList(spectra)

    def evaluate(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n num"]:
        """Cosines, then sines."""
        spectra = [spectrum for spectrum in self.spectra if isinstance(spectrum, Spectrum)]
        frequencies = [spectrum.frequencies() for spectrum in spectra]
        power = math.prod((spectrum.power() for spectrum in spectra[1:]), start=spectra[0].power())
        amplitude = (2.0 * power / self.num).sqrt().to(x.dtype)
        if amplitude.ndim == 1:
            amplitude = torch.cat([amplitude, amplitude])

        if torch.is_grad_enabled():
            angle = angles(x, spectra, frequencies)
            return amplitude * torch.cat([angle.cos(), angle.sin()], dim=1)
        # Without a graph the phases need not be stored: a block of them stays in cache.
        out = torch.empty(x.shape[0], self.num, dtype=x.dtype, device=x.device)
        for rows, block in zip(x.split(BLOCK), out.split(BLOCK), strict=True):
            angle = angles(rows, spectra, frequencies)
            torch.cos(angle, out=block[:, : self.num // 2])
            torch.sin(angle, out=block[:, self.num // 2 :])
            block.mul_(amplitude)
        return out


def angles(
    x: Float[Tensor, "n d"], spectra: Sequence[Spectrum], frequencies: Sequence[Tensor]
) -> Float[Tensor, "n pairs"]:
    """``xΩᵀ`` modulo 2π, in the dtype of ``x``.

    Phases are summed in float64 and reduced to half a turn, so that float32 inputs far from the origin lose nothing.
    It costs less than it saves, as sines of small angles are cheaper than those of large ones.
    """
    turns: Tensor | None = None
    for spectrum, omega in zip(spectra, frequencies, strict=True):
        part = spectrum.select(x) @ (omega / (2.0 * math.pi)).mT
        turns = part if turns is None else turns + part
    assert turns is not None
    return (turns - turns.round()).to(x.dtype) * (2.0 * math.pi)
