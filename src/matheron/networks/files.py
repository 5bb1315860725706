"""Posteriors of networks in files, to be loaded again onto the user's model."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from matheron.archive import Archive, Kind
from matheron.linear import DiagonalPrior
from matheron.networks.likelihood import Likelihood
from matheron.networks.likelihoods import NAMES, Gaussian, likelihood_of
from matheron.networks.report import LaplaceReport

if TYPE_CHECKING:
    from matheron.networks.laplace import LinearizedLaplace

LAPLACE = Kind("laplace", 2)

FROM_FILE = ("prior", "parameters", "offset", "evidence", "curvature")
"""Options of a posterior that are in its file."""


def state(posterior: LinearizedLaplace) -> dict[str, Tensor]:
    """Everything learnt, as tensors by name."""
    prior = posterior.prior
    assert isinstance(prior, DiagonalPrior)
    tensors = {
        "samples": posterior.samples,
        "mode": posterior.mode,
        "prior.precision": prior.values,
        "prior.scale": prior.scale,
        "prior.groups": prior.groups,
        "weights": posterior.tangent.weights,
        "dimension": torch.tensor(posterior.effective_dimension, dtype=torch.float64),
    }
    if isinstance(posterior.likelihood, Gaussian):
        tensors["noise"] = torch.tensor(posterior.noise, dtype=torch.float64)
    return {name: value.clone() for name, value in tensors.items() if value is not None}


def save(posterior: LinearizedLaplace, path: Path | str) -> None:
    """See :meth:`LinearizedLaplace.save`."""
    names = {cls: name for name, cls in NAMES.items()}
    likelihood = posterior.likelihood
    header = {
        "likelihood": names.get(type(likelihood)),
        "learn_noise": likelihood.learn if isinstance(likelihood, Gaussian) else None,
        "prior": posterior.prior_name,
        "offset": posterior.offset,
        "evidence": posterior.evidence,
        "curvature": posterior.curvature,
        "parameters": list(posterior.tangent.names),
        "shapes": [list(shape) for shape in posterior.tangent.shapes],
        "history": posterior.history,
        "report": asdict(posterior.report) if posterior.report is not None else None,
    }
    Archive(LAPLACE, state(posterior), header).write(path)


def load_laplace(archive: Archive, model: nn.Module | None, **options: Any) -> LinearizedLaplace:
    """The posterior as it was saved, onto ``model``, whose weights must be those it was fitted to."""
    from matheron.networks.laplace import LinearizedLaplace

    if not isinstance(model, nn.Module):
        raise TypeError("the file holds the posterior of a network, not the network; give it as model=")
    for name in FROM_FILE:
        if name in options:
            raise TypeError(f"{name} is what the posterior was fitted with and comes from the file; leave it out")
    header = archive.header
    try:
        saved = {name: header[name] for name in ("prior", "offset", "evidence", "curvature")}
        names, shapes, history = header["parameters"], header["shapes"], header["history"]
        likelihood = _likelihood(header, options.pop("likelihood", None))
        report = LaplaceReport(**header["report"]) if header["report"] else None
    except (KeyError, TypeError) as error:
        raise _incomplete(error) from error
    if not set(names) <= {name for name, p in model.named_parameters() if p.requires_grad}:
        raise ValueError("model has other parameters than the one that was saved; give the same architecture")
    posterior = LinearizedLaplace(model, likelihood, parameters=lambda name: name in names, **saved, **options)
    found = [list(shape) for shape in posterior.tangent.shapes]
    if list(posterior.tangent.names) != names or found != shapes:
        raise ValueError("model has other parameters than the one that was saved; give the same architecture")
    restore(posterior, archive.tensors)
    posterior.history, posterior.report = history, report
    return posterior


def restore(posterior: LinearizedLaplace, tensors: dict[str, Tensor]) -> None:
    """Put back what :func:`state` gave."""
    tangent = posterior.tangent
    missing = {"samples", "prior.precision", "weights", "dimension"} - set(tensors)
    if missing:
        raise ValueError(f"the state lacks {', '.join(sorted(missing))}; give it as state_dict() or save() wrote it")
    kind = "g" if "prior.scale" in tensors else "layerwise" if "prior.groups" in tensors else "isotropic"
    if kind != posterior.prior_name:
        raise ValueError(
            f"the state is of prior={kind!r} but this posterior has {posterior.prior_name!r}; "
            f"build it with prior={kind!r}"
        )
    here = {name: value.to(tangent.device) for name, value in tensors.items()}
    if not torch.equal(here["weights"], tangent.weights):
        raise ValueError(
            "model has other weights than those the posterior was fitted to; load the trained weights into it first"
        )
    if ("noise" in here) != isinstance(posterior.likelihood, Gaussian):
        kept = "a regression's" if "noise" in here else "of a likelihood without noise"
        raise ValueError(
            f"the state is {kept} but this posterior has {type(posterior.likelihood).__name__}; build it with the same"
        )
    for name, shape in (("samples", (len(here["samples"]), tangent.num_weights)), ("mode", (tangent.num_weights,))):
        if name in here and here[name].shape != shape:
            raise ValueError(
                f"{name} of the state has shape {tuple(here[name].shape)}, expected {shape}; give it as state_dict() "
                "or save() wrote it"
            )
    prior = DiagonalPrior(
        here["prior.precision"], num_weights=tangent.num_weights, groups=here.get("prior.groups"),
        scale=here.get("prior.scale"), dtype=tangent.dtype, device=tangent.device,
    )  # fmt: skip
    # The model may have been cast since: the weights, compared above, have not changed by that.
    mode = here["mode"].to(tangent.dtype) if "mode" in here else None
    posterior.adopt(prior, here["samples"].to(tangent.dtype), mode, float(here["dimension"]))
    if isinstance(posterior.likelihood, Gaussian):
        posterior.likelihood = replace(posterior.likelihood, noise=float(here["noise"]))


def _likelihood(header: dict[str, Any], given: str | Likelihood | None) -> str | Likelihood:
    if header["likelihood"] is None:
        if given is None:
            raise ValueError("the file is of a likelihood of your own; give it as likelihood=")
        return given
    if given is not None:
        if not isinstance(likelihood_of(given), NAMES[header["likelihood"]]):
            raise ValueError(f"the file is of likelihood={header['likelihood']!r}, got {given!r}; leave it out")
        return given
    if NAMES[header["likelihood"]] is Gaussian:
        return Gaussian(learn=header["learn_noise"])
    return NAMES[header["likelihood"]]()


def _incomplete(error: Exception) -> ValueError:
    return ValueError(f"the file is incomplete or was changed ({error!r}); write it again")
