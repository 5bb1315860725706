"""Curvature at the tangent model's own predictions, and what is said of its offset."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from matheron.linear import Data
from matheron.networks import Categorical, LinearizedLaplace, TangentModel
from matheron.networks.data import NetworkData
from matheron.networks.loading import Loading
from tests.networks import laplace_twin as twin
from tests.networks.test_laplace import agree, problem


def dense_curvature(data: Data) -> torch.Tensor:
    return torch.block_diag(*(batch.curvature.dense() for batch in data.batches()))


@pytest.mark.parametrize("affine", [True, False])
def test_curvature_is_taken_at_the_mode(affine: bool) -> None:
    model, X, y = problem("classification")
    data = NetworkData(TangentModel(model), Loading.of((X, y), 7), Categorical(), affine=affine, follow=True)
    w = torch.randn(data.num_weights, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    J, outputs = twin.jacobian(model, X), model(X).detach()
    h = (J @ w).reshape(outputs.shape) + (outputs - (J @ twin.weights(model)).reshape(outputs.shape) if affine else 0.0)
    expected = torch.block_diag(*(torch.diag(p) - torch.outer(p, p) for p in h.softmax(1)))
    torch.testing.assert_close(dense_curvature(data.following(w)), expected)
    torch.testing.assert_close(dense_curvature(data.kept().following(w)), expected)
    if affine:
        torch.testing.assert_close(expected, twin.curvature(model, X, "classification", at=w))


def test_curvature_of_other_data_stays() -> None:
    model, X, y = problem("classification")
    fixed = NetworkData(TangentModel(model), Loading.of((X, y), 7), Categorical())
    w = torch.zeros(fixed.num_weights, dtype=torch.float64)
    assert fixed.following(w) is fixed
    kept = fixed.kept()
    assert kept.following(w) is kept


def test_learned_precision_is_the_fixed_point_at_the_mode() -> None:
    """``a ‖w⋆‖² = γ`` with ``w⋆`` and ``B`` of each other, both from dense algebra."""
    model, X, y = problem("classification", n=60)
    la = LinearizedLaplace(model, "classification", "isotropic", curvature="tangent")
    la.fit((X, y), method="exact", em_steps=60, num_samples=1000, final_samples=2000, generator=torch.Generator())
    assert la.report is not None
    assert la.report.em_converged
    a, d = float(la.prior_precision), la.tangent.num_weights
    A, J = a * torch.eye(d, dtype=torch.float64), twin.jacobian(model, X)
    w = twin.mode(model, X, y, A, "classification")
    M = J.mT @ twin.curvature(model, X, "classification", at=w) @ J
    assert a * float(w @ w) == pytest.approx(float(torch.linalg.solve(M + A, M).trace()), rel=0.15)
    assert la.mode is not None
    M = J.mT @ twin.curvature(model, X, "classification", at=la.mode) @ J
    agree(la.functional_samples(X) - model(X).detach(), J @ torch.linalg.solve(M + A, J.mT))


def test_a_precision_that_rests_under_the_network_s_curvature_is_learnt_nevertheless() -> None:
    model, X, y = problem("classification", n=60)
    options = {"method": "exact", "em_steps": 60, "num_samples": 200, "final_samples": 2}
    rests = LinearizedLaplace(model, "classification", "isotropic")
    rests.fit((X, y), **options, generator=torch.Generator().manual_seed(0))
    start = float(rests.prior_precision)
    la = LinearizedLaplace(model, "classification", "isotropic", curvature="tangent", prior_precision=start)
    la.fit((X, y), **options, generator=torch.Generator().manual_seed(0))
    assert abs(torch.tensor(la.history[1]["precision"][0] / start).log()) < 0.05
    assert len(la.history) > 1


@pytest.mark.parametrize("method", ["sgd", "cg"])
def test_other_methods_follow_too(method: str) -> None:
    model, X, y = problem("classification", n=40)
    options = {"em_steps": 4, "num_samples": 64, "final_samples": 2, "generator": torch.Generator().manual_seed(0)}
    found = []
    for name in ("exact", method):
        la = LinearizedLaplace(model, "classification", "isotropic", curvature="tangent")
        with pytest.warns(Warning, match="allow more"):
            found.append(float(la.fit((X, y), method=name, **options).prior_precision))
    assert found[1] == pytest.approx(found[0], rel=0.25)


def test_a_checkpoint_goes_on_with_the_curvature_it_had(tmp_path, monkeypatch) -> None:
    model, X, y = problem("classification", n=40)
    la = LinearizedLaplace(model, "classification", curvature="tangent")
    whole = la.fit((X, y), em_steps=8, final_samples=4, generator=torch.Generator().manual_seed(5)).samples
    from matheron.linear import mackay

    calls, original = [], mackay.maximized

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    options = {"em_steps": 8, "final_samples": 4, "checkpoint": tmp_path / "em"}
    monkeypatch.setattr(mackay, "maximized", interrupted)
    with pytest.raises(KeyboardInterrupt):
        la.fit((X, y), generator=torch.Generator().manual_seed(5), **options)
    monkeypatch.setattr(mackay, "maximized", original)
    again = la.fit((X, y), generator=torch.Generator().manual_seed(5), **options).samples
    assert torch.equal(again, whole)


def test_a_large_offset_is_said() -> None:
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)  # some draws leave no unit alive
    layers = [module for _ in range(3) for module in (nn.Linear(4, 4, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(4, 3, bias=False)).eval()
    X, y = torch.rand(20, 4, generator=g), torch.randint(3, (20,), generator=g)
    la = LinearizedLaplace(model)
    with pytest.warns(UserWarning, match="offset='simple'"):
        la.fit((X, y), em_steps=50, generator=g)
    assert la.report is not None
    assert la.report.offset_share == pytest.approx(3.0, rel=1e-4)  # four homogeneous layers: Jṽ = 4 g
    assert LinearizedLaplace(model, offset="simple").fit((X, y), generator=g).report.offset_share == 0.0


def certain(factor: float) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network whose predictions of separable data are as certain as ``factor`` has them."""
    model, X, _ = problem("classification")
    y = model(X).argmax(1)
    with torch.no_grad():
        model[-1].weight.mul_(factor)
        model[-1].bias.mul_(factor)
    return model.float(), X.float(), y


@pytest.mark.parametrize(("factor", "at", "says"), [(1e4, "network", 1), (1.0, "network", 0), (1e4, "tangent", 0)])
def test_a_network_that_is_certain_of_its_data_is_said(
    factor: float, at: str, says: int, recwarn: pytest.WarningsRecorder
) -> None:
    model, X, y = certain(factor)
    LinearizedLaplace(model, prior="isotropic", curvature=at).fit((X, y), final_samples=8, generator=0)
    assert sum("certain of its training data" in str(warning.message) for warning in recwarn) == says


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factor", [100.0, 300.0, 1e3])
def test_the_g_prior_of_a_certain_network_stays_in_range(factor: float) -> None:
    """Its curvature has squares below the least number of the network's precision, and its scale none above."""
    model, X, y = certain(factor)
    la = LinearizedLaplace(model, curvature="tangent").fit((X, y), em_steps=4, final_samples=8, generator=0)
    assert bool(la.samples.isfinite().all())
    assert bool(la(X).isfinite().all())


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("where", ["tangent", "network"])
def test_log_evidence(kind: str, where: str) -> None:
    """``log p(y | w) − ½ w A w − ½ logdet(I + A⁻¹M)`` from explicit matrices."""
    model, X, y = problem(kind)
    la = LinearizedLaplace(model, kind, evidence=where)
    la.fit((X, y), em_steps=50, num_samples=64, final_samples=2, generator=torch.Generator().manual_seed(0))
    noise = la.noise if kind == "regression" else 1.0
    J, v = twin.jacobian(model, X), twin.weights(model)
    w = v if where == "network" else la.mode
    A = la.prior.precision(torch.eye(len(v), dtype=torch.float64))
    outputs = model(X).detach() + (J @ (w - v)).reshape(len(X), -1)
    constant = 0.5 * outputs.numel() * torch.log(torch.tensor(2 * torch.pi * noise)) if kind == "regression" else 0.0
    M = J.mT @ twin.curvature(model, X, kind, noise) @ J
    determinant = torch.logdet(M + A) - torch.logdet(A)
    expected = -twin.losses(outputs, y, kind, noise) - constant - 0.5 * w @ A @ w - 0.5 * determinant
    assert la.log_evidence((X, y)).value == pytest.approx(float(expected), rel=1e-5)


def test_the_classical_evidence_has_the_loss_of_the_network_whatever_the_offset() -> None:
    model, X, y = problem("classification")
    la = LinearizedLaplace(model, "classification", offset="simple", evidence="network")
    la.fit((X, y), em_steps=1, final_samples=2, generator=torch.Generator().manual_seed(0))
    loss = float(nn.functional.cross_entropy(model(X).detach(), y, reduction="sum"))
    assert la.history[-1]["loss"] == pytest.approx(loss)
    assert la.log_evidence((X, y)).loss == pytest.approx(loss)
