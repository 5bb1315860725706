"""Error bars of a walnut's slice from few views: the g-prior, TV-PredCP and Monte Carlo dropout side by side.

The middle row of a real cone-beam scan is nearly a fan beam. Some of its views, with the detector binned, are
reconstructed by a deep image prior; what conjugate gradients make of all 241 views at full detector is the reference,
in units in which its brightest parts are one. The weight of total variation and the steps of the network were chosen on
another row of the detector. Each method has its own mean and as many samples as the others, scored by marginals and by
10 × 10 patches with halved covariances, as published. There the hyperparameters of TV-PredCP took 105 times as long as
those of the g-prior. Here both are timed by conjugate gradients with the same preconditioner, until no logarithm moves
by more than 0.05 in a step. Where the evidence of TV-PredCP can be factorized, it is learnt so, and its time by
conjugate gradients is that of one gradient times the gradients that the factorized ascent took, which are fewer than
sampled ones would have to be.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d

from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.pictures import grays
from experiments.walnut_maps import DROPOUT, LEVELS, METHODS, PLAIN, TV, G, draw
from matheron.data import load
from matheron.data.scans import ConeScan
from matheron.evaluation import rank_correlation
from matheron.linear import fit_posterior
from matheron.networks import JacobianOperator
from matheron.networks.priors import starting_prior
from matheron.tomography import (
    DeepImagePrior,
    FanBeam,
    ImagePosterior,
    LinearizedDIP,
    MonteCarloDropout,
    TypeTwoMAP,
    UNet,
    cgls,
    filtered_back_projection,
)
from matheron.tomography.inference import ImageModel

MOVED = 0.05


@dataclass(frozen=True)
class Config:
    """Sizes; TV-PredCP is learnt for the first number of views only, as in the thesis."""

    size: int = 256
    views: tuple[int, ...] = (60, 120)
    binning: int = 4
    scales: int = 4
    channels: int = 16
    steps: int = 2000
    tv: float = 1e-3
    em_steps: int = 5
    em_samples: tuple[int, ...] = (2, 16)
    samples: int = 256
    method: str = "exact"
    ascent_steps: int = 200
    timed_gradients: int = 4
    row: int = 128
    iterations: int = 15
    seed: int = 0


class Slice:
    """One row of the scan through some of its views, and the network fitted to them."""

    def __init__(self, walnut: ConeScan, views: int, config: Config) -> None:
        self.config, self.walnut = config, walnut
        row, whole = walnut.sinogram[:, config.row].flip(-1), self.fan(slice(None), 1)
        image = whole.image(cgls(whole.operator(), whole.flatten(row), iterations=config.iterations).image)
        unit = float(image.flatten().quantile(0.995))
        chosen = (torch.arange(views) * len(row) / views).round().long()
        self.reference, self.scan = image / unit, self.fan(chosen, config.binning)
        self.y = self.scan.flatten(avg_pool1d(row[chosen][None], config.binning)[0]) / unit
        self.A = self.scan.operator()
        self.start = self.scan.image(filtered_back_projection(self.scan, self.y))

    def fan(self, views: Any, binning: int) -> FanBeam:
        """Detectors count against the columns of the file."""
        walnut, columns = self.walnut, self.walnut.sinogram.shape[2]
        return FanBeam(
            self.config.size, walnut.angles[views], columns // binning,
            pixel_spacing=columns * walnut.column_pitch / walnut.magnification / self.config.size,
            detector_spacing=binning * walnut.column_pitch, source_to_axis=walnut.source_to_axis,
            source_to_detector=walnut.source_to_detector,
        )  # fmt: skip

    def generator(self) -> torch.Generator:
        """The same for every method."""
        return torch.Generator().manual_seed(self.config.seed)

    def network(self) -> UNet:
        """Fresh weights."""
        return UNet(scales=self.config.scales, channels=self.config.channels, generator=self.generator())

    @cached_property
    def dip(self) -> DeepImagePrior:
        """Fitted when first needed."""
        prior = DeepImagePrior(self.A, self.network(), tv=self.config.tv, input=self.start)
        return prior.fit(self.y, steps=self.config.steps, generator=self.generator())


def run(config: Config, progress: Progress) -> Report:
    """Every number of views, every method; of a run that goes on those views that are complete."""
    warnings.simplefilter("ignore")
    walnut, table, curves = load("walnut"), [], {}
    for place, views in enumerate(config.views):
        names = METHODS if place == 0 else (G, DROPOUT)
        parts = [f"{views}, {name}" for name in names] + (["em"] if place == 0 else [])
        if any([progress.lacks(part) for part in parts]):
            continue
        here, found = Slice(walnut, views, config), {}
        for name in names:
            progress.note(f"{views} views, {name}")
            found[name] = progress.once(f"{views}, {name}", lambda n=name, h=here: measured(n, h))
        if place == 0:
            curves["em"] = progress.once("em", lambda h=here: em_traces(h))
        if place == 0 and not progress.lacks("times"):
            times = progress.once("times", lambda h=here, f=found: learning_times(h, f[G], f[TV]))
            table += [{"views": views, "method": name, "cg_seconds": seconds} for name, seconds in times.items()]
        table += [{"views": views, "method": name, **part["scores"]} for name, part in found.items()]
        curves[str(views)] = {
            "reference": grays(here.reference, 1.0), "filtered back-projection": grays(here.start, 1.0),
            "methods": {name: part["curves"] for name, part in found.items()},
        }  # fmt: skip
    return Report(table, list(claims(table, curves, config)), curves)


def measured(name: str, here: Slice) -> Record:
    """One method: what it says, how well, and how long it took."""
    config, began = here.config, time.perf_counter()
    post: ImagePosterior
    history: list[Record] = []
    learning = None
    if name == DROPOUT:
        post = MonteCarloDropout(here.A, here.network(), tv=config.tv, input=here.start)
        post.fit(here.y, steps=config.steps, final_samples=config.samples, generator=here.generator())
    else:
        _ = here.dip
        began = time.perf_counter()
        post = fitted(name, here, config.method, config.samples, config.ascent_steps)
        history = post.history
        learning = seconds_until_still(name, history)
    error, std = (post.mean - here.reference).abs(), post.std
    top, top_std = (float(v.flatten().quantile(0.99)) for v in (error, std))
    scores = {
        "psnr": -10.0 * math.log10(float(error.square().mean())),
        "ll": post.log_prob(here.reference),
        "ll_patches": post.log_prob(here.reference, 10),
        "rank_correlation": rank_correlation(std, error),
        "mean_std": float(std.mean()),
        "mean_error": float(error.mean()),
        "coverage_90": post.coverage(here.reference, 0.9),
        "noise": post.noise_precision**-0.5,
        "gradients": len(history) if name in (TV, PLAIN) else None,
        "learning_seconds": learning,
        "seconds": time.perf_counter() - began,
    }
    shown = {
        "mean": grays(post.mean, 1.0),
        "error": grays(error, top),
        "std": grays(std, top_std),
        "tops": {"error": top, "std": top_std},
        "coverage": [post.coverage(here.reference, level) for level in LEVELS],
        "errors": torch.histc(error, 40, 0.0, 0.6).tolist(),
        "stds": torch.histc(std, 40, 0.0, 0.6).tolist(),
    }
    return {"scores": scores, "curves": shown}


def fitted(name: str, here: Slice, method: str, samples: int, gradients: int) -> LinearizedDIP:
    """The hyperparameters by 16 samples, or by as many probes, then images."""
    config, ascent = here.config, None
    if name in (TV, PLAIN):
        ascent = TypeTwoMAP(steps=gradients, probes=config.em_samples[-1], residual=1e-4)
    post = LinearizedDIP(here.dip, "g" if name == G else "tv", predcp=None if name == G else name == TV)
    return post.fit(
        here.y, em_steps=config.em_steps, num_samples=config.em_samples[-1], final_samples=samples, method=method,
        ascent=ascent, generator=here.generator(),
    )  # fmt: skip


def seconds_until_still(name: str, history: Sequence[Record]) -> float:
    """Until no logarithm of a hyperparameter has moved by more than ``MOVED`` in a step."""

    def logs(record: Record) -> Tensor:
        return torch.tensor(record["precision"] + record["lengthscales"] + [record["noise_precision"]]).log()

    for before, after in itertools.pairwise(history):
        still = before["moved"] if name == G else float((logs(after) - logs(before)).abs().max())
        if still <= MOVED:
            return before["seconds"]
    return history[-1]["seconds"]


def learning_times(here: Slice, g: Record, tv: Record) -> Record:
    """Seconds of learning by conjugate gradients with one preconditioner; see above where it is too long to run out."""
    config = here.config
    if config.method == "cg":
        return {name: part["scores"]["learning_seconds"] for name, part in ((G, g), (TV, tv))}
    one = seconds_until_still(G, fitted(G, here, "cg", 2, 1).history)
    history = fitted(TV, here, "cg", 2, config.timed_gradients).history
    return {G: one, TV: history[-1]["seconds"] / len(history) * tv["scores"]["gradients"]}


def em_traces(here: Slice) -> Record:
    """Precision, effective dimension and marginal log-likelihood over EM steps, with fresh samples at each."""
    config, mean, tangent = here.config, here.dip.image, here.dip.tangent()
    Phi = JacobianOperator(tangent, here.dip.input, rows=mean.numel())
    predicted = here.A @ mean.flatten()
    targets, misfit = here.y - predicted + here.A @ (Phi @ tangent.weights), (here.y - predicted).square().mean()
    model = ImageModel.of(here.A @ Phi, targets, 1.0 / float(misfit), config.method)
    traces: Record = {}
    for number in config.em_samples:
        source, data = here.generator(), model.data
        prior: Any = starting_prior("g", tangent, data, None, 128, source)[0]
        rows = []
        for _ in range(config.em_steps + 1):
            found = fit_posterior(
                data, prior, model.step, em_steps=1, num_samples=number, final_samples=64, learn_noise=True,
                generator=source,
            )  # fmt: skip
            post = ImagePosterior()
            post.adopt(mean, (Phi @ found.final.samples.to(Phi.dtype).mT).mT, found.data.noise_precision)
            [record] = found.history
            dimension = record["effective_dimension"]["function"]
            rows.append([record["precision"][0], dimension, post.log_prob(here.reference)])
            prior, data = found.prior, found.data
        traces[str(number)] = rows
    return traces


def claims(table: Sequence[Record], curves: Record, config: Config) -> Iterator[Claim]:
    """What was published, at the first number of views; thresholds stood here before the first run."""
    first = config.views[0]
    if str(first) not in curves:
        return
    row = {r["method"]: r for r in table if r["views"] == first and "ll" in r}
    times = {r["method"]: r["cg_seconds"] for r in table if "cg_seconds" in r}
    for key, label, published in (("ll", "marginal", (0.127, 2.186)), ("ll_patches", "10 × 10", (0.268, 0.127))):
        for (better, worse), number in zip(((G, TV), (TV, DROPOUT)), published, strict=True):
            yield at_least(
                f"{label} log-likelihood, {better} less {worse}", measured=row[better][key] - row[worse][key],
                limit=0.0, published=number,
            )  # fmt: skip
    if times:
        yield at_least(
            "learning by conjugate gradients, seconds of TV-PredCP over those of the g-prior",
            measured=times[TV] / times[G], limit=10.0, published=105,
        )  # fmt: skip
    for name in (G, TV):
        yield at_least(
            f"rank correlation of deviation and error, {name}", measured=row[name]["rank_correlation"], limit=0.3,
            published="maps align",
        )  # fmt: skip
        yield at_least(
            f"the same less that of {DROPOUT}",
            measured=row[name]["rank_correlation"] - row[DROPOUT]["rank_correlation"], limit=0.0,
        )  # fmt: skip
    gaps = {
        name: sum(abs(c - level) for c, level in zip(part["coverage"], LEVELS, strict=True)) / len(LEVELS)
        for name, part in curves[str(first)]["methods"].items()
    }
    yield at_most(
        "mean distance of coverage from its level, g-prior less TV-PredCP", measured=gaps[G] - gaps[TV], limit=0.0,
        published="much better calibrated",
    )  # fmt: skip
    yield at_most(
        "coverage of 90 % intervals, MC dropout", measured=row[DROPOUT]["coverage_90"], limit=0.9,
        published="overconfident",
    )  # fmt: skip
    few, many = (curves["em"][str(number)] for number in (config.em_samples[0], config.em_samples[-1]))
    yield at_most(
        f"log precision by {config.em_samples[0]} samples from that by {config.em_samples[-1]}, last EM step",
        measured=abs(math.log(few[-1][0] / many[-1][0])), limit=0.3, published="2 suffice",
    )  # fmt: skip
    yield at_most(
        "log precision moved in the last EM step", measured=abs(math.log(many[-1][0] / many[-2][0])), limit=0.05,
        published="converged in 4 steps",
    )  # fmt: skip


FULL = Config()

EXPERIMENT: Experiment[Any] = Experiment(
    id="walnut-2d",
    title="A walnut's slice from few views: g-prior, TV-PredCP and Monte Carlo dropout",
    reproduces=(
        "Table 7.1 (log-likelihoods and times)",
        "Figures 7.1, 7.7 and 7.8 (errors and deviations), 7.5 and 7.6 (EM traces), 7.9 (coverage), 7.10 and 7.11"
        " (histograms), on another walnut",
    ),
    budgets={
        "quick": replace(
            FULL, size=96, views=(30,), scales=3, steps=600, timed_gradients=2,
        ),
        "full": FULL,
        "thesis": replace(
            FULL, size=501, binning=2, scales=5, channels=128, samples=1024, steps=10_000, method="cg",
            ascent_steps=2000,
        ),
    },
    run=run,
    draw=draw,
    data=lambda config: ("walnut",),
    sizes=lambda config: {
        "pixels": config.size**2,
        "measurements": [views * (256 // config.binning) for views in config.views],
        "weights": sum(p.numel() for p in UNet(scales=config.scales, channels=config.channels).parameters()),
    },
)  # fmt: skip
