"""Rays that spread from a source in space."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.arguments import require_finite, require_numbers, require_positive
from matheron.tomography.scan import (
    Scan,
    require_angles,
    require_sizes,
    require_source,
    warn_if_truncated,
)
from matheron.tomography.slabs import SlabProjector, View


@dataclass(frozen=True)
class ConeBeam(Scan):
    """``y(t, v, u) = ∫ x`` from the source to a point of a flat detector parallel to the axis of rotation.

    Volumes are ``(depth z, height y, width x)`` and views ``(rows v, columns u)``. In the plane of the source it is
    :class:`FanBeam` with ``u`` for its detectors: source at ``a (cos t, sin t, 0)``, detector at
    ``−(d − a) (cos t, sin t, 0) + u (−sin t, cos t, 0) + v (0, 0, 1)``. The first slice and the first row of detectors
    are the lowest, ``z`` and ``v`` grow with the index. ``detectors``, ``detector_spacing`` and ``detector_offset`` are
    one number for rows and columns or a pair.

    >>> import math, torch
    >>> angles = torch.arange(6) * 2 * math.pi / 6
    >>> scan = ConeBeam(8, angles, detectors=(10, 12), source_to_axis=40.0, source_to_detector=50.0)
    >>> A = scan.operator()
    >>> A
    SlabProjector(720, 512)
    >>> scan.sinogram(A @ torch.ones(512)).shape
    torch.Size([6, 10, 12])
    """

    size: int | tuple[int, int, int]
    detectors: int | tuple[int, int]
    pixel_spacing: float = 1.0
    detector_spacing: float | tuple[float, float] = 1.0
    detector_offset: float | tuple[float, float] = 0.0
    _: KW_ONLY
    source_to_axis: float
    source_to_detector: float

    def __post_init__(self) -> None:
        self._settle(size=require_sizes("size", self.size, 3), detectors=require_sizes("detectors", self.detectors, 2))
        self._settle_lengths("pixel_spacing", "source_to_axis", "source_to_detector")
        require_positive("detector_spacing", self.detector_spacing)
        self._settle(detector_spacing=_pair("detector_spacing", self.detector_spacing))
        self._settle(detector_offset=_pair("detector_offset", self.detector_offset))
        self._settle(angles=require_angles(self.angles, stacklevel=4))
        depth, height, width = self.image_shape
        require_source(self.source_to_axis, self.source_to_detector, math.hypot(height, width) * self.pixel_spacing / 2)
        radius = min(height, width) * self.pixel_spacing / 2
        # Of the ball within the volume, flattened where it is low: a flattening leaves rays straight.
        shadow = self.source_to_detector / math.sqrt(self.source_to_axis**2 - radius**2)
        for axis, reach, middle in (
            (1, radius, "the axis"),
            (0, depth * self.pixel_spacing / 2, "the plane of the source"),
        ):
            spacing, half = self._spacing[axis], self.view_shape[axis] * self._spacing[axis] / 2
            warn_if_truncated(shadow * reach, half, self._offset[axis], spacing, stacklevel=4, middle=middle)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Depth, height and width."""
        assert isinstance(self.size, tuple)
        return self.size

    @property
    def view_shape(self) -> tuple[int, int]:
        """Rows and columns of detectors."""
        assert isinstance(self.detectors, tuple)
        return self.detectors

    @property
    def magnification(self) -> float:
        """By how much a shadow exceeds what casts it on the axis."""
        return self.source_to_detector / self.source_to_axis

    @property
    def coordinates(self) -> tuple[Float64[Tensor, " rows"], Float64[Tensor, " columns"]]:
        """``v`` and ``u``, where the detectors stand."""
        v, u = (
            (torch.arange(number, dtype=torch.float64) - (number - 1) / 2) * spacing + offset
            for number, spacing, offset in zip(self.view_shape, self._spacing, self._offset, strict=True)
        )
        return v, u

    def views(self) -> Iterator[View]:
        """The rays of each angle, in voxels from the volume's corner."""
        v, u = (c / self.pixel_spacing for c in self.coordinates)
        axis, whole = self.source_to_axis / self.pixel_spacing, self.source_to_detector / self.pixel_spacing
        middle = torch.tensor([(n - 1) / 2 for n in self.image_shape], dtype=torch.float64)
        for angle in self.angles:
            cos, sin = math.cos(angle), math.sin(angle)
            # (y, x) as rows and columns: rows grow against y.
            source = middle[1:] + axis * torch.tensor([-sin, cos], dtype=torch.float64)
            across = torch.tensor([-cos, -sin], dtype=torch.float64)
            paths = u[:, None] * across - whole * torch.tensor([-sin, cos], dtype=torch.float64)
            yield View(source=source, level=float(middle[0]), paths=paths, rises=v)

    def operator(self, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> SlabProjector:
        """``A`` slab by slab; nothing but the geometry is kept."""
        A = SlabProjector(
            list(self.views()),
            self.image_shape,
            self.view_shape,
            self.pixel_spacing,
            dtype=dtype,
            device=torch.device(device),
        )
        A.origin = self
        return A

    @property
    def _spacing(self) -> tuple[float, float]:
        assert isinstance(self.detector_spacing, tuple)
        return self.detector_spacing

    @property
    def _offset(self) -> tuple[float, float]:
        assert isinstance(self.detector_offset, tuple)
        return self.detector_offset


def _pair(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    values = require_numbers(name, value).reshape(-1)
    if len(values) not in (1, 2):
        raise ValueError(f"{name} must be one number or a pair for rows and columns, got {value!r}")
    first, second = require_finite(name, values).expand(2).tolist()
    return first, second
