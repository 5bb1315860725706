"""Gaussian, categorical and Bernoulli observations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from matheron.arguments import require_finite, require_positive
from matheron.linear.curvature import BernoulliCurvature, CategoricalCurvature, Curvature, GaussianCurvature
from matheron.networks.likelihood import Likelihood, StructuredLikelihood, require_as_many
from matheron.seeds import normals, source_of


@dataclass(frozen=True)
class Gaussian(StructuredLikelihood):
    """``y = f + ε``, ``ε ~ N(0, noise)``, one variance for all outputs; ``learn`` it by MacKay's update.

    >>> import torch
    >>> Gaussian(noise=0.25).gradient(torch.zeros(1, 1), torch.tensor([[1.0]]))
    tensor([[-4.]])
    """

    noise: float = 1.0
    learn: bool = True

    def __post_init__(self) -> None:
        noise = require_positive("noise", self.noise)
        if noise.numel() != 1:
            raise ValueError(f"noise has {noise.numel()} values; give one variance for all outputs")
        object.__setattr__(self, "noise", float(noise))

    def negative_log_likelihood(
        self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]
    ) -> Float[Tensor, " b"]:
        """The misfit and the normalizer."""
        constant = 0.5 * outputs.shape[-1] * math.log(2.0 * math.pi * self.noise)
        return self.misfit(outputs, targets) + constant

    def misfit(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, " b"]:
        """Half the squared error in units of the noise."""
        return 0.5 * (outputs - targets.reshape(outputs.shape)).square().sum(-1) / self.noise

    def gradient(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, "b c"]:
        """``(f − y) / noise``."""
        return (outputs - targets.reshape(outputs.shape)) / self.noise

    def curvature(self, outputs: Float[Tensor, "b c"]) -> Curvature:
        """``I / noise``."""
        size, c = outputs.numel(), outputs.shape[1]
        return GaussianCurvature(1.0 / self.noise, size, outputs=c, dtype=outputs.dtype, device=outputs.device)

    def require_targets(self, targets: Any, outputs: Float[Tensor, "b c"]) -> Tensor:
        """Finite numbers, as many as outputs."""
        targets = require_as_many("targets", targets, outputs)
        if targets.numel() != outputs.numel():
            raise ValueError(
                f"targets has shape {tuple(targets.shape)} but the model gives {tuple(outputs.shape)}; "
                "give one target per output"
            )
        if not targets.dtype.is_floating_point:
            raise TypeError(f"targets of a regression have dtype {targets.dtype}; convert them with targets.float()")
        return require_finite("targets", targets).to(outputs.dtype)

    def sample(
        self, outputs: Float[Tensor, "*s b c"], generator: torch.Generator | int | None = None
    ) -> Float[Tensor, "*s b c"]:
        """With noise added."""
        return outputs + math.sqrt(self.noise) * normals(outputs.shape, outputs, source_of(generator))


@dataclass(frozen=True)
class Categorical(StructuredLikelihood):
    """``p(y = k | f) = softmax(f)_k``, with ``B = diag(p) − p pᵀ``; classes are whole numbers from 0.

    ``B`` is singular, as outputs may be shifted together.

    >>> import torch
    >>> Categorical().curvature_product(torch.zeros(1, 2), torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
    tensor([[[ 0.0000,  0.0000]],
    <BLANKLINE>
            [[ 0.5000, -0.5000]]])
    """

    def negative_log_likelihood(
        self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]
    ) -> Float[Tensor, " b"]:
        """Cross entropy."""
        return functional.cross_entropy(outputs, targets.reshape(-1), reduction="none")

    def gradient(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, "b c"]:
        """``p − onehot(y)``."""
        return outputs.softmax(-1) - functional.one_hot(targets.reshape(-1), outputs.shape[-1])

    def curvature(self, outputs: Float[Tensor, "b c"]) -> Curvature:
        """``diag(p) − p pᵀ``."""
        return CategoricalCurvature(outputs.softmax(-1))

    def require_targets(self, targets: Any, outputs: Float[Tensor, "b c"]) -> Tensor:
        """Whole numbers from 0 to ``c − 1``."""
        targets = require_as_many("targets", targets, outputs)
        if targets.dtype.is_floating_point or targets.dtype == torch.bool:
            raise TypeError(f"targets are classes but have dtype {targets.dtype}; convert them with targets.long()")
        if targets.numel() != len(outputs):
            raise ValueError(
                f"targets has shape {tuple(targets.shape)}; give one class per row, not one-hot: ({len(outputs)},)"
            )
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= outputs.shape[-1]:
            wrong = low if low < 0 else high
            raise ValueError(
                f"targets has the class {wrong} but the model gives {outputs.shape[-1]} outputs, 0 onwards"
            )
        return targets.long()

    def sample(
        self, outputs: Float[Tensor, "*s b c"], generator: torch.Generator | int | None = None
    ) -> Shaped[Tensor, "*s b"]:
        """A class per row."""
        p = outputs.softmax(-1).cpu()
        drawn = torch.multinomial(p.flatten(0, -2), 1, generator=source_of(generator)).reshape(p.shape[:-1])
        return drawn.to(outputs.device)


@dataclass(frozen=True)
class Bernoulli(StructuredLikelihood):
    """``p(y = 1 | f) = σ(f)`` for one output, or several that are independent given ``f``; ``B = p (1 − p)``.

    >>> import torch
    >>> Bernoulli().gradient(torch.zeros(2, 1), torch.tensor([0, 1]))
    tensor([[ 0.5000],
            [-0.5000]])
    """

    def negative_log_likelihood(
        self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]
    ) -> Float[Tensor, " b"]:
        """Binary cross entropy."""
        targets = targets.reshape(outputs.shape).to(outputs.dtype)
        return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(-1)

    def gradient(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, "b c"]:
        """``p − y``."""
        return outputs.sigmoid() - targets.reshape(outputs.shape).to(outputs.dtype)

    def curvature(self, outputs: Float[Tensor, "b c"]) -> Curvature:
        """``p (1 − p)``."""
        return BernoulliCurvature(outputs.sigmoid().flatten(), outputs=outputs.shape[1])

    def require_targets(self, targets: Any, outputs: Float[Tensor, "b c"]) -> Tensor:
        """Zeros and ones."""
        targets = require_as_many("targets", targets, outputs)
        if targets.numel() != outputs.numel():
            raise ValueError(
                f"targets has shape {tuple(targets.shape)} but the model gives {tuple(outputs.shape)}; "
                "give one label per output"
            )
        if not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError("targets of a binary likelihood must be 0 or 1; use 'classification' for more classes")
        return targets

    def sample(
        self, outputs: Float[Tensor, "*s b c"], generator: torch.Generator | int | None = None
    ) -> Float[Tensor, "*s b c"]:
        """Zeros and ones."""
        return torch.bernoulli(outputs.sigmoid().cpu(), generator=source_of(generator)).to(outputs.device)


NAMES: dict[str, type[Likelihood]] = {"regression": Gaussian, "classification": Categorical, "binary": Bernoulli}


def likelihood_of(value: str | Likelihood) -> Likelihood:
    """``"regression"``, ``"classification"``, ``"binary"``, or a likelihood as it is."""
    if isinstance(value, Likelihood):
        return value
    if isinstance(value, str) and value in NAMES:
        return NAMES[value]()
    raise ValueError(f"likelihood must be one of {', '.join(NAMES)} or a Likelihood, got {value!r}")
