"""Under-sampled Fourier coefficients of an image, as magnetic resonance measures them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from matheron.operators.base import Operator
from matheron.tomography.scan import require_real, require_sizes


class Fourier(Operator):
    """``A x = (Re F x, Im F x)`` on some lines of frequencies, ``F`` the orthonormal Fourier transform of an image.

    ``lines`` are the vertical frequencies that are measured, from ``−height`` to ``height − 1`` in the order of
    :func:`torch.fft.fftfreq`, each with all horizontal ones. The rows of one line are contiguous, :meth:`line`: first
    its real parts, then its imaginary ones, so that noise is real and independent and the algebra that of scans.
    Images are real and flattened, row-major, ``x`` of shape ``(pixels, s)``.

    >>> import torch
    >>> A = Fourier(size=(4, 6), lines=[0, 1, -1])
    >>> A
    Fourier(36, 24)
    >>> (A @ torch.ones(24))[A.line(0)][:2]  # all in the constant: 24 / √24
    tensor([4.8990, 0.0000])
    >>> torch.linalg.matrix_norm(A.dense(), 2).round(decimals=4)
    tensor(1.)
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        lines: Sequence[int] | Tensor,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.height, self.width = require_sizes("size", size, 2)
        picked = require_lines(lines)
        if bool((picked < -self.height).any()) or bool((picked >= self.height).any()):
            raise ValueError(
                f"lines must lie between {-self.height} and {self.height - 1}, the frequencies of {self.height} rows; "
                f"got {int(picked.min())} to {int(picked.max())}"
            )
        if len((picked % self.height).unique()) < len(picked):
            raise ValueError("lines names a frequency twice; measure it once with the higher precision instead")
        require_real(dtype)
        device = torch.device(device)
        self.lines = (picked % self.height).to(device)
        super().__init__((2 * len(picked) * self.width, self.height * self.width), dtype, device)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def line(self, index: int) -> slice:
        """The rows of the ``index``-th line."""
        if not -len(self.lines) <= index < len(self.lines):
            raise IndexError(f"line {index} of {len(self.lines)} lines")
        start = 2 * self.width * (index % len(self.lines))
        return slice(start, start + 2 * self.width)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Down the image, the lines, then along them."""
        images = V.mT.reshape(-1, self.height, self.width)
        if len(images) == 0:
            return V.new_zeros(self.shape[0], 0)
        half = torch.fft.fft(images, dim=-2, norm="ortho").index_select(-2, self.lines)
        return torch.view_as_real(torch.fft.fft(half, norm="ortho")).movedim(-1, -2).reshape(len(images), -1).mT

    def transpose(self) -> Operator:
        """What was measured, the rest zero, transformed back."""
        return ZeroFilled(self)


def require_lines(lines: Any) -> Int64[Tensor, " k"]:
    """At least one whole number, of whatever type whole numbers have."""
    try:
        picked = torch.as_tensor(lines)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"lines must be a list of whole numbers, got {lines!r}") from error
    counts = not (picked.is_floating_point() or picked.is_complex() or picked.dtype == torch.bool)
    if picked.ndim != 1 or len(picked) == 0 or not counts:
        raise ValueError(f"lines must be a list of at least one whole number, got {lines!r}")
    return picked.long()


class ZeroFilled(Operator):
    """``Aᵀ y`` of a :class:`Fourier`: the image with no frequencies but those measured."""

    def __init__(self, forward: Fourier) -> None:
        self.forward = forward
        super().__init__((forward.shape[1], forward.shape[0]), forward.dtype, forward.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Along the lines, then up from them."""
        lines, height, width = self.forward.lines, self.forward.height, self.forward.width
        if V.shape[1] == 0:
            return V.new_zeros(self.shape[0], 0)
        parts = V.mT.reshape(-1, len(lines), 2, width)
        half = torch.fft.ifft(torch.complex(parts[:, :, 0], parts[:, :, 1]), norm="ortho")
        whole = half.new_zeros(len(half), height, width).index_copy(-2, lines, half)
        return torch.fft.ifft(whole, dim=-2, norm="ortho").real.reshape(-1, math.prod((height, width))).mT

    def transpose(self) -> Operator:
        """The transform."""
        return self.forward
