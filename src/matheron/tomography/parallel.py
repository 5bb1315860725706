"""Parallel rays in the plane."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.arguments import require_number
from matheron.operators.sparse import Sparse
from matheron.tomography.joseph import joseph
from matheron.tomography.scan import Scan, require_angles, require_sizes, warn_if_truncated


@dataclass(frozen=True)
class PlanarScan(Scan):
    """A scan of an image ``(height, width)`` by a line of detectors, ``s_k = (k − (n − 1) / 2) spacing + offset``."""

    size: int | tuple[int, int]
    detectors: int
    pixel_spacing: float = 1.0
    detector_spacing: float = 1.0
    detector_offset: float = 0.0

    def __post_init__(self) -> None:
        self._settle(size=require_sizes("size", self.size, 2))
        self._settle(detectors=require_sizes("detectors", self.detectors, 1)[0])
        self._settle_lengths("pixel_spacing", "detector_spacing")
        self._settle(detector_offset=require_number("detector_offset", self.detector_offset))
        self._settle(angles=require_angles(self.angles))

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width."""
        assert isinstance(self.size, tuple)
        return self.size

    @property
    def view_shape(self) -> tuple[int]:
        """The detectors."""
        return (self.detectors,)

    @property
    def coordinates(self) -> Float64[Tensor, " detectors"]:
        """``s_k``, where the detectors stand."""
        k = torch.arange(self.detectors, dtype=torch.float64)
        return (k - (self.detectors - 1) / 2) * self.detector_spacing + self.detector_offset

    @abstractmethod
    def rays(self) -> Iterator[tuple[Float64[Tensor, "detectors 2"], Float64[Tensor, "detectors 2"]]]:
        """Points ``(x, y)`` and directions of unit length, angle by angle."""

    def operator(self, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Sparse:
        """``A`` by Joseph's method, built once and kept in compressed rows together with its transpose."""
        A = joseph(
            self.rays(), self.shape[0], self.image_shape, self.pixel_spacing, dtype=dtype, device=torch.device(device)
        )
        A.origin = self
        return A

    def _shadow(self, needed: float) -> None:
        half = self.detectors * self.detector_spacing / 2
        warn_if_truncated(needed, half, self.detector_offset, self.detector_spacing)


@dataclass(frozen=True)
class ParallelBeam(PlanarScan):
    """``y(θ, s) = ∫ x(s (cos θ, sin θ) + t (−sin θ, cos θ)) dt``.

    The image has its middle at the origin, ``x`` to the right and ``y`` up; angles in radians. Lengths are in the unit
    of ``pixel_spacing`` and ``detector_spacing``; a detector that is not centered has a ``detector_offset``.

    >>> import math, torch
    >>> angles = torch.arange(4) * math.pi / 4
    >>> scan = ParallelBeam(size=(2, 3), angles=angles, detectors=5)
    >>> A = scan.operator()
    >>> A
    Sparse(20, 6)
    >>> image = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> scan.sinogram(A @ scan.flatten(image))[0]  # down the columns
    tensor([0., 5., 7., 9., 0.])
    >>> (A.rows(scan.rows(0)).T @ torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])).reshape(2, 3)
    tensor([[1., 0., 0.],
            [1., 0., 0.]])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._shadow(min(self.image_shape) * self.pixel_spacing / 2)

    def rays(self) -> Iterator[tuple[Float64[Tensor, "detectors 2"], Float64[Tensor, "detectors 2"]]]:
        """Through ``s (cos θ, sin θ)`` along ``(−sin θ, cos θ)``."""
        for angle in self.angles:
            toward = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
            along = torch.stack([-toward[1], toward[0]])
            yield self.coordinates[:, None] * toward, along.expand(self.detectors, 2)
