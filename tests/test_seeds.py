"""Wherever a generator is taken, a seed will do, and it repeats what was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import matheron as mt
from matheron.decisions import most_informative
from matheron.linear.exact import Primal
from matheron.networks import OnlineLaplace
from matheron.tomography import (
    DeepImagePrior,
    GaussianImage,
    LinearizedDIP,
    MonteCarloDropout,
    UNet,
    design_scan,
    pretrain,
    random_ellipses,
)
from tests.tomography.test_dip import net, problem

pytestmark = pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")

A, y, _ = problem()
DIP = DeepImagePrior(A, net(), shape=(8, 6)).fit(y, steps=5, generator=0)
ROWS = torch.linspace(-1.0, 1.0, 24).reshape(12, 2)
DATA = (ROWS, ROWS[:, :1])
KERNEL = mt.kernels.Matern32(lengthscale=[0.5, 2.0])
MODEL = nn.Linear(2, 1).eval()
with torch.no_grad():
    MODEL.weight.copy_(torch.tensor([[0.7, -0.3]]))
    MODEL.bias.fill_(0.1)


def laplace(seed: int | torch.Generator) -> mt.LinearizedLaplace:
    return mt.LinearizedLaplace(MODEL, "regression").fit(DATA, final_samples=4, generator=seed)


def pretrained(seed: int) -> Tensor:
    network = UNet(scales=2, channels=4, skip_channels=2, generator=0)
    pretrain(network, A, steps=2, generator=seed)
    return network.get_submodule("Out").weight


WAYS: dict[str, Callable[[int], Tensor]] = {
    "features": lambda seed: KERNEL.features(10, generator=seed)(ROWS),
    "sample_prior": lambda seed: mt.kernels.sample_prior(KERNEL, ROWS, 2, generator=seed),
    "exact": lambda seed: Primal(ROWS, torch.ones(2), 1.0).weights(ROWS[:, 0]).sample(2, generator=seed),
    "LinearizedLaplace.fit": lambda seed: laplace(seed).functional_samples(ROWS),
    "predictive_samples": lambda seed: laplace(0).predictive_samples(ROWS, generator=seed),
    "OnlineLaplace": lambda seed: (
        OnlineLaplace(MODEL, "regression", generator=seed).update(DATA).posterior(DATA).functional_samples(ROWS)
    ),
    "most_informative": lambda seed: most_informative(laplace(0), ROWS, 2, generator=seed).scores,
    "UNet": lambda seed: UNet(scales=2, channels=2, skip_channels=1, generator=seed).get_submodule("Out").weight,
    "random_ellipses": lambda seed: random_ellipses(2, (8, 6), generator=seed),
    "pretrain": pretrained,
    "DeepImagePrior.fit": lambda seed: DeepImagePrior(A, net(), shape=(8, 6)).fit(y, steps=2, generator=seed).image,
    "LinearizedDIP.fit": lambda seed: LinearizedDIP(DIP).fit(y, em_steps=1, generator=seed).deviations,
    "GaussianImage.fit": lambda seed: GaussianImage(A, "matern12", shape=(8, 6)).fit(y, generator=seed).deviations,
    "MonteCarloDropout.fit": lambda seed: (
        MonteCarloDropout(A, net(), shape=(8, 6)).fit(y, steps=2, generator=seed).deviations
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_seed_is_a_generator(way: str) -> None:
    before = torch.random.get_rng_state()
    first, same, other = (WAYS[way](seed) for seed in (7, 7, 8))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_scan_design() -> None:
    post = LinearizedDIP(DIP).fit(y, em_steps=1, generator=0)
    options: dict[str, Any] = {"candidates": torch.arange(9) * torch.pi / 9, "num": 2, "num_samples": 20}
    first, same = (design_scan(post, **options, generator=7) for _ in range(2))
    torch.testing.assert_close(first.candidate_scores, same.candidate_scores, atol=0.0, rtol=0.0, equal_nan=True)


def test_the_seed_on_record_repeats_a_fit() -> None:
    first = laplace(torch.Generator().manual_seed(3))
    assert first.report is not None
    assert torch.equal(laplace(first.report.seed).functional_samples(ROWS), first.functional_samples(ROWS))
    image = LinearizedDIP(DIP).fit(y, em_steps=1, generator=torch.Generator().manual_seed(3))
    assert image.report is not None
    assert torch.equal(LinearizedDIP(DIP).fit(y, em_steps=1, generator=image.report.seed).deviations, image.deviations)
