"""Loaders for the data sets the experiments use: ``load`` by name, from the directory ``MATHERON_DATA`` names."""

from matheron.data.catalog import Dataset, Description, describe, load, names
from matheron.data.files import DataNotFound
from matheron.data.fingerprints import Fingerprints
from matheron.data.folders import ImageFolder
from matheron.data.gaps import GapRegression
from matheron.data.hyperparameters import Hyperparameters, published_hyperparameters
from matheron.data.images import Images
from matheron.data.molecules import Molecules
from matheron.data.regression import Regression, Split
from matheron.data.scans import ConeScan
from matheron.data.terrain import Terrain

__all__ = [
    "ConeScan",
    "DataNotFound",
    "Dataset",
    "Description",
    "Fingerprints",
    "GapRegression",
    "Hyperparameters",
    "ImageFolder",
    "Images",
    "Molecules",
    "Regression",
    "Split",
    "Terrain",
    "describe",
    "load",
    "names",
    "published_hyperparameters",
]
