"""Scans, their reconstructions and how far to trust them."""

from matheron.tomography.cgls import Reconstruction, cgls
from matheron.tomography.cone import ConeBeam
from matheron.tomography.counts import LineIntegrals, from_counts
from matheron.tomography.differences import Differences
from matheron.tomography.dip import DeepImagePrior
from matheron.tomography.fan import FanBeam
from matheron.tomography.filtered_back_projection import filtered_back_projection
from matheron.tomography.fourier import Fourier
from matheron.tomography.gaussian_image import GaussianImage
from matheron.tomography.image_posterior import ImagePosterior
from matheron.tomography.image_prior import ImagePrior
from matheron.tomography.linearized_dip import LinearizedDIP
from matheron.tomography.mc_dropout import MonteCarloDropout
from matheron.tomography.parallel import ParallelBeam
from matheron.tomography.predcp import PredCP, sampled_variation
from matheron.tomography.pretraining import pretrain, random_ellipses
from matheron.tomography.scan import Scan
from matheron.tomography.scan_design import ScanDesign, design_scan
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
    "GaussianImage",
    "ImagePosterior",
    "ImagePrior",
    "LineIntegrals",
    "LinearizedDIP",
    "MonteCarloDropout",
    "ParallelBeam",
    "PredCP",
    "Reconstruction",
    "Scan",
    "ScanDesign",
    "TotalVariation",
    "TypeTwoMAP",
    "UNet",
    "cgls",
    "design_scan",
    "filtered_back_projection",
    "filters_of",
    "from_counts",
    "pretrain",
    "random_ellipses",
    "sampled_variation",
    "total_variation",
]
