"""Files of network posteriors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import matheron as mt
from matheron.linear import Descent
from matheron.networks import LinearizedLaplace


def fitted(kind: str = "regression", prior: str = "g") -> tuple[nn.Module, torch.Tensor, LinearizedLaplace]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).eval()
    X = torch.randn(20, 2)
    y = X[:, :1] if kind == "regression" else (X[:, 0] > 0).long()
    la = LinearizedLaplace(model, kind, prior, parameters="no_biases")
    return model, X, la.fit((X, y), final_samples=5, em_steps=2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("prior", ["g", "isotropic", "layerwise"])
@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_a_loaded_posterior_is_the_same(tmp_path: Path, kind: str, prior: str) -> None:
    model, X, la = fitted(kind, prior)
    la.save(tmp_path / "model.matheron")
    again = mt.load(tmp_path / "model.matheron", model=model)
    torch.testing.assert_close(again.functional_samples(X), la.functional_samples(X), rtol=0, atol=0)
    assert again.report == la.report
    assert again.effective_dimension == la.effective_dimension
    torch.testing.assert_close(again.prior_precision, la.prior_precision, rtol=0, atol=0)
    if kind == "regression":
        assert again.noise == la.noise


def test_state_dict_goes_back() -> None:
    model, X, la = fitted()
    twin = LinearizedLaplace(model, "regression", "g", parameters="no_biases")
    twin.load_state_dict(la.state_dict())
    torch.testing.assert_close(twin(X), la(X), rtol=0, atol=0)


def test_another_model_is_refused(tmp_path: Path) -> None:
    model, _, la = fitted()
    la.save(tmp_path / "model.matheron")
    with pytest.raises(TypeError, match="model="):
        mt.load(tmp_path / "model.matheron")
    with pytest.raises(ValueError, match="other parameters"):
        mt.load(tmp_path / "model.matheron", model=nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.add_(1.0)
    with pytest.raises(ValueError, match="other weights"):
        mt.load(tmp_path / "model.matheron", model=model)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    model, _, la = fitted()
    path = tmp_path / "model.matheron"
    la.save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="damaged"):
        mt.load(path, model=model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["exact", "sgd"])
def test_an_interrupted_fit_goes_on(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    X, y = torch.randn(30, 2), torch.arange(30) % 2
    path = tmp_path / "fit.checkpoint"

    def fit(checkpoint: Path | None) -> LinearizedLaplace:
        descent = Descent(epochs=6.0, tolerance=0.9) if method == "sgd" else None
        return LinearizedLaplace(model, "classification").fit(
            (X, y), em_steps=3, num_samples=2, final_samples=3, method=method, descent=descent, batch_size=10,
            generator=torch.Generator().manual_seed(0), checkpoint=checkpoint,
        )  # fmt: skip

    whole = fit(None)
    # Cut off in the last stage, after the prior has been learnt.
    with monkeypatch.context() as patch:
        patch.setattr("matheron.linear.fitting.draw_regularizers", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(path)
    assert path.exists()
    resumed = fit(path)
    assert not path.exists()
    torch.testing.assert_close(resumed.prior_precision, whole.prior_precision, rtol=0, atol=0)
    torch.testing.assert_close(resumed.samples, whole.samples, rtol=0, atol=0)


def _interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["exact", "sgd"])
def test_a_checkpoint_of_another_network_is_refused(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    X, y = torch.randn(30, 2), torch.arange(30) % 2
    path = tmp_path / "fit.checkpoint"

    def fit() -> LinearizedLaplace:
        descent = Descent(epochs=6.0, tolerance=0.9) if method == "sgd" else None
        return LinearizedLaplace(model, "classification", "isotropic").fit(
            (X, y), em_steps=3, num_samples=2, final_samples=3, method=method, descent=descent, batch_size=10,
            generator=torch.Generator().manual_seed(0), checkpoint=path,
        )  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr("matheron.linear.fitting.draw_regularizers", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit()
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.add_(0.1)
    with pytest.raises(ValueError, match=r"of another solve: its (network|features)"):
        fit()
    with torch.no_grad():
        model[0].weight.copy_(before)
    fit()
    assert not path.exists()


def test_mistakes_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    model, _, la = fitted()
    path = tmp_path / "model.matheron"
    la.save(path)
    with pytest.raises(TypeError, match="prior is what the posterior was fitted with"):
        mt.load(path, model=model, prior="g")
    with pytest.raises(TypeError, match="forwards"):
        mt.load(path, model=model, forwards=None)


def test_noise_that_is_given_stays_given(tmp_path: Path) -> None:
    model, X, _ = fitted()
    la = LinearizedLaplace(model, mt.networks.Gaussian(0.2, learn=False))
    la.fit((X, X[:, :1]), em_steps=0, final_samples=2).save(tmp_path / "model.matheron")
    assert mt.load(tmp_path / "model.matheron", model=model).likelihood == mt.networks.Gaussian(0.2, learn=False)


class Shifted(mt.networks.Gaussian):
    """A likelihood of one's own with a noise."""


def test_a_likelihood_of_ones_own_with_noise_stays_what_it_is(tmp_path: Path) -> None:
    model, X, _ = fitted()
    la = LinearizedLaplace(model, Shifted(0.2)).fit((X, X[:, :1]), em_steps=1, final_samples=2, generator=0)
    la.save(tmp_path / "model.matheron")
    again = mt.load(tmp_path / "model.matheron", model=model, likelihood=Shifted())
    assert type(again.likelihood) is Shifted
    assert again.noise == la.noise


def test_another_likelihood_is_refused(tmp_path: Path) -> None:
    model, X, la = fitted("binary")
    la.save(tmp_path / "model.matheron")
    with pytest.raises(ValueError, match="the file is of likelihood='binary', got 'regression'"):
        mt.load(tmp_path / "model.matheron", model=model, likelihood="regression")
    again = mt.load(tmp_path / "model.matheron", model=model, likelihood="binary")
    torch.testing.assert_close(again(X), la(X), rtol=0, atol=0)
    with pytest.raises(ValueError, match="without noise but this posterior has Gaussian"):
        LinearizedLaplace(model, "regression", "g", parameters="no_biases").load_state_dict(la.state_dict())


def test_a_state_that_is_not_whole_is_refused() -> None:
    _, _, la = fitted()
    state = la.state_dict()
    with pytest.raises(ValueError, match="the state lacks samples"):
        la.load_state_dict({name: value for name, value in state.items() if name != "samples"})
    for name, value in (("samples", state["samples"][:, 1:]), ("mode", state["mode"][1:])):
        with pytest.raises(ValueError, match=f"{name} of the state has shape"):
            la.load_state_dict(state | {name: value})


def test_a_posterior_goes_onto_the_model_in_double_precision(tmp_path: Path) -> None:
    model, X, la = fitted()
    la.save(tmp_path / "model.matheron")
    again = mt.load(tmp_path / "model.matheron", model=copy.deepcopy(model).double())
    torch.testing.assert_close(again.functional_samples(X.double()).float(), la.functional_samples(X))
    assert again.log_evidence((X.double(), X[:, :1].double())).value == pytest.approx(
        la.log_evidence((X, X[:, :1])).value, rel=1e-4
    )


@pytest.mark.parametrize("prior", ["isotropic", "layerwise"])
def test_the_state_of_another_prior_is_refused(prior: str) -> None:
    model, _, la = fitted()
    twin = LinearizedLaplace(model, "regression", prior, parameters="no_biases")
    with pytest.raises(ValueError, match=f"of prior='g' but this posterior has '{prior}'"):
        twin.load_state_dict(la.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda la: pickle.loads(pickle.dumps(la))])
def test_a_copy_is_the_same_posterior_around_a_copy_of_the_model(copied: Callable[[object], LinearizedLaplace]) -> None:
    model, X, la = fitted()
    other = copied(la)
    torch.testing.assert_close(other.functional_samples(X), la.functional_samples(X), rtol=0.0, atol=0.0)
    with torch.no_grad():
        model[0].weight += 1.0
    other.functional_samples(X)
    with pytest.raises(RuntimeError, match="has changed"):
        copied(la)
