"""What observations say about the outputs of a network: ``−log p(y | f)``, its curvature in ``f``, draws from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from matheron.linear.curvature import BlockCurvature, Curvature
from matheron.networks.inputs import ordinary
from matheron.operators import Operator
from matheron.operators.base import Index


class Likelihood(ABC):
    """``p(y | f)`` of one observation given the outputs ``f ∈ R^c`` of a network.

    Three short methods make one; shapes are those of a batch. ``curvature`` is ``B_i = ∂²_f (−log p(y_i | f))``, taken
    at the network's own outputs, which must not depend on the targets (as for exponential families in their natural
    parameters). It may be singular: it is never inverted.

    >>> import torch
    >>> class Poisson(Likelihood):
    ...     '''Counts with the rate exp(f).'''
    ...
    ...     def negative_log_likelihood(self, outputs, targets):
    ...         return (outputs.exp() - targets * outputs + torch.lgamma(targets + 1)).sum(1)
    ...
    ...     def curvature_product(self, outputs, V):
    ...         return outputs.exp() * V
    ...
    ...     def curvature_draw(self, outputs, num, generator):
    ...         return (0.5 * outputs).exp() * torch.randn(num, *outputs.shape, generator=generator)
    >>> Poisson().gradient(torch.zeros(2, 1), torch.tensor([[0.0], [3.0]]))
    tensor([[ 1.],
            [-2.]])
    """

    @abstractmethod
    def negative_log_likelihood(
        self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]
    ) -> Float[Tensor, " b"]:
        """``−log p(y_i | f_i)``."""

    @abstractmethod
    def curvature_product(self, outputs: Float[Tensor, "b c"], V: Float[Tensor, "k b c"]) -> Float[Tensor, "k b c"]:
        """``B_i v_i``."""

    @abstractmethod
    def curvature_draw(
        self, outputs: Float[Tensor, "b c"], num: int, generator: torch.Generator
    ) -> Float[Tensor, "num b c"]:
        """Draws of ``N(0, B_i)``, fresh for every datum and every draw."""

    def curvature(self, outputs: Float[Tensor, "b c"]) -> Curvature:
        """``B`` as an operator on all rows of a batch."""
        return LikelihoodCurvature(self, outputs)

    def gradient(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, "b c"]:
        """``∂_f (−log p(y_i | f_i))``; by automatic differentiation where a likelihood has no formula of its own."""
        with torch.inference_mode(False), torch.enable_grad():
            outputs, targets = ordinary(outputs.detach()).requires_grad_(True), ordinary(targets)
            return torch.autograd.grad(self.negative_log_likelihood(outputs, targets).sum(), outputs)[0]

    def misfit(self, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]) -> Float[Tensor, " b"]:
        """The part of ``−log p(y_i | f_i)`` that is not the same for all ``f``, where the two are told apart."""
        return self.negative_log_likelihood(outputs, targets)

    def place(self, targets: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Targets that were checked before, where the outputs are: real ones in their dtype, classes as int64."""
        return targets.to(device=device, dtype=dtype if targets.dtype.is_floating_point else torch.int64)

    def require_targets(self, targets: Any, outputs: Float[Tensor, "b c"]) -> Tensor:
        """Return ``targets`` if they can be observations of ``outputs``."""
        return require_as_many("targets", targets, outputs)

    def sample(self, outputs: Float[Tensor, "*s b c"], generator: torch.Generator | int | None = None) -> Tensor:
        """An observation of each output; needed for posterior predictive draws of observations only."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to draw observations; give it sample(...)")


class LikelihoodCurvature(Curvature):
    """``B`` of a likelihood that gives products and draws; its root, where a dual solve asks for it, from the blocks.

    >>> import torch
    >>> from matheron.networks import Bernoulli
    >>> LikelihoodCurvature(Bernoulli(), torch.zeros(2, 1)).dense()
    tensor([[0.2500, 0.0000],
            [0.0000, 0.2500]])
    """

    def __init__(self, likelihood: Likelihood, at: Float[Tensor, "b c"]) -> None:
        self.likelihood, self.at = likelihood, at
        super().__init__(len(at), at.shape[1], at.dtype, at.device)

    def product(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """By the likelihood."""
        parts = V.mT.reshape(V.shape[1], *self.at.shape)
        return self.likelihood.curvature_product(self.at, parts).flatten(1).mT

    def draw(self, num: int, generator: torch.Generator) -> Float[Tensor, "m num"]:
        """By the likelihood, where the generator is."""
        drawn = self.likelihood.curvature_draw(self.at.to(generator.device), num, generator)
        if drawn.shape != (num, *self.at.shape):
            raise ValueError(
                f"curvature_draw of {type(self.likelihood).__name__} gave {tuple(drawn.shape)}, expected "
                f"{(num, *self.at.shape)}: a draw for every output of every datum"
            )
        return drawn.to(self.at).flatten(1).mT

    @cached_property
    def blocks(self) -> BlockCurvature:
        """One ``c × c`` block per datum."""
        b, c = self.at.shape
        identity = torch.eye(c, dtype=self.dtype, device=self.device)[:, None].expand(c, b, c)
        blocks = self.likelihood.curvature_product(self.at, identity).movedim(0, 2)
        return BlockCurvature(0.5 * (blocks + blocks.mT))

    @property
    def root(self) -> Operator:
        """Of the blocks."""
        return self.blocks.root

    def root_solve(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """Of the blocks."""
        return self.blocks.root_solve(V)

    def diagonal(self) -> Float[Tensor, " m"]:
        """Of the blocks."""
        return self.blocks.diagonal()

    def take(self, index: Index) -> Curvature:
        """At some of the outputs."""
        return LikelihoodCurvature(self.likelihood, self.at[index])


class StructuredLikelihood(Likelihood):
    """A likelihood whose ``B`` the linear model knows as an operator; product and draws are that operator's."""

    @abstractmethod
    def curvature(self, outputs: Float[Tensor, "b c"]) -> Curvature:
        """``B``."""

    def curvature_product(self, outputs: Float[Tensor, "b c"], V: Float[Tensor, "k b c"]) -> Float[Tensor, "k b c"]:
        """``B_i v_i``."""
        return (self.curvature(outputs) @ V.flatten(1).mT).mT.reshape(V.shape)

    def curvature_draw(
        self, outputs: Float[Tensor, "b c"], num: int, generator: torch.Generator
    ) -> Float[Tensor, "num b c"]:
        """Draws of ``N(0, B_i)``."""
        return self.curvature(outputs).draw(num, generator).mT.reshape(num, *outputs.shape)


def require_as_many(name: str, targets: Any, outputs: Tensor) -> Tensor:
    """Return ``targets`` on the device of ``outputs`` if there is one per row."""
    if not isinstance(targets, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(targets).__name__}; convert with torch.as_tensor")
    if targets.ndim == 0 or len(targets) != len(outputs):
        raise ValueError(
            f"{name} has shape {tuple(targets.shape)} but the batch has {len(outputs)} rows; give one target per row"
        )
    return targets.to(outputs.device)


def losses(
    likelihood: Likelihood, outputs: Float[Tensor, "b c"], targets: Shaped[Tensor, "b ..."]
) -> Float[Tensor, " b"]:
    """``−log p(y_i | f_i)`` of every datum; refused where that of one depends on the others in its batch.

    Targets ``(b,)`` beside outputs ``(b, 1)`` are broadcast to ``(b, b)`` by a likelihood that does not look out.
    """
    found, name = likelihood.negative_log_likelihood(outputs, targets), type(likelihood).__name__
    if found.shape != (len(outputs),):
        raise ValueError(
            f"negative_log_likelihood of {name} gave {tuple(found.shape)} for {len(outputs)} data; give one value each"
        )
    alone = likelihood.negative_log_likelihood(outputs[:1], targets[:1])
    if not torch.allclose(alone, found[:1], rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ValueError(
            f"negative_log_likelihood of {name} gives a datum another value beside others than alone: its targets "
            f"{tuple(targets.shape)} and outputs {tuple(outputs.shape)} are broadcast; give targets in the shape of "
            "the outputs, or reshape them in the likelihood"
        )
    return found
