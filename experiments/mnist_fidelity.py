"""How far approximations are from the exact posterior of a tangent model: LeNet-style networks on MNIST.

Sixty-four posterior samples by stochastic descent, laplace-torch's KFAC, a diagonal and the network alone, each beside
the posterior with its whole covariance: symmetric KL of probit class probabilities and Wasserstein-2 distance of
logits, averaged over test images. All have the same layerwise precisions, from EM with the whole covariance. Then EM
for one precision, and the evidence against it at the mode where exact EM ends. Affine parameters of batch norm are
held for every method, since KFAC refuses them.

The diagonal is that of the exact curvature: laplace-torch computes the same numbers, one column of the curvature at a
time, and is given ``diagonal_seconds`` in a child process to show how far it gets. Modes are exact for every method,
so that EM differs by the effective dimension alone. A sampled ELBO knows no ``logdet``: its curve is shifted to meet
the exact one where it was sampled.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file
from torch import Tensor, nn

import matheron as mt
from experiments import laplace_torch, style
from experiments.claims import Claim, at_least, at_most, within
from experiments.full_covariance import FullCovariance, dimension_of, functional_covariance
from experiments.harness import Experiment, Progress, Record, Report
from experiments.lenet import LARGE, MEDIUM, MINI, NAMES, SMALL, TINY, mnist, num_weights, trained_lenet
from experiments.peer import GIB, Peer
from experiments.training import Images, Trained
from matheron.linear import DiagonalPrior
from matheron.networks import Categorical, Loading, NetworkData, TangentModel

METHODS = ("samples", "KFAC", "diagonal", "MAP")
EXACT, OURS, DIAGONAL = "exact", "samples", "diagonal"
MEASURES = {"kl": "symmetric KL", "wasserstein": "Wasserstein-2 distance of logits"}


@dataclass(frozen=True)
class Config:
    """Networks, sizes and seeds."""

    filters: tuple[tuple[int, ...], ...] = (TINY, MINI, SMALL)
    images: int = 3_000
    test_images: int = 2_000
    epochs: int = 30
    samples: int = 64
    layer_steps: int = 5
    em_samples: int = 16
    em_steps: int = 8
    start: float = 1.0
    grid: int = 41
    decades: float = 2.0
    diagonal_seconds: float = 600.0
    seeds: tuple[int, ...] = (0,)


def run(config: Config, progress: Progress) -> Report:
    """Every network with every seed."""
    table: list[Record] = []
    curves: dict[str, Any] = {}
    for filters, seed in itertools.product(config.filters, config.seeds):
        case = Case(config, filters, seed, progress)
        for part in case.parts():
            table += [{"network": case.name, "seed": seed, **row} for row in part["table"]]
            if seed == config.seeds[0]:
                curves[case.name] = curves.get(case.name, {}) | part["curves"]
    return Report(table, list(claims(config, table)), curves)


@dataclass(frozen=True)
class Case:
    """One network: distances, EM and evidence, each with the whole covariance at hand."""

    config: Config
    filters: tuple[int, ...]
    seed: int
    progress: Progress

    @property
    def name(self) -> str:
        """Of the network."""
        return NAMES[self.filters]

    def parts(self) -> Iterator[Record]:
        """In their order: the evidence is measured where EM ended."""
        yield self.once("fidelity", self.fidelity)
        ended = self.once("EM", self.expectation_maximization)
        yield ended
        yield self.once(
            "evidence", lambda: self.evidence(ended["curves"]["paths"][EXACT][-1], ended["curves"]["square"])
        )

    def once(self, part: str, compute: Callable[[], Record]) -> Record:
        """Measured, or read back."""
        return self.progress.once(f"{self.name}, seed {self.seed}, {part}", compute)

    @cached_property
    def images(self) -> tuple[Images, Images]:
        """Training and test images."""
        return mnist(self.config.images, self.config.test_images)

    @cached_property
    def network(self) -> Trained:
        """Trained, or from the cache."""
        config = self.config
        return trained_lenet(self.filters, config.images, config.epochs, self.seed, self.images[0], self.progress)

    @cached_property
    def tangent(self) -> TangentModel:
        """Of the network."""
        return TangentModel(self.network.model)

    @cached_property
    def full(self) -> FullCovariance:
        """The whole covariance."""
        self.progress.note(f"{self.name}: the whole covariance")
        return FullCovariance.of(NetworkData(self.tangent, Loading.of(self.images[0]), Categorical()))

    @cached_property
    def kron(self) -> dict[str, Any]:
        """laplace-torch's KFAC by the curvature it is made of."""
        model, data = self.network.model, self.images[0]
        return {which: laplace_torch.kron(model, *data, which, self.seed) for which in laplace_torch.CURVATURES}

    @cached_property
    def spectra(self) -> dict[str, Tensor]:
        """Eigenvalues of every curvature."""
        found = {EXACT: torch.linalg.eigvalsh(self.full.M).clamp(min=0.0)}
        found |= {which: laplace_torch.spectrum(fitted) for which, fitted in self.kron.items()}
        return found | {DIAGONAL: self.full.M.diagonal()}

    def fidelity(self) -> Record:
        """Distances under the layerwise prior that the whole covariance learns."""
        config, tangent, (data, test) = self.config, self.tangent, self.images
        ones = torch.ones(len(tangent.names), dtype=torch.float64)
        start = DiagonalPrior(config.start * ones, num_weights=tangent.num_weights, groups=tangent.groups)
        layers = self.full.layerwise(start, config.layer_steps)
        ours = sampled(self.network.model, data, "layerwise", layers[-1].values, config.samples, self.seed)
        distances = fidelity(self.full, layers[-1], tangent, test, ours, self.kron["KFAC GGN"])
        table: list[Record] = [
            {"weights": tangent.num_weights, **state_of(self.network.model, test), "training": self.network.seconds}
        ]
        table += [{"method": method, **found} for method, found in distances.items()]
        table.append(own_diagonal(config, self.filters, self.network.model, self.full.M.diagonal()))
        precision = [prior.values for prior in layers]
        return {"table": table, "curves": {"layers": {"names": list(tangent.names), "precision": precision}}}

    def expectation_maximization(self) -> Record:
        """One precision by every effective dimension."""
        config, paths, modes = self.config, dict[str, list[float]](), dict[str, Tensor]()
        for method in (EXACT, "KFAC GGN", DIAGONAL):
            dimension = dimension_of(self.spectra[method])
            paths[method], modes[method] = self.full.single(dimension, config.start, config.em_steps)
        learned = learnt(self.network.model, self.images[0], config, self.seed)
        paths[OURS] = [step["precision"][0] for step in learned.history] + learned.prior_precision.tolist()
        table = [
            {"em": method, "ends_at": path[-1], "over_exact": path[-1] / paths[EXACT][-1]}
            for method, path in paths.items()
        ]
        return {"table": table, "curves": {"paths": paths, "square": float(modes[EXACT].square().sum())}}

    def evidence(self, at: float, square: float) -> Record:
        """Against the precision, at the mode where exact EM ended: where it ended, and the mode's squared norm."""
        config, weights = self.config, self.tangent.num_weights
        optima = {method: optimum(spectrum, square) for method, spectrum in self.spectra.items()}
        posterior = sampled(self.network.model, self.images[0], "isotropic", at, config.em_samples, self.seed)
        spread = square + float(posterior.samples.double().square().sum(1).mean())
        optima[OURS] = weights / spread
        grid = torch.logspace(-config.decades, config.decades, config.grid, dtype=torch.float64) * at
        found = {method: bound(spectrum, square, grid) for method, spectrum in self.spectra.items()}
        elbo = 0.5 * (weights * grid.log() - grid * spread)
        middle = torch.tensor([at], dtype=torch.float64)
        shift = bound(self.spectra[EXACT], square, middle) - 0.5 * (weights * middle.log() - middle * spread)
        found[OURS] = elbo + shift
        table = [
            {"evidence": method, "optimum": best, "over_exact": best / optima[EXACT]} for method, best in optima.items()
        ]
        return {"table": table, "curves": {"grid": grid, "evidence": found, "optima": optima}}


def state_of(model: nn.Module, test: Images) -> Record:
    """Of the network by itself."""
    with torch.no_grad():
        outputs = model(test[0])
    return {
        "test_error": float((outputs.argmax(1) != test[1]).double().mean()),
        "test_nll": float(nn.functional.cross_entropy(outputs, test[1])),
    }


def sampled(
    model: nn.Module, data: Images, prior: str, precision: float | Tensor, num: int, seed: int
) -> mt.LinearizedLaplace:
    """Samples by descent under a given prior."""
    posterior = mt.LinearizedLaplace(model, "classification", prior, prior_precision=precision)
    generator = torch.Generator().manual_seed(seed)
    return posterior.fit(data, em_steps=0, final_samples=num, method="sgd", generator=generator)


def learnt(model: nn.Module, data: Images, config: Config, seed: int) -> mt.LinearizedLaplace:
    """One precision by EM with a few samples by descent."""
    posterior = mt.LinearizedLaplace(model, "classification", "isotropic", prior_precision=config.start)
    return posterior.fit(
        data, em_steps=config.em_steps, num_samples=config.em_samples, final_samples=1, method="sgd",
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def fidelity(
    full: FullCovariance,
    prior: DiagonalPrior,
    tangent: TangentModel,
    test: Images,
    ours: mt.LinearizedLaplace,
    kron: Any,
) -> dict[str, dict[str, float]]:
    """Symmetric KL and Wasserstein-2 distance of every method, and its NLL, averaged over the test images."""
    factor = full.factor(prior)
    diagonal = 1.0 / (full.M.diagonal() + prior.precision(torch.ones(len(factor), 1))[:, 0].double())
    kron.prior_precision = prior.values.float()
    totals = {method: dict.fromkeys((*MEASURES, "probit_nll"), 0.0) for method in (EXACT, *METHODS)}
    for x, y in laplace_torch.batches(*test, size=100):
        J, mean = tangent.jacobian(x).reshape(len(x), -1, tangent.num_weights), tangent(x).double()
        functions = (J.flatten(0, 1) @ ours.samples.mT).reshape(*J.shape[:2], -1).double()
        exact = functional_covariance(J, factor)
        covariances = {
            EXACT: exact,
            "samples": functions @ functions.mT / functions.shape[2],
            "KFAC": kron.functional_variance(J).double(),
            "diagonal": (J.double() * diagonal) @ J.double().mT,
            "MAP": torch.zeros_like(exact),
        }
        for method, covariance in covariances.items():
            log_p, sums = probit(mean, covariance), totals[method]
            sums["kl"] += float(symmetric_kl(probit(mean, exact), log_p).sum())
            sums["wasserstein"] += float(wasserstein(exact, covariance).sum())
            sums["probit_nll"] += float(nn.functional.nll_loss(log_p, y, reduction="sum"))
    return {method: {key: total / len(test[0]) for key, total in sums.items()} for method, sums in totals.items()}


def probit(mean: Tensor, covariance: Tensor) -> Tensor:
    """Logarithms of ``softmax(μ / √(1 + π v / 8))``."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    return (mean / (1.0 + math.pi / 8.0 * variance).sqrt()).log_softmax(-1)


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``½ KL(p, q) + ½ KL(q, p)``."""
    return 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)


def wasserstein(first: Tensor, second: Tensor) -> Tensor:
    """``√tr(S + T − 2 (S^½ T S^½)^½)``, of Gaussians with the same mean."""
    values, vectors = torch.linalg.eigh(first)
    half = vectors * values.clamp(min=0.0).sqrt()[..., None, :] @ vectors.mT
    cross = torch.linalg.eigvalsh(half @ second @ half).clamp(min=0.0).sqrt().sum(-1)
    traces = (first + second).diagonal(dim1=-2, dim2=-1).sum(-1)
    return (traces - 2.0 * cross).clamp(min=0.0).sqrt()


def bound(spectrum: Tensor, square: float, a: Tensor) -> Tensor:
    """``𝓜(w⋆, a) = −½ a‖w⋆‖² − ½ Σ log(1 + λ/a)``, up to a constant."""
    return -0.5 * (a * square + torch.log1p(spectrum[:, None] / a).sum(0))


def optimum(spectrum: Tensor, square: float) -> float:
    """The ``a`` where ``γ(a) = a‖w⋆‖²``: the left side falls and the right one grows."""
    dimension, low, high = dimension_of(spectrum), -40.0, 40.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if dimension(math.exp(middle)) > math.exp(middle) * square else (low, middle)
    return math.exp(0.5 * (low + high))


def own_diagonal(config: Config, filters: tuple[int, ...], model: nn.Module, diagonal: Tensor) -> Record:
    """laplace-torch's diagonal in a child, if it ends in time, beside ours."""
    with TemporaryDirectory() as folder:
        state = Path(folder) / "network.safetensors"
        save_file(model.state_dict(), state)
        peer = Peer(
            "experiments.laplace_torch:diagonal",
            {"filters": filters, "state": str(state), "images": config.images},
            memory=16 * GIB,
            timeout=config.diagonal_seconds,
        )
        seconds = peer.run()
        peer.close()
    error = math.nan
    if peer.runs:
        theirs = torch.tensor(peer.runs[0]["diagonal"], dtype=torch.float64)
        error = float((theirs - diagonal).norm() / diagonal.norm())
    return {"laplace_torch_diagonal": peer.ended or "ended", "seconds": seconds, "from_exact_diagonal": error}


def claims(config: Config, table: list[Record]) -> Iterator[Claim]:
    """Samples are nearest; sampled EM ends where exact EM does; KFAC prefers too large a precision, the ELBO none."""
    for filters in config.filters:
        name = NAMES[filters]
        rows = [row for row in table if row["network"] == name]

        def mean(kind: str, method: str, value: str, rows: list[Record] = rows) -> float:
            return statistics.fmean(row[value] for row in rows if row.get(kind) == method)

        for measure, label in MEASURES.items():
            for rival in METHODS[1:]:
                ratio = mean("method", OURS, measure) / mean("method", rival, measure)
                yield at_most(f"{name}: {label} from exact, samples over {rival}", measured=ratio, limit=1.0)
        yield within(
            f"{name}: precision of EM, samples over exact",
            measured=mean("em", OURS, "over_exact"), target=1.0, tolerance=0.1, published="the same value",
        )  # fmt: skip
        yield at_least(
            f"{name}: optimum of the evidence, KFAC over exact",
            measured=mean("evidence", "KFAC GGN", "over_exact"), limit=1.0, published="above",
        )  # fmt: skip
        ratio = mean("evidence", OURS, "over_exact")
        yield at_most(
            f"{name}: optimum of the sampled ELBO over the evidence's, or its inverse",
            measured=max(ratio, 1.0 / ratio), limit=1.5, published="close to no bias",
        )  # fmt: skip


COLORS = {
    "exact": style.INK,
    "samples": style.BLUE,
    "KFAC": style.ORANGE,
    "KFAC GGN": style.ORANGE,
    "KFAC Fisher, one sample": style.BROWN,
    "KFAC empirical Fisher": style.GREEN,
    "diagonal": style.RED,
    "MAP": style.GRAY,
}

SHORT = {
    "samples": "sampled ELBO",
    "KFAC Fisher, one sample": "KFAC Fisher",
    "KFAC empirical Fisher": "KFAC emp. Fisher",
}


def draw(record: Record) -> Figure:
    """Distances for every network; EM and evidence, a row for each."""
    names = list(record["curves"])
    figure = Figure(figsize=(15.0, 3.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), 4, squeeze=False)
    for name, (kl, distance, em, evidence) in zip(names, axes, strict=True):
        rows = [row for row in record["table"] if row["network"] == name]
        for ax, (key, label) in zip((kl, distance), MEASURES.items(), strict=True):
            for place, method in enumerate(METHODS):
                values = [row[key] for row in rows if row.get("method") == method]
                ax.scatter([place], [statistics.fmean(values)], s=90, color=COLORS[method], zorder=3)
                ax.scatter([place] * len(values), values, s=8, color=style.INK, zorder=4)
            ax.set_xticks(range(len(METHODS)), METHODS)
            ax.set_xlim(-0.5, len(METHODS) - 0.5)
            ax.set(
                yscale="log", title=f"{name}: {label}" if key == "kl" else label, ylabel="from exact, mean over images"
            )
        curves = record["curves"][name]
        for method, path in curves["paths"].items():
            dash = "--" if method == OURS else "-"
            em.plot(range(len(path)), path, dash, marker="o", ms=3, color=COLORS[method], label=method)
        em.set(yscale="log", title="EM for one precision", xlabel="step", ylabel="prior precision")
        em.legend()
        best = max(curves["evidence"]["exact"])
        for method, values in curves["evidence"].items():
            label = SHORT.get(method, method)
            evidence.plot(curves["grid"], [v - best for v in values], color=COLORS[method], label=label)
            at = min(max(curves["optima"][method], curves["grid"][0]), curves["grid"][-1])
            nearest = min(range(len(values)), key=lambda i, at=at: abs(math.log(curves["grid"][i] / at)))
            evidence.plot([at], [values[nearest] - best], "o", color=COLORS[method])
        top = max(max(values) for values in curves["evidence"].values()) - best
        low = min(values[0] for values in curves["evidence"].values()) - best
        evidence.set(
            xscale="log", title="Evidence against the precision", xlabel="prior precision", ylabel="nats",
            ylim=(low, top + 0.08 * (top - low)),
        )  # fmt: skip
        evidence.legend(fontsize=6.5, loc="lower center", handlelength=1.2, borderaxespad=0.1)
    return figure


FULL = Config()

EXPERIMENT = Experiment(
    id="mnist-fidelity",
    title="Approximations beside the exact posterior of a network: predictions, EM, evidence on MNIST",
    reproduces=(
        "Figure 6.6 (similarity to exact predictions, EM for one precision; layerwise EM for the exact method only)",
        "Figure 6.7 (evidence approximations against the precision)",
    ),
    budgets={
        "quick": replace(FULL, filters=(TINY,), test_images=500, em_steps=6, diagonal_seconds=30.0),
        "full": FULL,
        "thesis": replace(
            FULL,
            filters=(SMALL, MEDIUM, LARGE),
            images=60_000,
            test_images=10_000,
            epochs=90,
            em_steps=15,
            seeds=(0, 1, 2, 3, 4),
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: ("mnist",),
    sizes=lambda config: {"weights": [num_weights(filters) for filters in config.filters], "images": config.images},
)
