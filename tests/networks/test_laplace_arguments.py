"""What bad input gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from matheron.linear import Descent
from matheron.networks import Gaussian, LinearizedLaplace

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(8) % 3


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Linear(4, outputs)).eval()


def fit(y: Tensor, likelihood: str = "classification", outputs: int = 3, **options: object) -> LinearizedLaplace:
    return LinearizedLaplace(network(outputs), likelihood, **options).fit((X, y), final_samples=2)


@pytest.mark.parametrize(
    ("y", "likelihood", "outputs", "error", "says"),
    [
        (CLASSES + 1, "classification", 3, ValueError, "class 3"),
        (CLASSES - 1, "classification", 3, ValueError, "class -1"),
        (CLASSES.float(), "classification", 3, TypeError, r"targets.long\(\)"),
        (CLASSES[:, None].expand(8, 3).contiguous(), "classification", 3, ValueError, "one-hot"),
        (CLASSES, "regression", 3, ValueError, "one target per output"),
        (torch.zeros(8, dtype=torch.int64), "regression", 1, TypeError, r"targets.float\(\)"),
        (torch.full((8,), torch.nan), "regression", 1, ValueError, "NaN"),
        (torch.full((8,), 2), "binary", 1, ValueError, "0 or 1"),
    ],
)
def test_targets(y: Tensor, likelihood: str, outputs: int, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        fit(y, likelihood, outputs)


def test_names() -> None:
    for options, says in (
        ({"prior": "flat"}, "prior"),
        ({"offset": "none"}, "offset"),
        ({"evidence": "x"}, "evidence"),
        ({"jvp": "x"}, "jvp"),
    ):
        with pytest.raises(ValueError, match=f"{says} must be one of"):
            fit(CLASSES, **options)
    with pytest.raises(ValueError, match="likelihood must be one of"):
        fit(CLASSES, "ordinal")
    with pytest.raises(ValueError, match="likelihood must be one of"):
        fit(CLASSES, ["classification"])
    with pytest.raises(ValueError, match="link_approx must be one of"):
        fit(CLASSES)(X, "logit")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "newton"}, "method must be one of"),
        ({"scale_draws": 2}, "scale_draws must be at least 3"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"descent": 0.1}, "descent must be a"),
        ({"method": "cg", "descent": Descent()}, "descent is for method='sgd'"),
    ],
)
def test_settings_are_refused_before_any_pass(options: dict[str, object], says: str) -> None:
    posterior = LinearizedLaplace(network(), forward=lambda model, x: pytest.fail("the model was run"))
    with pytest.raises((TypeError, ValueError), match=says):
        posterior.fit((X, CLASSES), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prior", "precision", "says"),
    [
        ("g", -1.0, "prior_precision must be positive"),
        ("isotropic", float("nan"), "prior_precision has 1 NaN"),
        ("g", "wide", "prior_precision must be a number"),
        ("isotropic", torch.ones(2), "prior_precision has 2 values; prior='isotropic' takes one number"),
        ("layerwise", torch.ones(3), "prior_precision has 3 values; .* one for each parameter tensor"),
    ],
)
def test_precisions_to_start_from(prior: str, precision: object, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        LinearizedLaplace(network(), prior=prior, prior_precision=precision)  # type: ignore[arg-type]


def test_a_model_that_gives_nan() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x) * torch.tensor(torch.nan)

    with pytest.raises(ValueError, match="the model gives NaN or infinite outputs"):
        LinearizedLaplace(Broken().eval()).fit((X, CLASSES))


def test_loaders() -> None:
    la = LinearizedLaplace(network())
    with pytest.raises(TypeError, match="walked more than once"):
        la.fit(iter([(X, CLASSES)]))
    with pytest.raises(ValueError, match="loader is empty"):
        la.fit([])
    with pytest.raises(ValueError, match="labels"):
        la.fit([{"x": X}])
    with pytest.raises(ValueError, match="inputs, targets"):
        la.fit([X])


def test_passes_of_different_length() -> None:
    class Shrinking:
        def __init__(self) -> None:
            self.passes = 0

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.passes += 1
            yield X[: 9 - self.passes], CLASSES[: 9 - self.passes]

    with pytest.raises(ValueError, match="7 data in this pass and 8 in the first"):
        LinearizedLaplace(network()).fit(Shrinking())


def test_nothing_before_the_fit() -> None:
    la = LinearizedLaplace(network())
    with pytest.raises(RuntimeError, match=r"call fit\(loader\)"):
        la(X)
    with pytest.raises(RuntimeError, match=r"call fit\(loader\)"):
        _ = la.prior_precision
    with pytest.raises(AttributeError, match="no noise"):
        _ = la.noise


def test_training_mode_is_put_back_and_said_once() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.warns(UserWarning, match="training"):
        la = LinearizedLaplace(model).fit((X, CLASSES), final_samples=2, em_steps=0, generator=torch.Generator())
    la(X)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("tracked", [True, False])
def test_outputs_that_depend_on_the_batch_are_said(tracked: bool, recwarn: pytest.WarningsRecorder) -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, track_running_stats=tracked), nn.Linear(4, 3)).eval()
    LinearizedLaplace(model).fit((X, CLASSES), em_steps=0, final_samples=2)
    said = [str(warning.message) for warning in recwarn if "depend on the others in its batch" in str(warning.message)]
    assert len(said) == int(not tracked)


def test_float64_is_kept() -> None:
    la = LinearizedLaplace(network().double()).fit((X.double(), CLASSES), final_samples=2, generator=torch.Generator())
    assert la(X.double()).dtype == la.samples.dtype == torch.float64


@pytest.mark.parametrize(
    ("pair", "error", "says"),
    [
        ((X, CLASSES.numpy()), TypeError, "the targets are ndarray; convert them with torch.as_tensor"),
        ((X, CLASSES.tolist()), TypeError, "the targets are list"),
        ((X.numpy(), CLASSES), TypeError, "ndarray without a tensor"),
        (({"x": X}, CLASSES.numpy()), TypeError, "the targets are ndarray"),
    ],
)
def test_pairs_that_are_not_tensors(pair: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        LinearizedLaplace(network()).fit(pair)


def test_predictions_for_no_batch() -> None:
    la = fit(CLASSES, prior="isotropic")
    for predict in (la, la.functional_samples, la.whitened_samples):
        with pytest.raises(ValueError, match="x is a DataLoader without a batch"):
            predict(DataLoader([]))


def test_a_noise_is_one_number() -> None:
    with pytest.raises(ValueError, match="noise has 2 values; give one variance"):
        Gaussian(torch.tensor([0.1, 0.2]))  # type: ignore[arg-type]
    assert repr(Gaussian(torch.tensor(0.5))) == "Gaussian(noise=0.5, learn=True)"  # type: ignore[arg-type]


def test_the_evidence_is_refused_before_any_pass() -> None:
    la = fit(CLASSES, prior="isotropic")
    with pytest.raises(ValueError, match="probes must be at least 1"):
        la.log_evidence(None, probes=0)
    la.fit((X, CLASSES), em_steps=0, final_samples=2)
    with pytest.raises(RuntimeError, match="optimum is not known"):
        la.log_evidence(None)


def test_inputs_of_another_precision_are_said() -> None:
    with pytest.raises(RuntimeError, match=r"x is torch\.float64 but the model is torch\.float32"):
        LinearizedLaplace(network()).fit((X.double(), CLASSES))
    la = fit(CLASSES, prior="isotropic")
    with pytest.raises(RuntimeError, match=r"for example x\.to\(torch\.float32\)"):
        la(X.double())


def test_keys_that_a_model_does_not_take_are_said() -> None:
    class Named(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            return super().forward(features)

    batch = {"features": X, "index": torch.arange(8)}
    with pytest.raises(TypeError, match=r"x has the keys \['features', 'index'\], which forward\(features"):
        LinearizedLaplace(Named(2, 3).eval()).fit((batch, CLASSES))
    la = LinearizedLaplace(Named(2, 3).eval(), forward=lambda model, x: model(x["features"]))
    la.fit((batch, CLASSES), em_steps=0, final_samples=2)


def test_outputs_that_differ_in_number_are_refused() -> None:
    class PerToken(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[..., 0]

    batches = [(torch.ones(4, length, 2), torch.ones(4, length)) for length in (3, 5)]
    with pytest.raises(ValueError, match="the model gives 5 outputs in batch 1 and 3 before"):
        LinearizedLaplace(PerToken(2, 1).eval(), "regression").fit(batches)


@pytest.mark.parametrize("shuffle", [True, False])
def test_predictions_in_an_order_nobody_knows_are_said(shuffle: bool, recwarn: pytest.WarningsRecorder) -> None:
    la = LinearizedLaplace(network(), prior="isotropic").fit((X, CLASSES), em_steps=0, final_samples=2, generator=0)
    la(DataLoader(TensorDataset(X, CLASSES), batch_size=3, shuffle=shuffle))
    assert sum("DataLoader that shuffles" in str(warning.message) for warning in recwarn) == int(shuffle)
