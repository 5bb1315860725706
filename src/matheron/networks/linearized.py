"""A network as a function of its chosen weights, on one batch, in the state in which it is linearized."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from matheron.networks import inputs
from matheron.networks.chunks import Footprint, out_of_memory
from matheron.networks.inputs import Forward, Network
from matheron.networks.modes import linearizing, training_modules, versions
from matheron.networks.parameters import Weights
from matheron.networks.products import Function, Named
from matheron.networks.trial import Way, alike, first_that_works


class LinearizedNetwork:
    """``v ↦ g(v, x)`` around the trained values ``ṽ``, and what was learnt about the network on its first batch.

    >>> net = nn.Linear(2, 1).eval()
    >>> linearized, x = LinearizedNetwork(net, Weights(net)), torch.ones(3, 2)
    >>> with linearized.linearizing(x):
    ...     linearized.function(x)(linearized.point()).shape, linearized.way.name
    (torch.Size([3, 1]), 'forward')
    """

    def __init__(
        self, model: nn.Module, weights: Weights, forward: Forward | None = None, method: str = "auto"
    ) -> None:
        self.model, self.weights, self.method = model, weights, method
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
                raise ValueError(
                    f"{name or 'model'} is an embedding with max_norm, which changes its weights in every pass; run "
                    "the model on all its ids once, then set max_norm = None"
                )
        self.network = Network(model, forward)
        self.way: Way | None = None
        # Until a first batch has shown which buffers a forward pass writes to, each is taken to be written to.
        self.written = frozenset(name for name, _ in model.named_buffers())
        self._versions = versions(model)
        self._warned = False
        self._footprints: dict[Any, Footprint] = {}
        self._separate: bool | None = None
        self.mixes = False
        """Whether outputs of a datum were seen to depend on the others in its batch."""

    def __getstate__(self) -> dict[str, Any]:
        self._require_unchanged()
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The tensors of a copied model are the same elsewhere in memory.
        self.__dict__.update(state, _versions=versions(state["model"]))

    @contextmanager
    def linearizing(self, x: Any) -> Iterator[None]:
        """In evaluation mode, with the way to push tangents settled; the model is left as it was found."""
        inputs.batch_size(x)
        training = training_modules(self.model)
        if training and not self._warned:
            self._warned = True
            warnings.warn(
                f"the model is in training mode ({training[0]} and {len(training) - 1} modules more); it is linearized "
                "in evaluation mode and put back afterwards",
                UserWarning,
                stacklevel=4,
            )
        with linearizing(self.model), torch.inference_mode(False):
            try:
                if self.way is None:
                    self.way = self._settle(x)
                self._require_unchanged()
                yield
            except Exception as error:
                said = inputs.hint(self.network, x, self.weights.dtype)
                if said is not None:
                    error.add_note(said)
                raise

    def point(self) -> Named:
        """``ṽ`` by name, without gradients; nothing is copied."""
        return {name: parameter.detach() for name, parameter in self.weights.parameters.items()}

    def function(self, x: Any) -> Function:
        """``v ↦ g(v, x)`` for the chosen parameters by name; all others are held, and none is written to."""
        chosen = self.weights.parameters
        held = {f"model.{name}": p.detach() for name, p in self.model.named_parameters() if name not in chosen}
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in self.written}
        size, x = inputs.batch_size(x), inputs.ordinary(x)

        def g(point: Named) -> Tensor:
            fresh = {f"model.{name}": buffer.clone() for name, buffer in buffers.items()}
            moved = {f"model.{name}": value for name, value in point.items()}
            return require_rows(functional_call(self.network, {**held, **fresh, **moved}, (x,)), size)

        return g

    def push(self, g: Function, point: Named, W: Named) -> tuple[Tensor, Tensor]:
        """``g(ṽ)`` and ``J W``."""
        assert self.way is not None
        return self.way.push(g, point, W)

    @property
    def pulls_together(self) -> bool:
        """Whether several cotangents can be pulled back in one pass."""
        return self.way is not None and self.way.batched

    def footprint(self, x: Any) -> Footprint:
        """Memory per datum of a pass, measured once for every shape of data."""
        key = inputs.layout(x)
        if key not in self._footprints:
            first, size = x, inputs.batch_size(x)
            if self.data_are_separate(x):
                first, size = inputs.rows(x, slice(0, 1)), 1
            self._footprints[key] = Footprint.measure(self.function(first), self.point(), size)
        return self._footprints[key]

    def data_are_separate(self, x: Any) -> bool:
        """Whether the outputs of a datum do not depend on the others in its batch, so that a batch can be split."""
        if self._separate is None and inputs.batch_size(x) > 1:
            two = self._outputs(x, slice(0, 2))
            # Each of them: a datum may depend on those before it only.
            alone = [self._outputs(x, slice(place, place + 1)) for place in range(2)]
            self._separate = two is not None and all(
                one is not None and alike(one, two[place : place + 1]) for place, one in enumerate(alone)
            )
            missing = any(one is None for one in alone)
            # A normalization layer has no statistics of a batch of one, but others of two than of three.
            three = self._outputs(x, slice(0, 3)) if missing else None
            self.mixes = two is not None and not (
                self._separate or (missing and (three is None or alike(two, three[:2])))
            )
        return bool(self._separate)

    def _settle(self, x: Any) -> Way:
        size = inputs.batch_size(x)
        # Outputs of two data may have two rows by chance, but not those of three data three as well.
        sizes = (3, 2) if size > 3 else (size,)
        if any(self._outputs(x, slice(0, rows)) is None for rows in sizes):
            sizes = (size,)
            with torch.no_grad():
                self.function(x)(self.point())
        few = inputs.rows(x, slice(0, min(sizes)))
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        before = {name: buffer._version for name, buffer in buffers.items()}
        after = {f"model.{name}": buffer for name, buffer in buffers.items()}
        with torch.no_grad():
            functional_call(self.network, after, (few,))
        # Where the pass put another tensor in the place of a buffer, so did the call in what it was given.
        self.written = frozenset(
            name
            for name, buffer in buffers.items()
            if buffer._version != before[name] or after[f"model.{name}"] is not buffer
        )
        return first_that_works(self.method, self.model, self.function(few), self.point())

    @torch.no_grad()
    def _outputs(self, x: Any, rows: slice) -> Tensor | None:
        """Of some data; nothing from a model that insists on the size of its batch, or has no batch of one."""
        try:
            return self.function(inputs.rows(x, rows))(self.point())
        except Exception as error:
            if out_of_memory(error) or (isinstance(error, NotABatch) and rows.stop - rows.start > 1):
                raise
            return None

    def _require_unchanged(self) -> None:
        now = versions(self.model)
        for name, version in self._versions.items():
            if name not in self.written and now.get(name) != version:
                raise RuntimeError(f"{name} of the model has changed since it was linearized; build a new TangentModel")


class NotABatch(ValueError):
    """Outputs that are not one row for each datum."""


def require_rows(outputs: Tensor, size: int) -> Tensor:
    """Return ``outputs`` if they have a row for each of ``size`` data: a model may drop that dimension for a lone one.

    >>> require_rows(torch.ones(3, 2), 3).shape
    torch.Size([3, 2])
    """
    if len(outputs) != size:
        raise NotABatch(
            f"the model returned shape {tuple(outputs.shape)} for {size} data; outputs must have the batch along "
            "dimension 0: give forward=, a function of (model, x), where they do not"
        )
    return outputs
