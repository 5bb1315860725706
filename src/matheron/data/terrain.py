"""Elevation on a grid: the Jacksboro fault."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.data.arrays import read_arrays, tensor
from matheron.data.files import Layout, Source
from matheron.data.regression import Regression


@dataclass(frozen=True, eq=False)
class Terrain:
    """Elevation in meters at the product of ``latitudes`` (rows, from the north) and ``longitudes`` (columns).

    >>> latitudes = torch.tensor([1.0, 0.0], dtype=torch.float64)
    >>> slope = Terrain("slope", torch.eye(2, dtype=torch.float64), latitudes, latitudes)
    >>> slope.regression().X.tolist()
    [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """

    name: str
    elevation: Float64[Tensor, "r c"]
    latitudes: Float64[Tensor, " r"]
    longitudes: Float64[Tensor, " c"]

    @property
    def rows(self) -> int:
        """The number of grid points."""
        return self.elevation.numel()

    def regression(self) -> Regression:
        """Return elevation as a function of latitude and longitude, row by row of the grid."""
        X = torch.cartesian_prod(self.latitudes, self.longitudes)
        return Regression(self.name, X, self.elevation.flatten(), columns=("latitude", "longitude"))


def read_terrain(path: Path) -> Terrain:
    """Read the elevation matrix and the edges of its area; the edges called ymin and ymax are north and south."""
    arrays = read_arrays(path, elevation=2, xmin=0, xmax=0, ymin=0, ymax=0)
    elevation = arrays["elevation"]
    return Terrain(
        "dem",
        tensor(elevation, torch.float64),
        _centers(float(arrays["ymin"]), float(arrays["ymax"]), elevation.shape[0]),
        _centers(float(arrays["xmin"]), float(arrays["xmax"]), elevation.shape[1]),
    )


def _centers(start: float, end: float, cells: int) -> Float64[Tensor, " cells"]:
    return start + (end - start) * (torch.arange(cells, dtype=torch.float64) + 0.5) / cells


_FILE = "jacksboro_fault_dem.npz"

SOURCES: dict[str, Source[Terrain]] = {
    "dem": Source(
        origin="the sample data of the Python package matplotlib (jacksboro_fault_dem)",
        license="Matplotlib license",
        layouts=(
            Layout(("dem_jacksboro.npz",), read_terrain),
            Layout((_FILE,), read_terrain),
            Layout((f"matplotlib/mpl-data/sample_data/{_FILE}",), read_terrain, package="matplotlib"),
        ),
        rows=344 * 403,
    )
}
