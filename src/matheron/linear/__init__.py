"""The Gaussian linear model ``Y = Φ w + ε``."""

from matheron.linear import bounds, exact
from matheron.linear.curvature import (
    BernoulliCurvature,
    BlockCurvature,
    CategoricalCurvature,
    Curvature,
    GaussianCurvature,
)
from matheron.linear.data import Batch, Data, StoredData
from matheron.linear.dense import DenseSolve, solve_dense
from matheron.linear.design import Design, greedy_design, information_gain, squared_error, variance_reduction
from matheron.linear.dual import DualSolve, RowKernel, solve_dual
from matheron.linear.evidence import Evidence, log_determinant, log_evidence
from matheron.linear.filter_prior import FilterPrior
from matheron.linear.filters import Filters, Part
from matheron.linear.fitting import Fit, fit_posterior
from matheron.linear.gprior import GPriorScale, g_prior_scale
from matheron.linear.mackay import (
    EffectiveDimension,
    EStep,
    Learned,
    effective_dimension,
    learn_prior,
    noise_factor,
    precision_factors,
)
from matheron.linear.primal import PrimalSolve, WeightKernel, solve_primal
from matheron.linear.prior import DiagonalPrior, Prior
from matheron.linear.regularizers import Regularizers, draw_regularizers
from matheron.linear.samples import Measurement, Samples, Warm, WarmStart, measure
from matheron.linear.sampling import Descent, sample_then_optimize
from matheron.linear.sequential import SequentialPosterior
from matheron.linear.slopes import FactorizedSlopes, SampledSlopes, Slopes

__all__ = [
    "Batch",
    "BernoulliCurvature",
    "BlockCurvature",
    "CategoricalCurvature",
    "Curvature",
    "Data",
    "DenseSolve",
    "Descent",
    "Design",
    "DiagonalPrior",
    "DualSolve",
    "EStep",
    "EffectiveDimension",
    "Evidence",
    "FactorizedSlopes",
    "FilterPrior",
    "Filters",
    "Fit",
    "GPriorScale",
    "GaussianCurvature",
    "Learned",
    "Measurement",
    "Part",
    "PrimalSolve",
    "Prior",
    "Regularizers",
    "RowKernel",
    "SampledSlopes",
    "Samples",
    "SequentialPosterior",
    "Slopes",
    "StoredData",
    "Warm",
    "WarmStart",
    "WeightKernel",
    "bounds",
    "draw_regularizers",
    "effective_dimension",
    "exact",
    "fit_posterior",
    "g_prior_scale",
    "greedy_design",
    "information_gain",
    "learn_prior",
    "log_determinant",
    "log_evidence",
    "measure",
    "noise_factor",
    "precision_factors",
    "sample_then_optimize",
    "solve_dense",
    "solve_dual",
    "solve_primal",
    "squared_error",
    "variance_reduction",
]
