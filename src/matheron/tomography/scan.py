"""What every scan knows: its image, its angles and its detector."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float, require_numbers, require_positive_number
from matheron.operators import Operator
from matheron.operators.memory import free_memory, gibibytes

Angles = Sequence[float] | Tensor
S = TypeVar("S", bound="Scan")


@dataclass(frozen=True)
class Scan(ABC):
    """``y = A x``: line integrals of an image, angle by angle, detector by detector.

    Images and sinograms are flattened columns, row-major. Lengths are in the unit of the spacings.

    >>> import torch
    >>> from matheron.tomography import ParallelBeam
    >>> scan = ParallelBeam(16, torch.arange(8) * torch.pi / 8, 25)
    >>> scan.shape, scan.sinogram_shape, scan.rows(2), scan.at([0, 3]).sinogram_shape
    ((200, 256), (8, 25), slice(50, 75, None), (2, 25))
    """

    size: Any
    angles: Angles = field(repr=False)
    detectors: Any

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, ...]:
        """Height and width, after depth in space."""

    @property
    @abstractmethod
    def view_shape(self) -> tuple[int, ...]:
        """Detectors of one angle: columns, after rows in space."""

    @abstractmethod
    def operator(self, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Operator:
        """``A`` of shape ``(angles · detectors, pixels)`` with its exact transpose."""

    @property
    def sinogram_shape(self) -> tuple[int, ...]:
        """Angles, then the detectors of each."""
        return (len(self.angles), *self.view_shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the operator."""
        return math.prod(self.sinogram_shape), math.prod(self.image_shape)

    def at(self: S, index: int | slice | Sequence[int] | Tensor) -> S:
        """The same scan at some of its angles."""
        picked = torch.tensor(self.angles, dtype=torch.float64)[index]
        return replace(self, angles=picked.reshape(-1))

    def rows(self, angle: int) -> slice:
        """Where in a sinogram, and in the operator's rows, the ``angle``-th angle stands."""
        if not -len(self.angles) <= index(angle) < len(self.angles):
            raise IndexError(f"angle {angle} of a scan with {len(self.angles)} angles")
        width = math.prod(self.view_shape)
        start = width * (angle % len(self.angles))
        return slice(start, start + width)

    def flatten(self, array: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """An image or a sinogram as a column, a batch ``(s, …)`` of them as columns ``(n, s)``."""
        array = require_finite("array", require_float("array", array))
        for shape in (self.image_shape, self.sinogram_shape):
            if tuple(array.shape) == shape:
                return array.reshape(-1)
            if tuple(array.shape[1:]) == shape:
                return array.reshape(len(array), -1).mT
        raise ValueError(
            f"array has shape {tuple(array.shape)}; an image of this scan is {self.image_shape} and a sinogram "
            f"(angles, detectors) {self.sinogram_shape}, or (s, …) for a batch"
        )

    def image(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """A column as an image, columns ``(pixels, s)`` as a batch ``(s, …)``."""
        return _unflatten("x", x, self.image_shape)

    def sinogram(self, y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """A column as a sinogram, columns ``(rows, s)`` as a batch ``(s, …)``."""
        return _unflatten("y", y, self.sinogram_shape)

    def _settle_lengths(self, *names: str) -> None:
        """Each a positive number."""
        self._settle(**{name: require_positive_number(name, getattr(self, name)) for name in names})

    def _settle(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _unflatten(name: str, columns: Tensor, shape: tuple[int, ...]) -> Tensor:
    columns = require_float(name, columns)
    n = math.prod(shape)
    if columns.ndim not in (1, 2) or len(columns) != n:
        raise ValueError(
            f"{name} has shape {tuple(columns.shape)}; give a column ({n},), or columns ({n}, s), which scan.flatten "
            f"makes of {shape}, or (s, …) for a batch"
        )
    return columns.reshape(shape) if columns.ndim == 1 else columns.mT.reshape(-1, *shape)


def require_sizes(name: str, value: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    """One size for all axes, or one for each; whole numbers of NumPy and PyTorch are whole numbers too."""
    one = _whole(value)
    sizes = tuple(map(_whole, one)) if isinstance(one, Iterable) else (one,) * dimensions
    if len(sizes) != dimensions:
        raise ValueError(f"{name} must be a whole number or {dimensions} of them, got {value!r}")
    return tuple(require_count(name, size) for size in sizes)


def _whole(value: Any) -> Any:
    try:
        return value if isinstance(value, bool) else index(value)
    except TypeError:
        return value


def require_angles(angles: Angles, stacklevel: int = 5) -> tuple[float, ...]:
    """Finite, at least one, and a word where they look like degrees."""
    values = require_numbers("angles", angles)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"angles must be a list of at least one angle, got shape {tuple(values.shape)}")
    require_finite("angles", values)
    largest = float(values.abs().max())
    if largest > 2.02 * math.pi:
        warnings.warn(
            f"angles reach {largest:g}, beyond a full turn of 2π; they are taken in radians, "
            "torch.deg2rad converts degrees",
            stacklevel=stacklevel,
        )
    return tuple(values.tolist())


def require_source(source_to_axis: float, source_to_detector: float, reach: float) -> None:
    """The source outside the object, and the object between source and detector."""
    if source_to_axis >= source_to_detector:
        raise ValueError(
            f"source_to_axis, {source_to_axis:g}, must be less than source_to_detector, {source_to_detector:g}; "
            "the object turns between source and detector"
        )
    if source_to_axis <= reach:
        raise ValueError(
            f"source_to_axis, {source_to_axis:g}, must exceed half the image's diagonal, {reach:g}: the source would "
            "pass through the object; check that pixel_spacing has the unit of the distances"
        )


def warn_if_truncated(
    needed: float, half_width: float, offset: float, spacing: float, stacklevel: int = 5, middle: str = "the axis"
) -> None:
    """A word where the disc within the image, or the ball within the volume, casts a shadow beyond the detector."""
    seen = half_width - abs(offset)
    if needed - seen > spacing:
        warnings.warn(
            f"the detector reaches {seen:g} from {middle} but the object's shadow {needed:g}; rays that miss it are "
            "not measured. Check detectors, detector_spacing and detector_offset",
            stacklevel=stacklevel,
        )


def require_real(dtype: torch.dtype) -> None:
    """What products of an operator come out in."""
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be that of real numbers, torch.float32 or torch.float64, got {dtype}")


def require_memory(needed: float, what: str, device: torch.device, advice: str) -> None:
    """Refuse what would not fit."""
    free = free_memory(device)
    if needed > free:
        raise MemoryError(f"{what} needs {gibibytes(needed)} and {gibibytes(free)} are free; {advice}")
