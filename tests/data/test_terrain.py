from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from matheron import data


def test_coordinates_are_the_centers_of_cells_from_the_north(tmp_path: Path) -> None:
    elevation = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int16)
    # The file calls its northern edge ymin.
    np.savez(tmp_path / "jacksboro_fault_dem.npz", elevation=elevation, xmin=-4.0, xmax=0.0, ymin=2.0, ymax=0.0)
    terrain = data.load("dem", tmp_path, partial=True)
    assert terrain.latitudes.tolist() == [1.5, 0.5]
    assert terrain.longitudes.tolist() == [-3.5, -2.5, -1.5, -0.5]
    regression = terrain.regression()
    assert regression.X[5].tolist() == [0.5, -2.5]
    assert regression.y[5] == 6


def test_stored_terrain_is_the_jacksboro_fault(stored: Callable[[str], data.Dataset]) -> None:
    terrain = stored("dem")
    assert isinstance(terrain, data.Terrain)
    assert terrain.elevation.shape == (344, 403)
    assert (float(terrain.elevation.min()), float(terrain.elevation.max())) == (236, 1076)
    steps = terrain.longitudes.diff()
    torch.testing.assert_close(steps, torch.full_like(steps, 1 / 1200), rtol=1e-6, atol=0)
    assert terrain.latitudes[0] > terrain.latitudes[-1]
