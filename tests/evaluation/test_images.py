"""Scores of images against their definitions."""

import math

import torch
from scipy.stats import spearmanr

from matheron.evaluation import psnr, rank_correlation


def test_decibels_do_not_see_a_common_scale_and_rise_by_twenty_with_a_tenth_of_the_error(generator):
    reference, error = torch.rand(6, 7, generator=generator), torch.randn(6, 7, generator=generator)
    near, far = psnr(reference + 0.01 * error, reference), psnr(reference + 0.1 * error, reference)
    assert math.isclose(near - far, 20.0, abs_tol=1e-3)
    assert math.isclose(psnr(3.0 * (reference + 0.1 * error), 3.0 * reference), far, abs_tol=1e-4)


def test_rank_correlation_is_spearmans(generator):
    x = torch.randn(5, 8, generator=generator)
    y = x + torch.randn(5, 8, generator=generator)
    assert math.isclose(rank_correlation(x, y), spearmanr(x.flatten(), y.flatten()).statistic, abs_tol=1e-9)
