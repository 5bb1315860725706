"""The toy pictures run, at sizes smaller than any budget, to records that JSON holds and figures that draw."""

import json
from dataclasses import replace

import pytest
import torch

from experiments import harness, style
from experiments.harness import Experiment, Progress
from experiments.variational_logistic import Config as Logistic
from experiments.variational_logistic import labels, log_joint, variational_fit
from matheron.data import DataNotFound

SMALLER = {
    "architectures": {
        "cnn": (2, 2, 2),
        "residual": (2, 2, 2),
        "transformer": (2, 2),
        "points": 4,
        "images": 16,
        "test_images": 10,
        "epochs": 1,
        "em_steps": 1,
        "em_samples": 2,
        "samples": 2,
        "stages": (1, 2),
    },
    "image-classification": {
        "depth": 8,
        "width": 2,
        "images": 16,
        "test_images": 10,
        "epochs": 1,
        "networks": 2,
        "em_steps": 1,
        "em_samples": 2,
        "samples": 2,
        "traces": (1, 2),
        "shuffles": 1,
        "ood_images": 16,
        "ood_test": 10,
        "ood_epochs": 1,
    },
    "active-learning": {
        "filters": (2, 2),
        "pool": 100,
        "shown": 20,
        "test_images": 20,
        "start": 10,
        "step": 5,
        "most": 15,
        "epochs": 2,
        "seeds": (0,),
    },
    "bases-and-priors": {"features": 50, "inputs": 61},
    "bayesian-optimization": {
        "dimension": 2,
        "lengthscales": (0.3,),
        "start": 60,
        "batch": 3,
        "steps": 1,
        "passes": 20.0,
        "inducing": 20,
        "seeds": (0, 1),
    },
    "molecules": {"rows": 120, "inducing": 20, "evidence_rows": 40, "passes": 5.0, "epochs": 5.0, "samples": 4},
    "thompson-step": {"repeats": 3, "inputs": 51, "steps": 10},
    "evaluation-functionals": {"inputs": 101},
    "evidence-and-elbos": {"precisions": 21},
    "evidence-lengthscale": {"features": 50, "lengthscales": 5, "inputs": 21},
    "cg-regimes": {"rows": 300, "samples": 4, "products": 20},
    "implicit-bias": {"rows": 300, "samples": 4, "epochs": 40.0, "batch": 64, "plain_steps": 50, "plain_batch": 32},
    "inducing-approximation": {"rows": 300, "infill": (5, 10, 20), "large": (20, 40, 80), "samples": 4},
    "infill-and-large-domain": {"rows": 300, "samples": 4, "sgd_epochs": 40.0, "sdd_epochs": 10.0, "batch": 64},
    "kmnist-ct": {
        "images": 1,
        "angles": 4,
        "channels": 2,
        "scales": 2,
        "steps": 3,
        "em_steps": 1,
        "em_samples": 2,
        "samples": 4,
        "draws": 250,
        "sweeps": 2,
    },
    "mackay-em": {"width": 16, "training_steps": 1_500, "steps": 20, "repeats": 10, "grid": 5},
    "normalized-networks": {"width": 6, "training_steps": 300, "em_steps": 20},
    "pathwise-decomposition": {"samples": 20, "features": 100},
    "online-learning": {
        "filters": (2, 2, 2),
        "images": 20,
        "held_out": 10,
        "test_images": 10,
        "epochs": 4,
        "first": 1,
        "every": 1,
        "batch": 10,
        "decays": (1e-3,),
    },
    "posterior-landscape": {"features": 50, "inputs": 41, "draws": 100},
    "random-feature-convergence": {"draws": 5, "numbers": (10, 30), "shown": (10,), "inputs": 21},
    "toy-laplace": {"width": 6, "training_steps": 300, "em_steps": 5, "samples": 25},
    "sampling-objectives": {
        "filters": (2, 2, 2),
        "images": 20,
        "training_epochs": 2,
        "samples": 2,
        "batches": (2, 8),
        "epochs": 8.0,
        "descended": (1.0,),
        "multiples": (1.0, 100.0),
    },
    "svgp-regimes": {"rows": 300, "infill": (20, 10), "large": (40, 80)},
    "uci-gap": {
        "sets": ("yacht",),
        "splits": (1, 1),
        "width": 4,
        "window": 20,
        "most_windows": 2,
        "em_steps": 2,
        "samples": 8,
    },
    "variance-starvation": {
        "rows": 200,
        "features": (40, 20, 60),
        "samples": 16,
        "inputs": 41,
        "truth_features": 200,
    },
    "variational-logistic": {"side": 101},
    "walnut-3d": {
        "size": 8,
        "binning": 32,
        "views": 4,
        "channels": 2,
        "scales": 2,
        "steps": 5,
        "em_steps": 2,
        "em_samples": 2,
        "samples": 4,
        "scale_draws": 4,
        "reference_iterations": 2,
    },
    "walnut-2d": {
        "size": 12,
        "views": (8, 12),
        "binning": 16,
        "scales": 2,
        "channels": 2,
        "steps": 3,
        "em_steps": 1,
        "samples": 4,
        "iterations": 3,
        "ascent_steps": 3,
        "timed_gradients": 2,
    },
}


PEERS = {"image-classification": "laplace", "uci-gap": "laplace"}
"""What an experiment needs besides this project."""


LONG = ("architectures", "image-classification", "kmnist-ct", "walnut-2d")
"""Many fits, however small."""


@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.slow) if id in LONG else id for id in SMALLER])
def test_pictures_run_and_draw(id, tmp_path):
    if id in PEERS:
        pytest.importorskip(PEERS[id])
    whole = harness.discover("experiments")[id]
    small = replace(whole.budgets["quick"], **SMALLER[id])
    experiment = Experiment(**(vars(whole) | {"budgets": dict.fromkeys(harness.BUDGETS, small)}))
    try:
        record = harness.perform(experiment, "quick", Progress(visible=False))
    except DataNotFound as error:
        pytest.skip(str(error).splitlines()[0])
    assert record["claims"]
    assert record["table"]
    harness.write(record, tmp_path)
    path = harness.draw(experiment, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / f"{id}.json").read_text()) == record
    with style.applied():
        assert experiment.draw(record).axes


def test_the_variational_fit_has_no_better_neighbor():
    """Its ELBO, estimated from many samples, falls when the mean or the covariance is moved."""
    config = Logistic()
    x, y = labels(config)
    q, elbo = variational_fit(x, y, config)
    draws = torch.randn(200_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def estimate(mean, factor):
        log_density = torch.distributions.MultivariateNormal(mean, scale_tril=factor)
        w = mean + draws @ factor.mT
        return float((log_joint(w, x, y, config.prior_precision) - log_density.log_prob(w)).mean())

    factor = torch.linalg.cholesky(q.covariance)
    best = estimate(q.mean, factor)
    assert abs(best - elbo) < 0.01
    for shift in torch.tensor([[0.3, 0.0], [-0.3, 0.0], [0.0, 0.3], [0.0, -0.3]], dtype=torch.float64):
        assert estimate(q.mean + shift, factor) < best
    for scale in (0.8, 1.25):
        assert estimate(q.mean, scale * factor) < best
