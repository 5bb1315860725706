"""Loading what was saved, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from matheron.archive import read
from matheron.gp.files import POSTERIOR, load_posterior
from matheron.gp.posterior import Posterior
from matheron.networks.files import LAPLACE, load_laplace
from matheron.networks.laplace import LinearizedLaplace


def load(path: Path | str, model: nn.Module | None = None, **options: Any) -> Any:
    """What was saved at ``path``; no code in it is run.

    The posterior of a network is loaded onto ``model``, the network with its trained weights; ``options`` are those of
    :class:`LinearizedLaplace`, such as ``forward=``.

    >>> import tempfile, torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 20)[:, None]
    >>> posterior = mt.GaussianProcess(mt.kernels.RBF(), 0.1).condition(X, X[:, 0], num_samples=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posterior.save(f"{folder}/model.matheron")
    ...     again = mt.load(f"{folder}/model.matheron")
    >>> torch.equal(again.sample(X), posterior.sample(X))
    True
    """
    archive = read(path, POSTERIOR, LAPLACE, what="a saved posterior")
    found: Posterior | LinearizedLaplace
    if archive.kind == LAPLACE:
        found = load_laplace(archive, model, **options)
    else:
        if model is not None or options:
            raise TypeError("the file holds a Gaussian process, which takes no model=; leave it out")
        found = load_posterior(archive)
    return found
