"""The posterior of a network against explicit Jacobians and dense algebra."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import matheron as mt
from matheron.linear import Descent
from matheron.networks import Likelihood, LinearizedLaplace, TangentModel
from tests.networks import laplace_twin as twin

KINDS = {"classification": 3, "binary": 1, "regression": 2}


def problem(kind: str, n: int = 24, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, KINDS[kind])).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    X = torch.randn(n, 2, generator=g, dtype=torch.float64)
    if kind == "regression":
        y = model(X).detach() + 0.3 * torch.randn(n, 2, generator=g, dtype=torch.float64)
    elif kind == "binary":
        y = (X[:, 0] > 0).long()
    else:
        y = torch.randint(3, (n,), generator=g)
    return model, X, y


def covariance(model: nn.Module, X: Tensor, kind: str, la: LinearizedLaplace) -> Tensor:
    """``J′H⁻¹J′ᵀ`` at the inputs themselves, at the prior that was learnt."""
    J, noise = twin.jacobian(model, X), la.noise if kind == "regression" else 1.0
    A = la.prior.precision(torch.eye(J.shape[1], dtype=torch.float64))
    H = J.mT @ twin.curvature(model, X, kind, noise) @ J + A
    return J @ torch.linalg.solve(H, J.mT)


def agree(functions: Tensor, expected: Tensor) -> None:
    """Second moments of samples, each within five standard errors."""
    flat = functions.flatten(1)
    measured = flat.mT @ flat / len(flat)
    scale = expected.diagonal()
    error = ((scale[:, None] * scale + expected.square()) / len(flat)).sqrt()
    assert bool(((measured - expected).abs() <= 5 * error + 1e-9).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", ["g", "isotropic", "layerwise"])
def test_exact_samples_have_the_posterior_covariance(kind: str, prior: str) -> None:
    model, X, y = problem(kind)
    g = torch.Generator().manual_seed(1)
    la = LinearizedLaplace(model, kind, prior)
    la.fit((X, y), method="exact", em_steps=4, num_samples=50, final_samples=2000, generator=g)
    assert la.report is not None
    assert la.report.converged
    agree(la.functional_samples(X) - model(X).detach(), covariance(model, X, kind, la))


@pytest.mark.parametrize("method", ["sgd", "cg"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_methods_have_it_too(kind: str, method: str) -> None:
    model, X, y = problem(kind)
    g = torch.Generator().manual_seed(2)
    descent = Descent(epochs=150.0, tolerance=0.05) if method == "sgd" else None
    la = LinearizedLaplace(model, kind, "isotropic", prior_precision=2.0)
    la.fit((X, y), method=method, em_steps=0, final_samples=200, descent=descent, batch_size=12, generator=g)
    assert la.report is not None
    assert la.report.converged
    agree(la.functional_samples(X) - model(X).detach(), covariance(model, X, kind, la))


@pytest.mark.parametrize("kind", KINDS)
def test_mode_is_the_optimum_of_the_tangent_model(kind: str) -> None:
    model, X, y = problem(kind)
    la = LinearizedLaplace(model, mt.networks.Gaussian(0.1, learn=False) if kind == "regression" else kind, "isotropic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la.fit((X, y), method="exact", em_steps=1, final_samples=2, generator=torch.Generator().manual_seed(0))
    A = torch.eye(la.tangent.num_weights, dtype=torch.float64)  # the mode is that of the precision before the update
    expected = twin.mode(model, X, y, A, kind, 0.1)
    assert la.mode is not None
    torch.testing.assert_close(la.mode, expected, rtol=1e-4, atol=1e-4)


def test_learned_precision_is_the_fixed_point() -> None:
    """``a ‖w⋆‖² = γ`` with both from dense algebra at the learned precision."""
    model, X, y = problem("classification", n=60)
    la = LinearizedLaplace(model, "classification", "isotropic")
    la.fit((X, y), method="exact", em_steps=60, num_samples=1000, final_samples=2, generator=torch.Generator())
    a, d = float(la.prior_precision), la.tangent.num_weights
    A = a * torch.eye(d, dtype=torch.float64)
    M = twin.jacobian(model, X).mT @ twin.curvature(model, X, "classification") @ twin.jacobian(model, X)
    gamma = torch.linalg.solve(M + A, M).trace()
    w = twin.mode(model, X, y, A, "classification")
    assert a * float(w @ w) == pytest.approx(float(gamma), rel=0.15)  # samples and a tolerance of 5 % on log a


def test_noise_is_learned() -> None:
    model, X, y = problem("regression", n=400)
    la = LinearizedLaplace(model, "regression", "isotropic")
    la.fit((X, y), em_steps=30, num_samples=16, final_samples=4, generator=torch.Generator().manual_seed(0))
    assert la.noise == pytest.approx(0.09, rel=0.2)


def test_functions_are_the_same_at_every_call_and_in_every_batch() -> None:
    model, X, y = problem("classification")
    la = LinearizedLaplace(model, "classification").fit((X, y), final_samples=5, generator=torch.Generator())
    whole = la.functional_samples(X)
    torch.testing.assert_close(la.functional_samples(X[3:7]), whole[:, 3:7])
    loader = DataLoader(TensorDataset(X, y), batch_size=5)
    torch.testing.assert_close(la.functional_samples(loader), whole)
    torch.testing.assert_close(la(loader), la(X))


def test_predictions_are_consistent() -> None:
    model, X, y = problem("classification")
    la = LinearizedLaplace(model, "classification").fit((X, y), final_samples=200, generator=torch.Generator())
    for link in ("probit", "mc"):
        p = la(X, link)
        torch.testing.assert_close(p.sum(1), torch.ones(len(X), dtype=torch.float64))
        # Both average over the same functions, one of them through a Gaussian with as many moments.
        torch.testing.assert_close(p, la.predictive_samples(X).mean(0), atol=0.05, rtol=0.1)
    torch.testing.assert_close(la.joint_log_prob(X[:1], y[:1]), la.log_prob(X[:1], y[:1])[0])
    expected = la(X, "mc").log().gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(la.log_prob(X, y), expected)
    mean, variance = LinearizedLaplace(*_regression()).fit(problem("regression")[1:], generator=torch.Generator())(X)
    assert mean.shape == variance.shape == (24, 2)
    assert bool((variance >= 0).all())


def _regression() -> tuple[nn.Module, str]:
    return problem("regression")[0], "regression"


def test_joint_log_prob_of_a_binary_pair_by_hand() -> None:
    model, X, y = problem("binary")
    la = LinearizedLaplace(model, "binary").fit((X, y), final_samples=50, generator=torch.Generator())
    p = la.functional_samples(X[:2])[:, :, 0].sigmoid()
    both = torch.where(y[:2] == 1, p, 1 - p).prod(1).mean()
    torch.testing.assert_close(la.joint_log_prob(X[:2], y[:2]), both.log())


@pytest.mark.parametrize("method", ["exact", "cg", "sgd"])
def test_layers_are_learnt_from_few_samples(method: str) -> None:
    """In function space some layer's dimension would be negative at nearly every step, and its precision collapse."""
    model, X, y = problem("regression", n=60)
    found = {}
    for samples in (4, 200):
        la = LinearizedLaplace(model, "regression", "layerwise")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            la.fit(
                (X, y), method=method if samples == 4 else "exact", em_steps=8, num_samples=samples, final_samples=2,
                generator=torch.Generator().manual_seed(0), batch_size=30,
            )  # fmt: skip
        found[samples] = la.log_evidence((X, y)).value
    assert found[4] == pytest.approx(found[200], abs=2.0)


class Normalized(nn.Module):
    """Layer norm after each hidden layer: the scale of the first weights changes nothing; a dense last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 6, bias=False), nn.Linear(6, 3, bias=False)
        self.norm = nn.LayerNorm(6, elementwise_affine=False, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_g_prior_does_not_see_the_scale_of_normalized_weights(factor: float) -> None:
    g = torch.Generator().manual_seed(0)
    X, y = torch.randn(30, 2, generator=g, dtype=torch.float64), torch.randint(3, (30,), generator=g)
    deviations, isotropic = [], []
    for scale in (1.0, factor):
        torch.manual_seed(0)
        model = Normalized().double().eval()
        with torch.no_grad():
            model.first.weight.mul_(scale)
        for prior, found in (("g", deviations), ("isotropic", isotropic)):
            la = LinearizedLaplace(model, "classification", prior)
            la.fit((X, y), em_steps=0, final_samples=64, method="exact", generator=torch.Generator().manual_seed(1))
            found.append(la.functional_samples(X).std(0))
    torch.testing.assert_close(deviations[1], deviations[0], rtol=1e-4, atol=1e-8)
    assert float((isotropic[1] / isotropic[0] - 1).abs().max()) > 0.1


def test_the_simple_offset_is_right_for_normalized_networks() -> None:
    """``J(x)ṽ = g(ṽ, x)``, so that the offset vanishes."""
    torch.manual_seed(0)
    model, X = Normalized().double().eval(), torch.randn(5, 2, dtype=torch.float64)
    tangent = TangentModel(model)
    torch.testing.assert_close(tangent.jvp(X, tangent.weights[None])[0], model(X).detach())


def test_the_classical_evidence_takes_the_weights_of_the_network() -> None:
    model, X, y = problem("classification")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la = LinearizedLaplace(model, "classification", "isotropic", evidence="network")
        la.fit((X, y), method="exact", em_steps=1, num_samples=500, final_samples=2, generator=torch.Generator())
    M = twin.jacobian(model, X).mT @ twin.curvature(model, X, "classification") @ twin.jacobian(model, X)
    gamma = torch.linalg.solve(M + torch.eye(len(M)), M).trace()
    v = twin.weights(model)
    assert float(la.prior_precision) == pytest.approx(float(gamma / (v @ v)), rel=0.1)


def test_the_same_seed_gives_the_same_samples_whatever_the_loader_draws() -> None:
    model, X, y = problem("classification")
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(X, y), batch_size=7, shuffle=True, drop_last=True)
        la = LinearizedLaplace(model, "classification")
        la.fit(
            loader, em_steps=0, final_samples=3, method="sgd", descent=Descent(epochs=20.0, tolerance=0.5),
            generator=torch.Generator().manual_seed(5),
        )  # fmt: skip
        found.append(la.samples)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


class Squeezed(nn.Module):
    """One output per datum, without a dimension of its own."""

    def __init__(self, column: nn.Module) -> None:
        super().__init__()
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        return self.column(x).squeeze(-1)


@pytest.mark.parametrize("method", ["exact", "cg", "sgd"])
@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_outputs_without_a_dimension_are_a_column(kind: str, method: str) -> None:
    model, X, y = problem("binary")
    y = y.double() if kind == "regression" else y
    found = []
    for network in (model, Squeezed(model)):
        la = LinearizedLaplace(network, kind, "isotropic", curvature="tangent")
        descent = Descent(epochs=20.0, tolerance=0.9) if method == "sgd" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            la.fit(
                (X, y), method=method, em_steps=2, num_samples=2, final_samples=3, descent=descent, batch_size=10,
                generator=torch.Generator().manual_seed(0),
            )  # fmt: skip
        joint = la.joint_log_prob(X, y)
        found.append((la(X), la.functional_samples(X), la.whitened_samples(X), la.predictive_samples(X).shape, joint))
    torch.testing.assert_close(found[1], found[0])


def test_small_deviations_of_a_large_mean_are_not_rounded_away() -> None:
    model, X, _ = problem("regression")
    model = model.float()
    with torch.no_grad():
        model[2].bias.fill_(1e6)
    targets = model(X.float()).detach()
    la = LinearizedLaplace(model, mt.networks.Gaussian(1e-4, learn=False), "isotropic", parameters="last_layer")
    la.fit((X.float(), targets), em_steps=0, final_samples=50, method="exact", generator=torch.Generator())
    _, variance = la(X.float())
    expected = la.tangent.jvp(X.float(), la.samples).square().mean(0)
    assert float(expected.max()) < 1e-3  # a deviation of 0.03 is lost beside a million
    torch.testing.assert_close(variance, expected)


@pytest.mark.parametrize("samples", [1, 4])
def test_the_weights_of_the_network_have_no_residual(samples: int) -> None:
    model, X, y = problem("classification")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la = LinearizedLaplace(model, "classification", "isotropic", evidence="network")
        la.fit((X, y), method="exact", em_steps=1, num_samples=samples, final_samples=2, generator=torch.Generator())
    assert la.history[0]["mode_residual"] is None
    assert 0.0 <= la.history[0]["residual"] < 1e-6


def test_the_report_has_the_seed() -> None:
    model, X, y = problem("classification")
    la = LinearizedLaplace(model, "classification")
    seeds = []
    for _ in range(2):
        la.fit((X, y), em_steps=0, final_samples=2, generator=torch.Generator().manual_seed(3))
        assert la.report is not None
        seeds.append(la.report.seed)
    assert seeds[0] == seeds[1] is not None
    la.fit((X, y), em_steps=0, final_samples=2)
    assert la.report.seed not in (None, seeds[0])


class Counts(Likelihood):
    """Poisson with the rate ``exp f``."""

    def negative_log_likelihood(self, outputs: Tensor, targets: Tensor) -> Tensor:
        counts = targets.reshape(outputs.shape)
        return (outputs.exp() - counts * outputs + torch.lgamma(counts + 1)).sum(1)

    def curvature_product(self, outputs: Tensor, V: Tensor) -> Tensor:
        return outputs.exp() * V

    def curvature_draw(self, outputs: Tensor, num: int, generator: torch.Generator) -> Tensor:
        return (0.5 * outputs).exp() * torch.randn(num, *outputs.shape, generator=generator, dtype=outputs.dtype)


@pytest.mark.parametrize("method", ["exact", "cg", "sgd"])
def test_a_likelihood_of_one_s_own(method: str) -> None:
    model, X, _ = problem("binary")
    y = torch.poisson(model(X).detach().exp(), generator=torch.Generator().manual_seed(0))
    la = LinearizedLaplace(model, Counts(), "isotropic", prior_precision=1.0)
    descent = Descent(epochs=150.0, tolerance=0.05) if method == "sgd" else None
    la.fit((X, y), method=method, em_steps=0, final_samples=200, descent=descent, generator=torch.Generator())
    J, B = twin.jacobian(model, X), torch.diag(model(X).detach().exp().flatten())
    H = J.mT @ B @ J + torch.eye(J.shape[1], dtype=torch.float64)
    agree(la.functional_samples(X) - model(X).detach(), J @ torch.linalg.solve(H, J.mT))
    assert math.isfinite(float(la.joint_log_prob(X, y)))


class TextClassifier(nn.Module):
    """Called as a transformer library calls one: by keywords, an object with logits back."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.classifier = nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> object:
        mask = None if attention_mask is None else attention_mask == 0
        hidden = self.encoder(self.embedding(input_ids), src_key_padding_mask=mask)
        return type("Output", (), {"logits": self.classifier(hidden[:, 0])})()


def test_a_text_classifier_from_end_to_end() -> None:
    torch.manual_seed(0)
    ids = torch.randint(20, (40, 6))
    labels = (ids[:, 0] < 10).long()
    model = TextClassifier()
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        inputs = {k: v for k, v in batch.items() if k != "labels"}
        nn.functional.cross_entropy(model(**inputs).logits, labels).backward()
        optimizer.step()
    model.eval()
    batches = [{k: v[i : i + 10] for k, v in batch.items()} for i in range(0, 40, 10)]
    la = LinearizedLaplace(model, "classification")
    la.fit(batches, em_steps=3, num_samples=2, final_samples=8, generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert float((la(inputs).argmax(1) == labels).float().mean()) > 0.9
    assert la.functional_samples(inputs).shape == (8, 40, 2)


class Observed(Counts):
    """Counts that can be drawn, and that know how often noise of theirs was."""

    def __init__(self) -> None:
        self.draws = 0

    def curvature_draw(self, outputs: Tensor, num: int, generator: torch.Generator) -> Tensor:
        self.draws += 1
        return super().curvature_draw(outputs, num, generator)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.poisson(outputs.exp(), generator=generator)


def test_noise_is_drawn_by_the_likelihood_without_a_root(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, _ = problem("binary")
    y = torch.poisson(model(X).detach().exp(), generator=torch.Generator().manual_seed(0))
    likelihood = Observed()
    monkeypatch.setattr("matheron.networks.likelihood.BlockCurvature", None)
    LinearizedLaplace(model, likelihood, "g").fit(
        (X, y), method="sgd", em_steps=0, final_samples=2, batch_size=8, descent=Descent(epochs=10.0, tolerance=0.9),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert likelihood.draws == 6  # three batches, for the scale of the prior and for the samples


@pytest.mark.usefixtures("unchecked")
def test_noise_of_another_shape_is_refused() -> None:
    class Wrong(Counts):
        def curvature_draw(self, outputs: Tensor, num: int, generator: torch.Generator) -> Tensor:
            return torch.zeros(num, len(outputs))

    model, X, _ = problem("binary")
    with pytest.raises(ValueError, match=r"curvature_draw of Wrong gave \(2, 24\)"):
        LinearizedLaplace(model, Wrong(), "isotropic").fit((X, torch.ones(24, 1)), em_steps=0, final_samples=2)


@pytest.mark.usefixtures("unchecked")
def test_a_likelihood_that_broadcasts_its_targets_is_refused() -> None:
    class Broadcast(Counts):
        def negative_log_likelihood(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs.exp() - targets * outputs + torch.lgamma(targets + 1)).sum(1)

    model, X, _ = problem("binary")
    la = LinearizedLaplace(model, Broadcast(), "isotropic")
    y = torch.arange(24.0, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"targets \(24,\) and outputs \(24, 1\) are broadcast"):
        la.fit((X, y), em_steps=0, final_samples=2)
    la.fit((X, y[:, None]), em_steps=0, final_samples=2)
    with pytest.raises(ValueError, match="are broadcast"):
        la.log_prob(X, y)

    class Summed(Counts):
        def negative_log_likelihood(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return super().negative_log_likelihood(outputs, targets).sum()

    with pytest.raises(ValueError, match=r"negative_log_likelihood of Summed gave \(\) for 24 data"):
        LinearizedLaplace(model, Summed(), "isotropic").fit((X, y[:, None]), em_steps=0, final_samples=2)


def test_observations_are_drawn_by_the_likelihood() -> None:
    model, X, _ = problem("binary")
    y = torch.poisson(model(X).detach().exp(), generator=torch.Generator().manual_seed(0))
    options = {"em_steps": 0, "final_samples": 2, "generator": torch.Generator().manual_seed(0)}
    drawn = LinearizedLaplace(model, Observed()).fit((X, y), **options).predictive_samples(X)
    assert drawn.shape == (2, 24, 1)
    assert bool((drawn == drawn.round()).all())
    with pytest.raises(NotImplementedError, match=r"give it sample\(...\)"):
        LinearizedLaplace(model, Counts()).fit((X, y), **options).predictive_samples(X)


@pytest.mark.parametrize("likelihood", [mt.networks.Categorical(), mt.networks.Bernoulli()], ids=repr)
def test_labels_have_the_probabilities_of_the_outputs(likelihood: Likelihood) -> None:
    outputs = torch.tensor([[0.3, -1.0, 0.5]], dtype=torch.float64)
    drawn = likelihood.sample(outputs.expand(20_000, 1, 3), torch.Generator().manual_seed(0))
    if isinstance(likelihood, mt.networks.Categorical):
        drawn, expected = nn.functional.one_hot(drawn, 3).double(), outputs.softmax(-1)
    else:
        expected = outputs.sigmoid()
    assert bool(((drawn.mean(0) - expected).abs() < 5.0 * (0.25 / 20_000) ** 0.5).all())


def test_a_mapping_of_inputs_with_targets_is_a_data_set() -> None:
    torch.manual_seed(0)
    ids = torch.randint(20, (12, 6))
    inputs, model = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, TextClassifier().eval()
    la = LinearizedLaplace(model, "classification", parameters="last_layer")
    la.fit((inputs, torch.arange(12) % 2), em_steps=0, final_samples=2, batch_size=5)
    assert la.functional_samples(inputs).shape == (2, 12, 2)


@pytest.mark.parametrize("evidence", ["tangent", "network"])
@pytest.mark.parametrize("prior", ["g", "isotropic", "layerwise"])
@pytest.mark.parametrize(("rows", "width", "side"), [(40, 30, "outputs"), (300, 12, "weights")])
def test_factorized_a_network_in_float32_is_as_good_as_in_float64(
    prior: str, evidence: str, rows: int, width: int, side: str
) -> None:
    """With a wide prior and little noise the system is beyond float32; draws are the same in both."""
    g = torch.Generator().manual_seed(0)
    X = 4.0 * torch.rand(rows, 1, generator=g) - 2.0
    y = (3.0 * X).sin() + 0.01 * torch.randn(rows, 1, generator=g)
    layers = [nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / p.shape[-1] ** 0.5)
    found = []
    for dtype in (torch.float32, torch.float64):
        la = LinearizedLaplace(
            model.to(dtype), mt.networks.Gaussian(1e-4), prior, prior_precision=1e-2, evidence=evidence
        )
        la.fit((X.to(dtype), y.to(dtype)), method="exact", em_steps=2, generator=torch.Generator().manual_seed(1))
        assert la.report is not None
        assert la.report.residual < 1e-6
        assert la.report.method.endswith(f"by {side}")
        assert la.samples.dtype == la.prior.dtype == dtype
        found.append(torch.cat(la(X.to(dtype))).double())
    torch.testing.assert_close(found[0], found[1], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("jvp", ["forward", "double-vjp"])
@pytest.mark.parametrize("likelihood", ["classification", "binary"])
def test_inference_mode(likelihood: str, jvp: str) -> None:
    """Batches that are made inside have no derivatives of their own."""
    model, X, y = problem(likelihood)
    kind = likelihood if likelihood == "classification" else Counts()
    options = {"em_steps": 1, "num_samples": 2, "final_samples": 3, "batch_size": 7, "generator": 0}
    expected = LinearizedLaplace(model, kind, jvp=jvp).fit((X, y.reshape(len(y), -1)), **options)
    with torch.inference_mode():
        loader = DataLoader(TensorDataset(X, y.reshape(len(y), -1)), batch_size=7)
        la = LinearizedLaplace(model, kind, jvp=jvp).fit(loader, **options)
        drawn = torch.cat([la.functional_samples(x) for x, _ in loader], dim=1)
    torch.testing.assert_close(drawn.clone(), expected.functional_samples(X))
    torch.testing.assert_close(la.functional_samples(X), expected.functional_samples(X))


def test_automatic_casts_do_not_reach_derivatives() -> None:
    model, X, y = problem("classification")
    model, X = model.float(), X.float()
    options = {"em_steps": 1, "num_samples": 2, "final_samples": 3, "generator": 0}
    expected = LinearizedLaplace(model).fit((X, y), **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        la = LinearizedLaplace(model).fit((X, y), **options)
        drawn = la.functional_samples(X)
    torch.testing.assert_close(drawn, expected.functional_samples(X), rtol=0.0, atol=0.0)


def test_a_traced_module() -> None:
    model, X, y = problem("classification")
    options = {"em_steps": 1, "num_samples": 2, "final_samples": 3, "generator": 0}
    la = LinearizedLaplace(torch.jit.trace(model, X[:3])).fit((X, y), **options)
    torch.testing.assert_close(la(X), LinearizedLaplace(model).fit((X, y), **options)(X))
