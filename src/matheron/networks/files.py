"""Posteriors of networks in files, to be loaded again onto the user's model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from matheron.archive import Archive, Kind
from matheron.linear import DiagonalPrior
from matheron.networks.likelihoods import NAMES, Gaussian
from matheron.networks.report import LaplaceReport

if TYPE_CHECKING:
    from matheron.networks.laplace import LinearizedLaplace

LAPLACE = Kind("laplace", 1)


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
    header = {
        "likelihood": names.get(type(posterior.likelihood)),
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
    header = archive.header
    try:
        likelihood = options.pop("likelihood", header["likelihood"])
        if likelihood is None:
            raise ValueError("the file is of a likelihood of your own; give it as likelihood=")
        names = set(header["parameters"])
        if not names <= {name for name, p in model.named_parameters() if p.requires_grad}:
            raise ValueError("model has other parameters than the one that was saved; give the same architecture")
        posterior = LinearizedLaplace(
            model, likelihood, header["prior"], parameters=lambda name: name in names,
            offset=header["offset"], evidence=header["evidence"], curvature=header["curvature"], **options,
        )  # fmt: skip
        shapes = [list(shape) for shape in posterior.tangent.shapes]
        if list(posterior.tangent.names) != header["parameters"] or shapes != header["shapes"]:
            raise ValueError("model has other parameters than the one that was saved; give the same architecture")
        restore(posterior, archive.tensors)
        posterior.history = header["history"]
        posterior.report = LaplaceReport(**header["report"]) if header["report"] else None
    except (KeyError, TypeError) as error:
        raise ValueError(f"the file is incomplete or was changed ({error!r}); write it again") from error
    return posterior


def restore(posterior: LinearizedLaplace, tensors: dict[str, Tensor]) -> None:
    """Put back what :func:`state` gave."""
    tangent = posterior.tangent
    missing = {"samples", "prior.precision", "weights", "dimension"} - set(tensors)
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    here = {name: value.to(tangent.device) for name, value in tensors.items()}
    if not torch.equal(here["weights"], tangent.weights):
        raise ValueError(
            "model has other weights than those the posterior was fitted to; load the trained weights into it first"
        )
    prior = DiagonalPrior(
        here["prior.precision"], num_weights=tangent.num_weights, groups=here.get("prior.groups"),
        scale=here.get("prior.scale"), dtype=tangent.dtype, device=tangent.device,
    )  # fmt: skip
    posterior.adopt(prior, here["samples"], here.get("mode"), float(here["dimension"]))
    if "noise" in here and isinstance(posterior.likelihood, Gaussian):
        posterior.likelihood = Gaussian(float(here["noise"]), posterior.likelihood.learn)
