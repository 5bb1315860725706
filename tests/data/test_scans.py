from collections.abc import Callable

import torch

from matheron import data


def test_stored_walnut_has_the_published_geometry(stored: Callable[[str], data.Dataset]) -> None:
    scan = stored("walnut")
    assert isinstance(scan, data.ConeScan)
    assert scan.sinogram.shape == (241, 256, 256)
    assert scan.sinogram.isfinite().all()
    assert abs(scan.source_to_axis - 210.66) < 1e-3
    assert abs(scan.source_to_detector - 553.74) < 1e-3
    assert abs(scan.column_pitch / scan.magnification - 0.152) < 1e-3
    turn = float(scan.angles[0] - scan.angles[-1])
    assert abs(turn - 2 * torch.pi) < 1e-5
