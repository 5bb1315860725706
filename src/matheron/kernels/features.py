"""Random features of a kernel, from those of its parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.arguments import require_count
from matheron.kernels.base import Kernel
from matheron.kernels.composite import Product, Scaled, Sum
from matheron.kernels.feature_map import FeatureMap, NoFeaturesError
from matheron.kernels.fourier import FourierFeatures
from matheron.kernels.hashing import HashFeatures
from matheron.kernels.lengthscale import LengthscaleKernel
from matheron.kernels.linear import Linear
from matheron.kernels.spectra import SPECTRAL, Spectrum, spectrum
from matheron.kernels.tanimoto import Tanimoto
from matheron.seeds import draw_seed


def features(
    kernel: Kernel,
    num: int,
    *,
    dimension: int | None = None,
    orthogonal: bool = False,
    generator: torch.Generator | int | None = None,
) -> FeatureMap:
    """``φ`` with ``E φ(x) φ(z)ᵀ = k(x, z)``; see :meth:`Kernel.features`.

    A sum is the concatenation of its terms' features, after products of sums are multiplied out: exact ones take what
    they need, the others share the rest, so that ``phi.num`` can fall short of ``num`` by a few.
    """
    require_count("num", num)
    seed = None
    if not isinstance(generator, torch.Generator):
        seed = draw_seed(generator)
        generator = torch.Generator().manual_seed(seed)
    drawer = Drawer(kernel, dimension, orthogonal, generator)
    expanded = terms(kernel)
    if len(expanded) == 1 and not expanded[0].scales:
        phi = drawer.draw(expanded[0], num)
    else:
        shares = allot(num, [drawer.exact(term) for term in expanded], [term.spectral for term in expanded])
        maps = [drawer.draw(term, share) for term, share in zip(expanded, shares, strict=True)]
        phi = Concatenation(kernel, maps, [term.scales for term in expanded])
    phi.seed = seed
    return phi


@dataclass(frozen=True)
class Term:
    """``Π s Π k``: a product of kernels, times the scales that were met on the way to it."""

    scales: tuple[Scaled, ...]
    factors: tuple[Kernel, ...]

    @property
    def spectral(self) -> bool:
        """Whether every factor has a spectral measure."""
        return all(isinstance(factor, SPECTRAL) for factor in self.factors)


def terms(kernel: Kernel) -> list[Term]:
    """The kernel multiplied out into a sum of products."""
    if isinstance(kernel, Sum):
        return [term for part in kernel for term in terms(part)]
    if isinstance(kernel, Scaled):
        return [Term((kernel, *term.scales), term.factors) for term in terms(kernel.part)]
    if isinstance(kernel, Product):
        return [
            Term(sum((t.scales for t in chosen), ()), sum((t.factors for t in chosen), ()))
            for chosen in itertools.product(*(terms(part) for part in kernel))
        ]
    return [Term((), (kernel,))]


def allot(num: int, exact: Sequence[int | None], paired: Sequence[bool]) -> list[int]:
    """Shares of ``num``: exact terms what they need, the others equal parts of the rest, even where paired."""
    rest, waiting = num - sum(count or 0 for count in exact), exact.count(None)
    if rest < 2 * waiting:
        least = num - rest + 2 * waiting
        raise ValueError(f"num is {num} but the terms of this kernel need {least}; ask for at least as many features")
    shares = []
    for count, pairs in zip(exact, paired, strict=True):
        if count is None:
            count = rest // waiting
            count -= count % 2 if pairs else 0
            rest, waiting = rest - count, waiting - 1
        shares.append(count)
    return shares


@dataclass(frozen=True)
class Drawer:
    """Draws the features of single terms, one after the other, from one generator."""

    kernel: Kernel
    dimension: int | None
    orthogonal: bool
    generator: torch.Generator

    def exact(self, term: Term) -> int | None:
        """How many features represent the term exactly; ``None`` if none do."""
        (factor, *others) = term.factors
        return self.width(factor) if isinstance(factor, Linear) and not others else None

    def draw(self, term: Term, num: int) -> FeatureMap:
        """Features of the term without its scales."""
        factor = term.factors[0]
        if term.spectral:
            if num % 2:
                raise ValueError(f"num must be even, as sines and cosines come in pairs; got {num}, ask for {num + 1}")
            return FourierFeatures(self.kernel, num, [self.spectrum(factor, num // 2) for factor in term.factors])
        if len(term.factors) > 1:
            names = " * ".join(type(factor).__name__ for factor in term.factors)
            raise NoFeaturesError(
                f"the product {names} has no random features, as only frequencies multiply; "
                "use kernels with a spectrum in products, or draw prior samples by kernels.sample_prior"
            )
        if isinstance(factor, Linear):
            return LinearFeatures(self.kernel, factor, self.width(factor))
        if isinstance(factor, Tanimoto):
            return HashFeatures(self.kernel, factor, num, self.generator)
        if type(factor).features is not Kernel.features:
            return factor.features(num, dimension=self.dimension, orthogonal=self.orthogonal, generator=self.generator)
        raise NoFeaturesError(
            f"{type(factor).__name__} has no random features; override its features method, "
            "or draw prior samples by kernels.sample_prior"
        )

    def spectrum(self, factor: Kernel, num: int) -> Spectrum:
        """Frequencies of one factor."""
        assert isinstance(factor, LengthscaleKernel)
        return spectrum(factor, num, self.width(factor), orthogonal=self.orthogonal, generator=self.generator)

    def width(self, factor: Kernel) -> int:
        """How many columns the factor reads."""
        width = len(factor.columns) if factor.columns is not None else factor.dimension()
        if width is None:
            width = self.dimension
        if width is None:
            raise ValueError(
                f"dimension is missing: the hyperparameters of {type(factor).__name__} do not tell how many columns "
                "the inputs have; pass dimension=x.shape[1]"
            )
        return require_count("dimension", width)


class LinearFeatures(FeatureMap):
    """``σ x / ℓ``: exact, one feature per input, drawn from nothing."""

    def __init__(self, kernel: Kernel, factor: Linear, num: int) -> None:
        super().__init__(kernel, num)
        self.__dict__["factor"] = factor

    factor: Linear

    def evaluate(self, x: Tensor) -> Float[Tensor, "n num"]:
        """``σ x / ℓ``."""
        return self.factor.scaled(self.factor.select(x))


class Concatenation(FeatureMap):
    """``[√s₁ φ₁(x), √s₂ φ₂(x), …]``: the features of ``s₁ k₁ + s₂ k₂ + …``."""

    scales: list[tuple[Scaled, ...]]

    def __init__(self, kernel: Kernel, maps: Sequence[FeatureMap], scales: Sequence[tuple[Scaled, ...]]) -> None:
        super().__init__(kernel, sum(phi.num for phi in maps))
        self.maps = nn.ModuleList(maps)
        self.scales = list(scales)

    def evaluate(self, x: Tensor) -> Float[Tensor, "n num"]:
        """Side by side."""
        blocks = []
        for phi, scales in zip(self.maps, self.scales, strict=True):
            block = phi(x)
            for scaled in scales:
                block = scaled.scale.sqrt().to(x.dtype) * block
            blocks.append(block)
        return torch.cat(blocks, dim=1)
