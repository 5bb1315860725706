"""Scans, their reconstructions and how far to trust them."""

from matheron.tomography.cgls import Reconstruction, cgls
from matheron.tomography.cone import ConeBeam
from matheron.tomography.counts import LineIntegrals, from_counts
from matheron.tomography.differences import Differences
from matheron.tomography.dip import DeepImagePrior
from matheron.tomography.fan import FanBeam
from matheron.tomography.filtered_back_projection import filtered_back_projection
from matheron.tomography.fourier import Fourier
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.linearized_dip import LinearizedDIP
from matheron.tomography.mc_dropout import MonteCarloDropout
from matheron.tomography.parallel import ParallelBeam
from matheron.tomography.predcp import PredCP, sampled_variation
from matheron.tomography.scan import Scan
from matheron.tomography.total_variation import TotalVariation, total_variation
from matheron.tomography.tv_prior import filters_of
from matheron.tomography.type_two import TypeTwoMAP
from matheron.tomography.unet import UNet

__all__ = [
    "ConeBeam",
    "DeepImagePrior",
    "Differences",
    "FanBeam",
    "Fourier",
    "ImagePosterior",
    "LineIntegrals",
    "LinearizedDIP",
    "MonteCarloDropout",
    "ParallelBeam",
    "PredCP",
    "Reconstruction",
    "Scan",
    "TotalVariation",
    "TypeTwoMAP",
    "UNet",
    "cgls",
    "filtered_back_projection",
    "filters_of",
    "from_counts",
    "sampled_variation",
    "total_variation",
]
