"""Which system of a scan is solved, and that all of them have one answer."""

import pytest
import torch

from matheron.linear import (
    Descent,
    DiagonalPrior,
    DualSolve,
    GaussianCurvature,
    PrimalSolve,
    StoredData,
    draw_regularizers,
)
from matheron.operators import Dense
from matheron.solvers import Cholesky, ConvergenceWarning
from matheron.tomography import inference
from matheron.tomography.inference import ImageModel, kept


def model(rows, weights, method, **options):
    g = torch.Generator().manual_seed(0)
    features = torch.randn(rows, weights, dtype=torch.float64, generator=g)
    targets = torch.randn(rows, dtype=torch.float64, generator=g)
    return ImageModel.of(Dense(features), targets, 4.0, method, **options)


@pytest.mark.parametrize(("rows", "weights"), [(40, 8), (8, 40)])
def test_every_method_finds_the_same_mode(rows, weights):
    prior = DiagonalPrior(0.5, num_weights=weights, dtype=torch.float64)
    found = {}
    for method in ("exact", "cg"):
        here = model(rows, weights, method)
        g = torch.Generator().manual_seed(1)
        drawn = draw_regularizers(here.data, 2, g, mode=True, keep_noise=here.step.keep_noise)
        found[method] = here.step.posterior(here.data, prior, drawn, generator=g).mode
    scale = float(found["exact"].norm())
    torch.testing.assert_close(found["cg"], found["exact"], rtol=0.0, atol=1e-2 * scale)


def test_conjugate_gradients_take_the_smaller_side_unless_held_to_measurements():
    assert isinstance(model(40, 8, "cg").step, PrimalSolve)
    assert "on weights" in model(40, 8, "cg").reason
    assert isinstance(model(8, 40, "cg").step, DualSolve)
    assert isinstance(model(40, 8, "cg", on_measurements=True).step, DualSolve)


def test_many_measurements_are_left_to_weights(monkeypatch):
    monkeypatch.setattr(inference, "SMALL", 5)
    monkeypatch.setattr(inference, "LARGE", 30)
    assert isinstance(model(20, 40, "auto").step, DualSolve)
    assert isinstance(model(40, 80, "auto").step, PrimalSolve)
    assert isinstance(model(40, 80, "auto", descent=Descent()).step, Descent)


def test_factorized_in_float64_where_float32_would_lose_the_noise():
    """One direction that all rays share, a hundred million times as strong as the noise."""
    g = torch.Generator().manual_seed(0)
    features, targets = torch.randn(30, 80, generator=g), torch.randn(30, generator=g)
    features[:, 0] = 1e4
    here = ImageModel.of(Dense(features), targets, 4.0, "exact")
    assert here.data.dtype == torch.float64
    prior = DiagonalPrior(1.0, num_weights=80, dtype=here.data.dtype)
    drawn = draw_regularizers(here.data, 4, g, mode=True, keep_noise=True)
    found = here.step.posterior(here.data, prior, drawn, generator=g)
    assert float(found.measured.residual.max()) < 1e-6
    single = DualSolve(Cholesky())
    data = StoredData(Dense(features), GaussianCurvature(4.0, size=30), targets)
    drawn = draw_regularizers(data, 4, g, mode=True, keep_noise=True)
    with pytest.warns(ConvergenceWarning):
        single.posterior(data, prior.cast(torch.float32), drawn, generator=g)


def test_what_fits_is_kept(monkeypatch):
    class Seen(Dense):
        def dense(self):
            raise AssertionError("not through here")

    features = Seen(torch.eye(3))
    torch.testing.assert_close(kept(features).matrix, torch.eye(3))
    monkeypatch.setattr(inference, "KEEP", 0.0)
    assert kept(features) is features


def test_memory_is_that_of_storing(monkeypatch):
    """64 bytes of a matrix, 128 of it in float64 and 384 of what is factorized; 36 twice, as it is turned."""
    features, four = Dense(torch.eye(3)), Dense(torch.ones(4, 4))
    monkeypatch.setattr(inference, "free_memory", lambda device: 2 * 576 - 2)
    with pytest.raises(MemoryError, match="use method='cg'"):
        ImageModel.of(four, torch.ones(4), 1.0, "exact")
    monkeypatch.setattr(inference, "free_memory", lambda device: 500.0)
    assert kept(features) is features
    monkeypatch.setattr(inference, "free_memory", lambda device: 1000.0)
    assert kept(features) is not features
