"""The tangent model of a trained network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from matheron.arguments import require_count, require_float, require_same
from matheron.networks import inputs
from matheron.networks.chunks import FAST, TINY, Plan, out_of_memory, pieces
from matheron.networks.inputs import Forward
from matheron.networks.linearized import LinearizedNetwork
from matheron.networks.parameters import Choice, Weights
from matheron.networks.products import Named, Pullback, count, each_alone
from matheron.networks.trial import METHODS
from matheron.operators.memory import free_memory, gibibytes

Method = Literal["auto", "forward", "double-vjp", "finite-differences"]
Result = TypeVar("Result")

MANY = 2
"""Tangents for each output of a datum from which on its rows of ``J``, made once, are the quicker way to products."""

FEWEST = 8
"""Tangents from which on it can pay."""

SHARE = 0.25
"""Of the free memory, what passes may take unless a budget is given."""


class TangentModel:
    """``h(w, x) = g(ṽ, x) + J(x)(w − ṽ)``: products with ``J = ∂_v g(ṽ, x)``, which is never stored (thesis §3.4).

    ``W (k, d)`` are tangents, flat in the order of ``named_parameters`` or a dict of ``(k, *shape)``; ``U (k, batch,
    *out)`` are cotangents. The model is linearized as it is in evaluation mode, and is left as it was found.

    ``parameters`` chooses among those that require a gradient: ``"all"``, ``"last_layer"``, ``"no_biases"``,
    ``"no_normalization"``, ``"matrices"`` or a predicate on ``(name, parameter)`` or ``name``. ``x`` is a tensor, or a
    mapping, list or tuple of tensors with the data along dimension 0; ``forward``, a function of ``(model, x)``, calls
    an unusual model. ``method`` says how tangents are pushed; ``used`` says what was taken. ``memory`` bounds the bytes
    of intermediate results: beyond it, tangents and data go through in parts.

    >>> import torch
    >>> from torch import nn
    >>> line = nn.Linear(2, 1).double().eval()
    >>> tangent = TangentModel(line)
    >>> x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    >>> tangent.jvp(x, torch.eye(3, dtype=torch.float64)).flatten()
    tensor([1., 2., 1.], dtype=torch.float64)
    >>> tangent.vjp(x, torch.ones(1, 1, 1, dtype=torch.float64))
    tensor([[1., 2., 1.]], dtype=torch.float64)
    >>> tangent.used
    'forward'
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        parameters: Choice = None,
        forward: Forward | None = None,
        method: Method = "auto",
        memory: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        self.model, self.method = model, method
        self.memory = None if memory is None else require_count("memory", memory)
        self._weights = Weights(model, parameters)
        self._network = LinearizedNetwork(model, self._weights, forward, method)
        self._halvings = 0
        self._each_alone = True

    @property
    def used(self) -> str | None:
        """How tangents are pushed, known after a first batch: by ``method``, or forward mode one tangent in turn."""
        return None if self._network.way is None else self._network.way.name

    @property
    def mixes(self) -> bool:
        """Whether outputs of a datum were seen to depend on the others in its batch, known after a first batch."""
        return self._network.mixes

    @property
    def num_weights(self) -> int:
        """``d``."""
        return self._weights.size

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters linearized in, in order."""
        return self._weights.names

    @property
    def shapes(self) -> tuple[torch.Size, ...]:
        """Their shapes."""
        return self._weights.shapes

    @property
    def groups(self) -> Int[Tensor, " d"]:
        """The place in ``names`` of the parameter each weight belongs to."""
        return self._weights.groups()

    @property
    def weights(self) -> Float[Tensor, " d"]:
        """A copy of the trained values ``ṽ``."""
        return self._weights.values()

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and products."""
        return self._weights.dtype

    @property
    def device(self) -> torch.device:
        """Of weights and products."""
        return self._weights.device

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, "k d"]:
        """``(k, *shape)`` for every name to ``(k, d)``."""
        return self._weights.flatten(tensors)

    def unflatten(self, flat: Float[Tensor, "k d"]) -> dict[str, Tensor]:
        """``(k, d)`` to ``(k, *shape)`` for every name, as views."""
        return self._weights.unflatten(flat)

    def predict(self, x: Any) -> Float[Tensor, "b *out"]:
        """``g(ṽ, x)``: the network's own outputs."""
        with self._network.linearizing(x):
            return self._predict(x)

    __call__ = predict

    def jvp(self, x: Any, W: Float[Tensor, "k d"] | Mapping[str, Tensor]) -> Float[Tensor, "k b *out"]:
        """``J W``."""
        return self.value_and_jvp(x, W)[1]

    def value_and_jvp(
        self, x: Any, W: Float[Tensor, "k d"] | Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "b *out"], Float[Tensor, "k b *out"]]:
        """``g(ṽ, x)`` and ``J W`` from one pass."""
        tangents = self._weights.stack(W)
        with self._network.linearizing(x):
            return self._value_and_jvp(x, tangents)

    def vjp(self, x: Any, U: Float[Tensor, "k b *out"]) -> Float[Tensor, "k d"]:
        """``Jᵀ U``; :meth:`unflatten` has it by name."""
        U = require_float("U", U)
        if U.ndim < 2 or U.shape[1] != inputs.batch_size(x):
            raise ValueError(
                f"U has shape {tuple(U.shape)}, expected (k, {inputs.batch_size(x)}, *out): one cotangent of all "
                "outputs of the batch per row; a single one is U[None]"
            )
        require_same("U", U, "the model", self)
        with self._network.linearizing(x):
            return self._vjp(x, U.detach())

    def jacobian(self, x: Any) -> Float[Tensor, "m d"]:
        """``J`` as a matrix: rows datum by datum, the outputs of one together."""
        with self._network.linearizing(x), torch.no_grad():
            outputs = self._predict(x)
            if not self._network.data_are_separate(x):
                return self._units_pulled(x, outputs)
            found: list[Tensor] = []
            if self._row_by_row(x, outputs[0].numel(), lambda _, J: found.append(J)):
                return torch.cat(found)
            alone = (slice(i, i + 1) for i in range(len(outputs)))
            return torch.cat([self._units_pulled(inputs.rows(x, i), outputs[i]) for i in alone])

    def sandwich(
        self,
        x: Any,
        W: Float[Tensor, "k d"] | Mapping[str, Tensor],
        weigh: Callable[[Tensor, Tensor], Tensor],
    ) -> Float[Tensor, "k d"]:
        """``Jᵀ weigh(g(ṽ, x), J W)``: with ``weigh`` the likelihood's curvature, ``Jᵀ B J W``.

        ``weigh`` is called once, with the outputs ``(batch, *out)`` and their tangents ``(k, batch, *out)`` of the
        whole batch, and returns cotangents ``(k, batch, *out)``.
        """
        tangents = self._weights.stack(W)
        with self._network.linearizing(x):
            outputs, pushed = self._value_and_jvp(x, tangents)
            U = weigh(outputs, pushed)
            if not isinstance(U, Tensor) or U.shape != pushed.shape:
                got = tuple(U.shape) if isinstance(U, Tensor) else type(U).__name__
                raise ValueError(f"weigh returned {got}, expected cotangents of shape {tuple(pushed.shape)}")
            return self._vjp(x, U.detach())

    @torch.no_grad()
    def _predict(self, x: Any) -> Tensor:
        net, size, point = self._network, inputs.batch_size(x), self._network.point()

        def attempt(plan: Plan) -> Tensor:
            if plan.push_rows == size:
                return net.function(x)(point)
            return torch.cat([net.function(inputs.rows(x, rows))(point) for rows in pieces(size, plan.push_rows)])

        return self._within_memory(x, 1, attempt)

    def _value_and_jvp(self, x: Any, W: Named) -> tuple[Tensor, Tensor]:
        net, size, point = self._network, inputs.batch_size(x), self._network.point()
        if count(W) == 0:
            outputs = self._predict(x)
            return outputs, outputs.new_zeros(0, *outputs.shape)
        if self._outputs_by_rows(x, count(W)) is not None:
            columns, products = self._weights.flatten(W).mT, list[Tensor]()
            with torch.no_grad():
                outputs = self._predict(x)
                if self._row_by_row(x, outputs[0].numel(), lambda _, J: products.append(J @ columns)):
                    return outputs, torch.cat(products).mT.reshape(-1, *outputs.shape)

        def attempt(plan: Plan) -> tuple[Tensor, Tensor]:
            outputs, tangents = [], []
            for rows in pieces(size, plan.push_rows):
                g = net.function(x if plan.push_rows == size else inputs.rows(x, rows))
                pushed = [
                    net.push(g, point, {name: w[part] for name, w in W.items()})
                    for part in pieces(count(W), plan.tangents)
                ]
                outputs.append(pushed[0][0])
                tangents.append(torch.cat([tangent for _, tangent in pushed]))
            return torch.cat(outputs), torch.cat(tangents, dim=1)

        return self._within_memory(x, count(W), attempt)

    def _outputs_by_rows(self, x: Any, tangents: int) -> torch.Size | None:
        """The outputs of one datum, where products go by explicit rows of ``J``: many, and of data each by itself."""
        net, measured = self._network, self.device.type == "cpu"
        if tangents < FEWEST or not measured or not self._each_alone or net.way is None or net.way.name != "forward":
            return None
        if not net.data_are_separate(x):
            return None
        with torch.no_grad():
            shape = net.function(inputs.rows(x, slice(0, 1)))(net.point()).shape[1:]
        return shape if tangents >= MANY * shape.numel() else None

    def _row_by_row(self, x: Any, outputs: int, use: Callable[[slice, Tensor], object]) -> bool:
        """Hand the rows of ``J`` to ``use``, of a few data at a time; false where they are too large, or vmap fails.

        Nothing larger than a few of them is kept.
        """
        largest, wide = self._network.footprint(x).largest, self.num_weights * self.dtype.itemsize
        room = FAST if self.memory is None else min(FAST, self.memory)
        data = int(min(TINY / largest, room / wide) // outputs)
        # Beside some of the data, what is shared by all may be taken for one row of each.
        if not self._each_alone or data == 0 or inputs.shares(x):
            return False
        for part in pieces(inputs.batch_size(x), data):
            try:
                J = self._rows(inputs.rows(x, part))
            except Exception as error:  # layers that vmap cannot see through
                if out_of_memory(error) or part.start > 0:
                    raise
                self._each_alone = False
                return False
            use(part, J)
        return True

    def _rows(self, x: Any) -> Tensor:
        found = each_alone(self._network.function, self._network.point(), x)
        shapes = zip(self.names, self.shapes, strict=True)
        return torch.cat([found[name].reshape(-1, shape.numel()) for name, shape in shapes], dim=1)

    def _units_pulled(self, x: Any, outputs: Tensor) -> Tensor:
        units = torch.eye(outputs.numel(), dtype=self.dtype, device=self.device)
        return self._vjp(x, units.reshape(-1, *outputs.shape))

    def _vjp(self, x: Any, U: Tensor) -> Tensor:
        if len(U) == 0:
            return U.new_zeros(0, self.num_weights)
        net, size, point = self._network, inputs.batch_size(x), self._network.point()
        if self._outputs_by_rows(x, len(U)) == U.shape[2:]:
            total = U.new_zeros(len(U), self.num_weights)
            with torch.no_grad():
                if self._row_by_row(x, U[0, 0].numel(), lambda part, J: total.addmm_(U[:, part].flatten(1), J)):
                    return total

        def attempt(plan: Plan) -> Tensor:
            result = U.new_zeros(len(U), self.num_weights)
            for rows in pieces(size, plan.pull_rows):
                pull = Pullback(net.function(x if plan.pull_rows == size else inputs.rows(x, rows)), point)
                if pull.outputs.shape[1:] != U.shape[2:]:
                    raise ValueError(
                        f"U has shape {tuple(U.shape)} but the outputs are {(size, *pull.outputs.shape[1:])}; give one "
                        "cotangent for every output"
                    )
                for part in pieces(len(U), plan.cotangents if net.pulls_together else 1):
                    together = part.stop - part.start > 1
                    gradients = pull.batched(U[part, rows]) if together else pull(U[part.start, rows])
                    for place, gradient in zip(self._weights.parts, gradients, strict=True):
                        result[part, place] += gradient.reshape(part.stop - part.start, -1)
            return result

        return self._within_memory(x, len(U), attempt)

    def _within_memory(self, x: Any, tangents: int, attempt: Callable[[Plan], Result]) -> Result:
        """In passes of a size that fits; where memory runs out nevertheless, again in passes of half that size."""
        memory = self.memory if self.memory is not None else SHARE * free_memory(self.device)
        fast = FAST if self.device.type == "cpu" else math.inf
        footprint, size = self._network.footprint(x), inputs.batch_size(x)

        def plan(halvings: int) -> Plan:
            parts = Plan.within(memory, footprint, size, tangents, fast).halved(halvings)
            # Data that depend on each other go together, whatever the budget.
            return parts if self._network.data_are_separate(x) else parts.whole(size)

        while True:
            try:
                return attempt(plan(self._halvings))
            except Exception as error:
                if not out_of_memory(error) or plan(self._halvings) == plan(self._halvings + 1):
                    raise
            if self._halvings == 0:
                warnings.warn(
                    f"memory ran out ({gibibytes(memory)} allowed): fewer tangents and data go through the model at a "
                    "time from here on; a smaller memory= avoids the attempt",
                    UserWarning,
                    stacklevel=4,
                )
            self._halvings += 1
