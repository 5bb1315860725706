"""The inversion formula of the Radon transform."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from matheron.arguments import require_finite, require_float
from matheron.tomography.fan import FanBeam
from matheron.tomography.parallel import ParallelBeam
from matheron.tomography.scan import Angles


def filtered_back_projection(scan: ParallelBeam | FanBeam, y: Float[Tensor, "n *s"]) -> Float[Tensor, "m *s"]:
    """``x(p) = Σ_t Δ_t (h ∗ y_t)(s_t(p))``: each view filtered by the ramp ``|ω|`` and smeared back along its rays.

    ``y`` is ``(rows,)`` or columns ``(rows, s)``, and so is the image. ``Δ_t`` is the share of the half turn, for fans
    of the full one, that is nearest to an angle, so that uneven angles do no harm. Fans take the formula for a flat
    detector: a cosine before the filter, the inverse square of the distance from the source after it; they need a full
    turn.

    >>> import math, torch
    >>> scan = ParallelBeam(64, torch.arange(100) * math.pi / 100, 91)
    >>> y = scan.operator() @ torch.ones(64 * 64)
    >>> scan.image(filtered_back_projection(scan, y))[32, 32].round(decimals=1)
    tensor(1.)
    """
    if not isinstance(scan, ParallelBeam | FanBeam):
        raise TypeError(
            f"scan must be a ParallelBeam or a FanBeam, got {type(scan).__name__}; for a ConeBeam or an operator take "
            "cgls(A, y)"
        )
    y = require_finite("y", require_float("y", y))
    views = scan.sinogram(y).reshape(math.prod(y.shape[1:]), *scan.sinogram_shape).movedim(0, 1)
    total = y.new_zeros(views.shape[1], scan.shape[1])
    if isinstance(scan, FanBeam):
        spacing, rays = scan.detector_spacing / scan.magnification, _fan(scan)
        s = scan.coordinates / scan.magnification
        views = views * (scan.source_to_axis / torch.hypot(torch.tensor(scan.source_to_axis), s)).to(y)
        shares = _shares(scan.angles, 2 * math.pi) / 2
        if float(shares.max()) > math.pi / 6:
            raise ValueError(
                "a fan's inversion formula needs angles all around, and these leave a large gap; take cgls instead"
            )
    else:
        spacing, rays = scan.detector_spacing, _parallel(scan)
        shares = _shares(scan.angles, math.pi)
    if views.shape[1] == 0:
        return total.mT
    for share, view, (place, weight) in zip(shares.tolist(), _filtered(views, spacing), rays, strict=True):
        lower = place.floor()
        part = (place - lower).to(y)
        # A zero on either side stands for what is beyond the detector.
        padded = torch.nn.functional.pad(view, (1, 1))
        left = (lower.long() + 1).clamp(-1, padded.shape[1] - 1)
        inside = (left >= 0) & (left < padded.shape[1] - 1)
        left = left.clamp(0, padded.shape[1] - 2).to(y.device)
        value = torch.lerp(padded[:, left], padded[:, left + 1], part)
        total += value * (share * weight * inside).to(y)
    return total.mT.reshape(scan.shape[1], *y.shape[1:])


def _filtered(views: Tensor, spacing: float) -> Iterator[Tensor]:
    """``h ∗ y`` with the ramp sampled in space, which keeps the mean right: ``1/4``, ``−1/(πk)²`` at odd ``k``, over
    ``spacing``."""
    n = views.shape[-1]
    size = 2 ** math.ceil(math.log2(2 * n))
    k = torch.fft.fftfreq(size, 1.0 / size, dtype=torch.float64)
    kernel = torch.where(k % 2 == 1, -1.0 / (math.pi * k).square(), 0.0)
    kernel[0] = 0.25
    ramp = torch.fft.rfft(kernel / spacing).real.to(views)
    for view in views:
        yield torch.fft.irfft(torch.fft.rfft(view, size) * ramp, size)[:, :n]


def _shares(angles: Angles, period: float) -> Float64[Tensor, " angles"]:
    """Half the way to the next angle on either side."""
    order = torch.as_tensor(angles, dtype=torch.float64).remainder(period)
    # A hair below the period is a rounded zero.
    order = torch.where(period - order < 1e-9, 0.0, order)
    values, places = order.sort()
    gaps = values.roll(-1) - values
    gaps[-1] += period
    shares = torch.empty_like(values)
    shares[places] = (gaps + gaps.roll(1)) / 2
    return shares


def _pixels(scan: ParallelBeam | FanBeam) -> tuple[Float64[Tensor, " m"], Float64[Tensor, " m"]]:
    height, width = scan.image_shape
    y = ((height - 1) / 2 - torch.arange(height, dtype=torch.float64)) * scan.pixel_spacing
    x = (torch.arange(width, dtype=torch.float64) - (width - 1) / 2) * scan.pixel_spacing
    return x.repeat(height), y.repeat_interleave(width)


def _parallel(scan: ParallelBeam) -> Iterator[tuple[Tensor, Tensor]]:
    """Where on the detector each pixel falls, in detectors, and how much it counts."""
    x, y = _pixels(scan)
    for angle in scan.angles:
        s = x * math.cos(angle) + y * math.sin(angle)
        yield (s - scan.detector_offset) / scan.detector_spacing + (scan.detectors - 1) / 2, torch.ones_like(s)


def _fan(scan: FanBeam) -> Iterator[tuple[Tensor, Tensor]]:
    x, y = _pixels(scan)
    for angle in scan.angles:
        cos, sin = math.cos(angle), math.sin(angle)
        nearness = scan.source_to_axis / (scan.source_to_axis - x * cos - y * sin)
        s = scan.magnification * nearness * (y * cos - x * sin)
        yield (s - scan.detector_offset) / scan.detector_spacing + (scan.detectors - 1) / 2, nearness.square()
