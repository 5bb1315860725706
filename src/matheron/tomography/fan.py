"""Rays that spread from a source in the plane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.tomography.parallel import PlanarScan
from matheron.tomography.scan import require_source


@dataclass(frozen=True)
class FanBeam(PlanarScan):
    """``y(t, s) = ∫ x`` from the source to a point of a flat detector.

    At angle ``t`` the source is at ``a (cos t, sin t)``, the detector's middle at ``−(d − a) (cos t, sin t)`` and its
    axis ``(−sin t, cos t)``, where ``a`` is ``source_to_axis`` and ``d`` is ``source_to_detector``.

    >>> import math, torch
    >>> angles = torch.arange(90) * 2 * math.pi / 90
    >>> scan = FanBeam(64, angles, 120, detector_spacing=1.5, source_to_axis=200.0, source_to_detector=400.0)
    >>> scan.magnification
    2.0
    >>> A = scan.operator()
    >>> A.T @ (A @ torch.ones(64 * 64)) @ torch.ones(64 * 64) > 0
    tensor(True)
    """

    _: KW_ONLY
    source_to_axis: float
    source_to_detector: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle_lengths("source_to_axis", "source_to_detector")
        height, width = self.image_shape
        require_source(self.source_to_axis, self.source_to_detector, math.hypot(height, width) * self.pixel_spacing / 2)
        radius = min(self.image_shape) * self.pixel_spacing / 2
        self._shadow(self.source_to_detector * radius / math.sqrt(self.source_to_axis**2 - radius**2))

    @property
    def magnification(self) -> float:
        """By how much a shadow exceeds what casts it on the axis."""
        return self.source_to_detector / self.source_to_axis

    def rays(self) -> Iterator[tuple[Float64[Tensor, "detectors 2"], Float64[Tensor, "detectors 2"]]]:
        """From the source to each detector."""
        s = self.coordinates[:, None]
        for angle in self.angles:
            toward = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
            along = torch.stack([-toward[1], toward[0]])
            path = along * s - self.source_to_detector * toward
            yield (self.source_to_axis * toward).expand_as(path), path / path.norm(dim=1, keepdim=True)
