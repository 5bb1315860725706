"""Characters through a scanner: what linearized deep image priors look like, and where their evidence is taken.

Images of KMNIST are scanned from 20 angles with 5 % noise and reconstructed by a U-net of 78 thousand weights, whose
tangent model has error bars. One precision, or one for each block of the network, is learnt at the tangent model's
optimum or at the network's own weights. Then the prior of smooth filters: draws of it beside draws of total variation
itself, pixel by pixel from its conditional densities; the expected total variation of each block against its
lengthscale, in closed form and by Monte Carlo; and the lengthscales and variances that are learnt with TV-PredCP and
without. The network's settings were chosen on another image.
"""

from __future__ import annotations

import itertools
import math
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.harness import Experiment, Progress, Record, Report
from experiments.pictures import grays, pixels
from experiments.tv_gibbs import tv_sample
from matheron.data import load
from matheron.linear import FilterPrior
from matheron.networks import JacobianOperator
from matheron.tomography import (
    DeepImagePrior,
    LinearizedDIP,
    ParallelBeam,
    PredCP,
    UNet,
    filtered_back_projection,
    sampled_variation,
)

SIDE = 28
PRIORS = {"isotropic": "single", "blockwise": "by block"}
EVIDENCES = {"tangent": "at the optimum", "network": "at the weights"}
PUBLISHED = {"isotropic": 0.629, "blockwise": 0.537}
"""NLL at the weights less that at the optimum."""

PREDCP, PLAIN = "with PredCP", "without PredCP"


@dataclass(frozen=True)
class Config:
    """The appendix' sizes; the prior of smooth filters is learnt for the first ``filter_images``."""

    images: int = 10
    filter_images: int = 10
    angles: int = 20
    detectors: int = 41
    noise: float = 0.05
    scales: int = 3
    channels: int = 32
    steps: int = 500
    tv: float = 1e-3
    em_steps: int = 8
    em_samples: int = 16
    samples: int = 1024
    draws: int = 10_000
    sweeps: int = 4000
    seed: int = 0


class Character:
    """One image, its scan and the network fitted to it."""

    def __init__(self, index: int, config: Config) -> None:
        self.config, self.index = config, index
        image = load("kmnist_subset").test_images[index, 0].float()
        self.image = image / image.max()
        angles = torch.arange(config.angles) * math.pi / config.angles
        scan = ParallelBeam(SIDE, angles, config.detectors)
        self.A = scan.operator()
        clean, g = self.A @ self.image.flatten(), self.generator()
        self.y = clean + config.noise * clean.abs().mean() * torch.randn(len(clean), generator=g)
        start = scan.image(filtered_back_projection(scan, self.y))
        network = UNet(scales=config.scales, channels=config.channels, generator=g)
        self.dip = DeepImagePrior(self.A, network, tv=config.tv, input=start)
        self.dip.fit(self.y, steps=config.steps, generator=g)

    def generator(self) -> torch.Generator:
        """Of the image."""
        return torch.Generator().manual_seed(1000 * self.config.seed + self.index)

    def posterior(self, prior: str, **options: Any) -> LinearizedDIP:
        """Learnt through the measurements, which are few."""
        config, post = self.config, LinearizedDIP(self.dip, prior, **options)
        return post.fit(
            self.y, em_steps=config.em_steps, num_samples=config.em_samples, final_samples=config.samples,
            method="exact", generator=self.generator(),
        )  # fmt: skip


def run(config: Config, progress: Progress) -> Report:
    """Every image, then the draw of total variation itself."""
    warnings.simplefilter("ignore")
    table: list[Record] = []
    parts = []
    for index in progress(range(max(config.images, config.filter_images)), "characters"):
        found = progress.once(f"image {index}", lambda i=index: one_image(i, config))
        table += found["table"]
        parts += [found["filters"]] if found["filters"] else []
    drawn = progress.once("total variation", lambda: total_variation_draw(config))
    curves = {"filters": parts, "total variation": drawn}
    return Report(table, list(claims(table, parts, config)), curves)


def one_image(index: int, config: Config) -> Record:
    """Scores of one reconstruction under every prior and evidence; and its smooth filters, for the first images."""
    character, table = Character(index, config), []
    psnr = -10.0 * math.log10(float((character.dip.image - character.image).square().mean()))
    learnt = None
    for prior, evidence in itertools.product(PRIORS, EVIDENCES) if index < config.images else ():
        post = character.posterior(prior, evidence=evidence)
        learnt = post if (prior, evidence) == ("isotropic", "tangent") else learnt
        row = {"image": index, "psnr": psnr, "prior": PRIORS[prior], "evidence": EVIDENCES[evidence]}
        table.append(row | scores(post, character))
    filters = None
    if index < config.filter_images:
        filters = smooth_filters(character, learnt or character.posterior("isotropic"), table, psnr)
    return {"table": table, "filters": filters}


def scores(post: LinearizedDIP, character: Character) -> Record:
    """Of the image that was scanned."""
    return {
        "nll": -post.log_prob(character.image),
        "nll_patches": -post.log_prob(character.image, 10),
        "coverage_90": post.coverage(character.image, 0.9),
        "mean_std": float(post.std.mean()),
        "em_converged": None if post.report is None else post.report.em_converged,
    }


def smooth_filters(character: Character, plain: LinearizedDIP, table: list[Record], psnr: float) -> Record:
    """Traces with and without PredCP, draws of every prior, and lengthscales against expected total variation."""
    dip, config, g = character.dip, character.config, character.generator()
    tangent = dip.tangent()
    Phi = JacobianOperator(tangent, dip.input, rows=SIDE**2)
    traces, draws, variations = {}, {"isotropic": drawn(plain, Phi, g)}, {}
    for name in (PREDCP, PLAIN):
        post = character.posterior("tv", predcp=name == PREDCP)
        row = {"image": character.index, "psnr": psnr, "prior": f"smooth filters, {name}", "evidence": "at the optimum"}
        table.append(row | scores(post, character))
        assert isinstance(post.prior, FilterPrior)
        smooth = post.prior.filters.smooth
        traces[name] = {
            key: [[v for v, keep in zip(r[key], smooth.tolist(), strict=True) if keep] for r in post.history]
            for key in ("lengthscales", "precision")
        }
        draws[name] = drawn(post, Phi, g)
        variations[name] = roughness(post, Phi, g)
    known = PredCP.of(post.prior.filters, Phi, (SIDE, SIDE), unit=dip.brightest)
    blocks = [name for name, keep in zip(block_names(tangent.names), smooth.tolist(), strict=True) if keep]
    return {
        "image": grays(character.image, 1.0), "blocks": blocks, "traces": traces, "draws": draws,
        "roughness": variations, "lengthscales": against_lengthscale(known, Phi, post.prior, config, g),
    }  # fmt: skip


def block_names(names: Sequence[str]) -> list[str]:
    """The submodules, in order."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def drawn(post: LinearizedDIP, Phi: JacobianOperator, g: torch.Generator) -> list[str]:
    """``φ w``, ``w ~ N(0, A⁻¹)``, from its darkest to its brightest."""
    assert post.prior is not None
    return shades((Phi @ post.prior.draw(1, g))[:, 0].reshape(SIDE, SIDE))


def shades(image: Tensor) -> list[str]:
    """The 1st percentile black and the 99th white."""
    low, high = (float(image.flatten().quantile(q)) for q in (0.01, 0.99))
    return grays(image - low, high - low)


def roughness(post: LinearizedDIP, Phi: JacobianOperator, g: torch.Generator) -> float:
    """Mean difference of neighbors over the mean deviation, of images drawn from the prior."""
    assert post.prior is not None
    images = (Phi @ post.prior.draw(64, g)).mT.reshape(-1, SIDE, SIDE)
    steps = images.diff(dim=1).abs().mean() + images.diff(dim=2).abs().mean()
    return float(steps / images.square().mean(0).sqrt().mean())


@torch.no_grad()
def against_lengthscale(
    known: PredCP, Phi: JacobianOperator, prior: FilterPrior, config: Config, g: torch.Generator
) -> Record:
    """``κ(ψ)`` of every block at unit variance; over the mean deviation of its images; and Monte Carlo at one ``ψ``."""
    filters, smooth = known.filters, known.filters.smooth
    one = torch.ones(filters.num_blocks, dtype=torch.float64)
    units = torch.eye(SIDE**2)
    rows = [Phi.T @ part.mT for part in units.split(64)]
    forms = torch.cat([filters.forms(part, part) for part in rows], dim=2)
    grid = torch.logspace(-2, 2, 41, dtype=torch.float64)
    variation, relative = [], []
    for psi in grid:
        kappa = known.expected_variation(one, psi * one)
        deviation = torch.einsum("kc,kcp->kp", filters.coefficients(one, psi * one), forms).sqrt().mean(1)
        variation.append(kappa[smooth].tolist())
        relative.append((kappa / deviation)[smooth].tolist())
    unit = FilterPrior(one, one, filters, dtype=prior.dtype)
    # In parts, as one image of every draw and block is held at a time.
    samples = torch.cat(
        [sampled_variation(unit, Phi, (SIDE, SIDE), 250, g, unit=known.unit) for _ in range(config.draws // 250)]
    )
    exact = known.expected_variation(one, one)
    error = samples.double().std(0) / len(samples) ** 0.5
    gaps = ((samples.double().mean(0) - exact) / error)[smooth]
    return {"grid": grid.tolist(), "variation": variation, "relative": relative, "gaps": gaps.tolist()}


def total_variation_draw(config: Config) -> Record:
    """An image of total variation itself, and one of independent pixels."""
    g = torch.Generator().manual_seed(config.seed)
    white = torch.randn(SIDE, SIDE, generator=g)
    return {"total variation": shades(tv_sample(SIDE, config.sweeps, g)), "independent": shades(white)}


def claims(table: Sequence[Record], parts: Sequence[Record], config: Config) -> Iterator[Claim]:
    """Thresholds stood here before the first run."""

    def mean(prior: str, evidence: str) -> float:
        rows = [r for r in table if (r["prior"], r["evidence"]) == (PRIORS[prior], EVIDENCES[evidence])]
        return statistics.fmean(r["nll"] for r in rows)

    for prior, label in PRIORS.items():
        yield at_least(
            f"{label} precision: NLL at the weights less at the optimum",
            measured=mean(prior, "network") - mean(prior, "tangent"), limit=0.0, published=PUBLISHED[prior],
        )  # fmt: skip
    yield at_most(
        "NLL of a precision by block less that of a single one, at the optimum",
        measured=mean("blockwise", "tangent") - mean("isotropic", "tangent"), limit=0.0, published=-0.447,
    )  # fmt: skip
    for key, label in (("variation", "expected total variation"), ("relative", "the same over the deviation")):
        columns = [column for part in parts for column in zip(*part["lengthscales"][key], strict=True)]
        yield at_least(
            f"share of blocks with {label} monotone in the lengthscale",
            measured=statistics.fmean(monotone(column) for column in columns), limit=1.0, published="all",
        )  # fmt: skip
    gaps = [abs(gap) for part in parts for gap in part["lengthscales"]["gaps"]]
    yield at_most("closed form from Monte Carlo, largest in standard errors", measured=max(gaps), limit=4.0)
    for key, label, sign in (("lengthscales", "log lengthscale", 1.0), ("precision", "log variance", -1.0)):
        logs = {
            name: [math.log(v) for part in parts for v in part["traces"][name][key][-1]] for name in (PREDCP, PLAIN)
        }
        difference = sign * (statistics.fmean(logs[PREDCP]) - statistics.fmean(logs[PLAIN]))
        claim = at_least if sign > 0 else at_most
        yield claim(
            f"mean {label}, {PREDCP} less {PLAIN}", measured=difference, limit=0.0,
            published="larger" if sign > 0 else "smaller",
        )  # fmt: skip
    ratio = statistics.fmean(part["roughness"][PREDCP] / part["roughness"][PLAIN] for part in parts)
    yield at_most(f"roughness of draws, {PREDCP} over {PLAIN}", measured=ratio, limit=1.0, published="smoother")


def monotone(values: Sequence[float]) -> float:
    """1 where it only rises or only falls."""
    steps = [b - a for a, b in itertools.pairwise(values)]
    slack = 1e-9 * max(abs(v) for v in values)
    return float(all(s >= -slack for s in steps) or all(s <= slack for s in steps))


def draw(record: Record) -> Figure:
    """Draws, curves, traces, scores."""
    figure, axes = style.panels(6, rows=2, width=3.2, height=3.2)
    curves = record["curves"]
    first = curves["filters"][0]
    shown = {
        "The character": first["image"],
        "Total variation": curves["total variation"]["total variation"],
        "Independent pixels": curves["total variation"]["independent"],
        "Linearized DIP": first["draws"]["isotropic"],
        "Smooth filters, no PredCP": first["draws"][PLAIN],
        "TV-PredCP": first["draws"][PREDCP],
    }
    for ax, (title, rows) in zip(axes, shown.items(), strict=False):
        ax.imshow(pixels(rows), cmap="gray", vmin=0, vmax=255)
        ax.set(title=title, xticks=(), yticks=())
        ax.grid(False)
    for ax, key, label in ((axes[6], "variation", "Expected TV"), (axes[7], "relative", "The same over deviation")):
        against(ax, curves["filters"], key, label)
    for ax, key, label in ((axes[8], "lengthscales", "Lengthscale ψ"), (axes[9], "precision", "Variance 1/a")):
        traced(ax, first, key, label)
    bars(axes[10], [row for row in record["table"] if row["prior"] in PRIORS.values()])
    others(axes[11], [row for row in record["table"] if row["evidence"] == "at the optimum"])
    return figure


def others(ax: Axes, rows: Sequence[Record]) -> None:
    """Smooth filters beside a single precision: the mean over the images that have both, and each image."""
    single, predcp, plain = "single", f"smooth filters, {PREDCP}", f"smooth filters, {PLAIN}"
    both = {row["image"] for row in rows if row["prior"] == predcp}
    for prior, name in ((single, "single"), (predcp, "PredCP"), (plain, "no PredCP")):
        values = [row["nll"] for row in rows if row["prior"] == prior and row["image"] in both]
        color = style.BLUE if prior == single else style.GREEN
        ax.bar(name, statistics.fmean(values), 0.6, color=color)
        ax.scatter([name] * len(values), values, s=8, color=style.INK, zorder=3)
    ax.axhline(0.0, color=style.GRAY, linewidth=0.8)
    ax.set(title=f"Smooth filters, {len(both)} image{'s' * (len(both) > 1)}", ylabel="NLL, nats per pixel")


def against(ax: Axes, parts: Sequence[Record], key: str, label: str) -> None:
    """A line for every image, a color for every block."""
    for place, part in enumerate(parts):
        columns = zip(*part["lengthscales"][key], strict=True)
        for block, column, color in zip(part["blocks"], columns, style.COLORS, strict=False):
            top = max(column)
            name = block if place == 0 else None
            ax.plot(part["lengthscales"]["grid"], [v / top for v in column], color=color, label=name, alpha=0.8)
    ax.set(title=label, xlabel="lengthscale ψ in pixels", ylabel="over its largest value", xscale="log")
    ax.legend(fontsize=7)


def traced(ax: Axes, part: Record, key: str, label: str) -> None:
    """Solid with PredCP, dashed without; blocks in the colors of the curves beside."""
    for name, dash in ((PREDCP, "-"), (PLAIN, "--")):
        for column, color in zip(zip(*part["traces"][name][key], strict=True), style.COLORS, strict=False):
            values = column if key == "lengthscales" else [1.0 / v for v in column]
            ax.plot(range(len(values)), values, dash, color=color, linewidth=1.4)
    ax.set(title=label, xlabel="gradient; dashed without PredCP", yscale="log")
    if key == "lengthscales":
        ax.set_yticks((0.2, 0.5, 1.0, 2.0), ("0.2", "0.5", "1", "2"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def bars(ax: Axes, rows: Sequence[Record]) -> None:
    """Mean NLL."""
    for place, prior in enumerate(PRIORS.values()):
        for shift, evidence, color in ((-0.18, "at the optimum", style.BLUE), (0.18, "at the weights", style.ORANGE)):
            found = [r["nll"] for r in rows if (r["prior"], r["evidence"]) == (prior, evidence)]
            ax.bar(place + shift, statistics.fmean(found), 0.34, color=color, label=evidence if place == 0 else None)
    ax.axhline(0.0, color=style.GRAY, linewidth=0.8)
    ax.set_xticks(range(2), list(PRIORS.values()))
    ax.set(title="Where the evidence is taken", ylabel="NLL, nats per pixel")
    ax.legend()


FULL = Config()

EXPERIMENT: Experiment[Any] = Experiment(
    id="kmnist-ct",
    title="Characters through a scanner: evidence, priors of images and lengthscales",
    reproduces=(
        "Table 5.1 (its column of the U-net)",
        "Figure 7.3 (draws of priors), figure 7.4 (lengthscale and total variation), figure 7.5 (lengthscales with and"
        " without TV-PredCP), here on KMNIST",
    ),
    budgets={
        "quick": replace(FULL, images=2, filter_images=1, channels=16, samples=256, draws=1000, sweeps=1000),
        "full": FULL,
        "thesis": replace(FULL, filter_images=50),
    },
    run=run,
    draw=draw,
    data=lambda config: ("kmnist_subset",),
    sizes=lambda config: {
        "pixels": SIDE**2,
        "measurements": config.angles * config.detectors,
        "weights": sum(p.numel() for p in UNet(scales=config.scales, channels=config.channels).parameters()),
    },
)
