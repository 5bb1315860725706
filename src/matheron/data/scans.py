"""A cone-beam X-ray scan of a walnut."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from matheron.data.arrays import read_arrays, require_rows, tensor
from matheron.data.files import Layout, Source


@dataclass(frozen=True, eq=False)
class ConeScan:
    """Line integrals by view, detector row and detector column, with the geometry of the scan in millimeters.

    At angle t the source is at ``source_to_axis`` (cos t, sin t) and the detector ``source_to_detector`` from it,
    across the axis. ``angles`` are signed as the object turned.

    >>> scan = ConeScan(
    ...     "flat", torch.zeros(3, 2, 2), torch.zeros(3, dtype=torch.float64), 210.0, 550.0, 0.4, 0.4, axis_shift=0.0
    ... )
    >>> scan.magnification
    2.619047619047619
    """

    name: str
    sinogram: Float32[Tensor, "views v u"]
    angles: Float64[Tensor, " views"]
    source_to_axis: float
    source_to_detector: float
    column_pitch: float
    row_pitch: float
    axis_shift: float

    @property
    def magnification(self) -> float:
        """Source-to-detector over source-to-axis distance."""
        return self.source_to_detector / self.source_to_axis

    @property
    def rows(self) -> int:
        """The number of views."""
        return len(self.angles)


def read_walnut(path: Path) -> ConeScan:
    """Read the scan as the package diffct stores it."""
    arrays = read_arrays(path, sinogram=3, angles=1, sid=0, sdd=0, du=0, dv=0, rotation_axis_shift_mm=0)
    require_rows(path, arrays, "sinogram", "angles")
    return ConeScan(
        "walnut",
        tensor(arrays["sinogram"], torch.float32),
        tensor(arrays["angles"], torch.float64),
        source_to_axis=float(arrays["sid"]),
        source_to_detector=float(arrays["sdd"]),
        column_pitch=float(arrays["du"]),
        row_pitch=float(arrays["dv"]),
        axis_shift=float(arrays["rotation_axis_shift_mm"]),
    )


SOURCES: dict[str, Source[ConeScan]] = {
    "walnut": Source(
        origin="the source distribution of the Python package diffct (Meaney 2022, Zenodo record 6986012)",
        license="CC BY 4.0",
        layouts=(Layout(("walnut_cone.npz",), read_walnut),),
        rows=241,
        note="241 views over a full turn, the detector binned to 256 by 256; there is no ground truth.",
    )
}
