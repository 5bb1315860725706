"""One image whose scan is to be designed: what could be measured of it, and the models of its pilot scan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from experiments.rectangles import rectangles, with_noise
from matheron.evaluation import psnr
from matheron.operators import Operator
from matheron.tomography import (
    DeepImagePrior,
    Fourier,
    GaussianImage,
    ImagePosterior,
    LinearizedDIP,
    ParallelBeam,
    UNet,
    total_variation,
)
from matheron.tomography.views import Views

DIP, REFITTED, MATERN, ISOTROPIC = "linearized DIP", "linearized DIP, refitted", "Matérn-½", "isotropic"


@dataclass(frozen=True)
class Config:
    """Sizes, and the settings of the reconstructions."""

    size: int = 128
    images: int = 30
    candidates: int = 200
    pilots: int = 5
    acquisitions: int = 35
    every: int = 5
    noise: float = 0.05
    samples: int = 3000
    channels: int = 32
    scales: int = 3
    steps: int = 2000
    learning_rate: float = 0.01
    strength: float = 10.0
    """Of total variation, in noise variances."""
    strength_of_dip: float = 3.0
    """The same beside the network."""
    level: float = 0.1
    """Prior variance of a ray beside that of the noise, on average, while angles are chosen."""
    lines: int = 10
    """Of frequencies that are chosen."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Problem:
    """One image, all that could be measured of it, and the models of its pilot scan."""

    config: Config
    number: int
    whole: Views
    image: Tensor
    sinogram: Tensor
    deviation: float
    pilot: tuple[int, ...]
    preferred: float
    """Direction of half the edges, the others across; radians."""
    fitted: dict[str, ImagePosterior] = field(default_factory=dict, repr=False)

    def measured(self, indices: Sequence[int]) -> tuple[Operator, Tensor]:
        """The scan of some views, and what it measured."""
        return self.whole.at(self.whole.names[list(indices)]).operator, self.sinogram[list(indices)].flatten()

    def generator(self) -> torch.Generator:
        """The same numbers for every method."""
        return torch.Generator().manual_seed(self.config.seed + 10_000 * self.number)

    def dip(self, indices: Sequence[int]) -> DeepImagePrior:
        """From the same first weights and the same input, whatever the angles."""
        config, generator = self.config, self.generator()
        net = nn.Sequential(UNet(scales=config.scales, channels=config.channels, generator=generator), nn.Sigmoid())
        A, y = self.measured(indices)
        strength = config.strength_of_dip * self.deviation**2
        tv = strength * self.image.numel() / float(y.square().sum())
        dip = DeepImagePrior(A, net, tv=tv, shape=self.image.shape, unit=1.0)
        return dip.fit(y, steps=config.steps, learning_rate=config.learning_rate, generator=generator)

    @cached_property
    def pilot_dip(self) -> LinearizedDIP:
        """With a g-prior."""
        return LinearizedDIP(self.dip(self.pilot)).fit(self.measured(self.pilot)[1], generator=self.generator())

    def posterior(self, model: str) -> ImagePosterior:
        """Fitted to the pilot, once."""
        if model in (DIP, REFITTED):
            return self.pilot_dip
        if model not in self.fitted:
            A, y = self.measured(self.pilot)
            covariance = {MATERN: "matern12", ISOTROPIC: "isotropic"}[model]
            found = GaussianImage(A, covariance, shape=self.image.shape).fit(y, generator=self.generator())
            self.fitted[model] = found
        return self.fitted[model]

    def evaluate(self, indices: Sequence[int]) -> dict[str, float]:
        """PSNR of both reconstructions."""
        A, y = self.measured(indices)
        strength = self.config.strength * self.deviation**2
        varied = total_variation(A, y, shape=self.image.shape, strength=strength, tolerance=1e-3)
        return {"dip": psnr(self.dip(indices).image, self.image), "tv": psnr(varied.image, self.image)}


def x_rays(config: Config, number: int) -> Problem:
    generator = torch.Generator().manual_seed(config.seed + number)
    image, preferred = rectangles(config.size, generator)
    angles = torch.arange(config.candidates, dtype=torch.float64) * math.pi / config.candidates
    scan = ParallelBeam(config.size, angles, math.ceil(math.sqrt(2.0) * config.size))
    A = scan.operator()
    measured, deviation = with_noise(A @ image.flatten(), config.noise, generator)
    pilot = tuple(spread(config.pilots, config.candidates))
    return Problem(config, number, Views.of(A), image, scan.sinogram(measured), deviation, pilot, preferred)


def resonance(config: Config) -> Problem:
    """The lowest lines are the pilot."""
    generator = torch.Generator().manual_seed(config.seed + 100_000)
    image, preferred = rectangles(config.size, generator)
    A = Fourier(config.size, range(config.size // 2 + 1))
    measured, deviation = with_noise(A @ image.flatten(), config.noise, generator)
    lines = measured.reshape(len(A.lines), -1)
    return Problem(config, 100, Views.of(A), image, lines, deviation, tuple(range(config.pilots)), preferred)


def spread(count: int, candidates: int) -> list[int]:
    """``count`` indices at equal distances."""
    return [round(i * candidates / count) % candidates for i in range(count)]
