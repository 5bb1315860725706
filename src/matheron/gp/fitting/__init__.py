"""Learning hyperparameters: the evidence maximized exactly, on subsets, or by gradients from posterior samples."""

from matheron.gp.fitting.exact import Exact
from matheron.gp.fitting.fit import Method, fit
from matheron.gp.fitting.iterative import Iterative
from matheron.gp.fitting.priors import LogNormal
from matheron.gp.fitting.subset import Subset
from matheron.gp.fitting.task import FitWarning
from matheron.gp.fitting.warm import WarmStart

__all__ = ["Exact", "FitWarning", "Iterative", "LogNormal", "Method", "Subset", "WarmStart", "fit"]
