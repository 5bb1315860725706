"""Scans, their reconstructions and how far to trust them."""

from matheron.tomography.cone import ConeBeam
from matheron.tomography.fan import FanBeam
from matheron.tomography.fourier import Fourier
from matheron.tomography.parallel import ParallelBeam
from matheron.tomography.scan import Scan

__all__ = ["ConeBeam", "FanBeam", "Fourier", "ParallelBeam", "Scan"]
