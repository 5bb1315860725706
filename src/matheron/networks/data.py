"""The observations of a network as data of the linear model whose ``Φ`` is its Jacobian."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.archive import digest
from matheron.linear import Batch, Curvature, Data, StoredData
from matheron.networks.inputs import batch_size, flat, moved, tensors
from matheron.networks.likelihood import Likelihood, StructuredLikelihood, losses
from matheron.networks.likelihoods import Gaussian
from matheron.networks.linearization import KeptLinearization, Linearization
from matheron.networks.loading import Loading
from matheron.networks.tangent import TangentModel
from matheron.operators import Operator


class NetworkBatch(Batch):
    """``ℓ(y, g(ṽ, x) + J(x)(w − ṽ))``, with ``B`` at the network's own outputs or at those of a mode.

    A curvature that was not given is computed when it is asked for: by then a product has often found the outputs on
    its way.
    """

    def __init__(
        self,
        linearization: Linearization | KeptLinearization,
        likelihood: Likelihood,
        labels: Tensor,
        index: Tensor | None = None,
        curvature: Curvature | None = None,
    ) -> None:
        self.features, self.index, self.targets = linearization, index, None
        self.linearization, self.likelihood, self.labels = linearization, likelihood, labels
        self._known = curvature

    @property
    def curvature(self) -> Curvature:
        """``B``."""
        if self._known is None:
            assert isinstance(self.linearization, Linearization)
            self._known = self.likelihood.curvature(self.linearization.predicted)
        return self._known

    def loss(self, F: Float[Tensor, "m s"]) -> Float[Tensor, " s"]:
        """Minus the log-likelihood of each column, up to a constant."""
        return torch.stack([self.likelihood.misfit(f, self.labels).sum() for f in self.outputs(F)])

    def loss_gradient(self, F: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """``∂ℓ/∂F``."""
        gradients = [self.likelihood.gradient(f, self.labels).flatten() for f in self.outputs(F)]
        return torch.stack(gradients, dim=1)

    def loss_curvature(self, F: Float[Tensor, " m"]) -> Curvature:
        """``∂²ℓ/∂F²`` at ``F``."""
        return self.likelihood.curvature(self.outputs(F[:, None])[0])

    def outputs(self, F: Float[Tensor, "m s"]) -> Float[Tensor, "s b c"]:
        """Of the tangent model, ``F`` and what does not depend on the weights."""
        return (F + self.linearization.offset[:, None]).mT.reshape(F.shape[1], len(self.linearization.outputs), -1)


class NetworkData(Data):
    """Passes over a user's data; nothing of the size of the data is kept.

    The first pass, made here, checks every target and output and counts the data. ``B`` is taken at the network's
    outputs or, with ``follow=True``, at those of the last mode that expectation maximization found.

    >>> import torch
    >>> from torch import nn
    >>> X, y = torch.randn(10, 3), torch.randint(4, (10,))
    >>> from matheron.networks import Categorical
    >>> data = NetworkData(TangentModel(nn.Linear(3, 4).eval()), Loading.of((X, y)), Categorical())
    >>> data.num_data, data.num_rows, data.num_weights
    (10, 40, 16)
    """

    def __init__(
        self,
        tangent: TangentModel,
        loading: Loading,
        likelihood: Likelihood,
        *,
        affine: bool = True,
        follow: bool = False,
    ) -> None:
        self.tangent, self.loading, self.likelihood, self.affine = tangent, loading, likelihood, affine
        # At the network's own weights the tangent model predicts what the network does.
        self.follow, self.mode, self.guess = follow, None, tangent.weights
        self.dtype, self.device, self.num_weights = tangent.dtype, tangent.device, tangent.num_weights
        self.quadratic = isinstance(likelihood, Gaussian)
        self.num_data, self.num_rows, self.marks = self._examine()
        self.num_batches = len(self.marks)

    mode: Tensor | None
    """Where ``B`` is taken, if not at the network's outputs."""

    marks: tuple[str, ...]
    """A digest of every batch, in the order of the first pass."""

    def batches(self, generator: torch.Generator | None = None) -> Iterator[NetworkBatch]:
        """One pass; a pass of another length than the first is refused."""
        seen = 0
        for x, y in self._walk(generator):
            seen += batch_size(x)
            if seen > self.num_data:
                break
            rows = batch_size(x) * self.num_rows // self.num_data
            features = Linearization(self.tangent, x, rows=rows, affine=self.affine, mode=self.mode)
            yield NetworkBatch(features, self.likelihood, self.likelihood.place(y, self.dtype, self.device))
        if seen != self.num_data:
            raise ValueError(
                f"loader gave {seen} data in this pass and {self.num_data} in the first; "
                "give one whose passes are alike: no random subsets, no generator that is used up"
            )

    def without_mode(self) -> NetworkData:
        """The same data for samples alone: the offset, which only a mode needs, is not computed."""
        return self if self.mode is not None else self._with(affine=False)

    def following(self, mode: Float[Tensor, " d"]) -> NetworkData:
        """The same data with ``B`` at the tangent model's predictions, if it is to follow them."""
        return self._with(mode=mode) if self.follow and not self.quadratic else self

    def offset_share(self) -> float:
        """``‖g − Jṽ‖ / ‖g‖`` on the first batch."""
        first = next(iter(self.batches())).linearization
        return float(first.offset.norm() / first.outputs.norm().clamp(min=1e-30))

    def curvature_share(self) -> float:
        """``tr B`` over that at outputs of zero, on the first batch; one where the likelihood tells no such thing."""
        if self.quadratic or not isinstance(self.likelihood, StructuredLikelihood):
            return 1.0
        outputs = flat(next(iter(self.batches())).linearization.outputs)
        here, most = (self.likelihood.curvature(f).diagonal().sum() for f in (outputs, torch.zeros_like(outputs)))
        return float(here / most) if float(most) > 0.0 else 1.0

    def kept(self, dtype: torch.dtype | None = None) -> KeptData:
        """The same data with all of ``Φ`` in memory: ``nc × d`` numbers; inputs are let go batch by batch."""
        dtype = dtype or self.dtype
        features = torch.empty(self.num_rows, self.num_weights, dtype=dtype, device=self.device)
        outputs, offsets, targets, done = list[Tensor](), list[Tensor](), list[Tensor](), 0
        for batch in self.batches():
            features[done : done + batch.rows] = batch.features.dense()
            done += batch.rows
            outputs.append(flat(batch.linearization.outputs))
            offsets.append(batch.linearization.offset)
            targets.append(batch.labels)
        found = KeptLinearization(features, torch.cat(outputs).to(dtype), torch.cat(offsets).to(dtype))
        size, labels = -(-self.num_data // self.num_batches), torch.cat(targets)
        labels = labels.to(dtype) if labels.is_floating_point() else labels
        return KeptData(found, self.likelihood, labels, size, follow=self.follow, guess=self.tangent.weights.to(dtype))

    def require_order(self) -> None:
        """Refuse data that do not come as in the first pass again, for steps that go by place."""
        if self.loading.steady:
            return
        again = tuple(self._mark(x, y) for x, y in self._walk(None))
        if again != self.marks:
            raise ValueError(
                "loader gives other data, or the same in another order, in every pass, and this method goes by their "
                "place; give a DataLoader of an indexed data set without augmentation, a list of batches, or "
                "method='sgd'"
            )

    def identity(self) -> dict[str, Any]:
        """Sizes, the weights linearized at, inputs and targets, and what is made of them."""
        return super().identity() | {
            "network": digest(self.tangent.weights),
            "data": digest(torch.tensor(list("".join(self.marks).encode()), dtype=torch.uint8)),
            "likelihood": _told(self.likelihood),
            "offset": "affine" if self.affine else "simple",
            "curvature": "tangent" if self.follow else "network",
        }

    @property
    def noise_precision(self) -> float:
        """``b`` of a Gaussian likelihood."""
        return _noise_precision(self.likelihood)

    def with_noise_precision(self, precision: float) -> NetworkData:
        """The same data with another noise."""
        return self._with(likelihood=_with_noise(self.likelihood, precision))

    def _with(self, **changes: Any) -> NetworkData:
        twin = object.__new__(NetworkData)
        twin.__dict__.update(self.__dict__, **changes)
        return twin

    def _walk(self, generator: torch.Generator | None) -> Iterator[tuple[Any, Any]]:
        """Inputs where the model is, with targets as they come."""
        for x, y in self.loading.walk(generator):
            yield moved(x, self.device), y

    def _mark(self, x: Any, y: Any) -> str:
        return digest(*tensors(x), self.likelihood.place(y, self.dtype, self.device))

    def _examine(self) -> tuple[int, int, tuple[str, ...]]:
        data, rows, marks = 0, 0, list[str]()
        for x, y in self._walk(None):
            outputs = flat(self.tangent.predict(x))
            if not bool(outputs.isfinite().all()):
                raise ValueError(
                    f"the model gives NaN or infinite outputs in batch {len(marks)}; train it again or mend the inputs"
                )
            if outputs.shape[1] * data != rows:
                raise ValueError(
                    f"the model gives {outputs.shape[1]} outputs in batch {len(marks)} and {rows // data} before: "
                    "give all as many, with forward= for those of a sequence"
                )
            targets = self.likelihood.require_targets(y, outputs)
            if not bool(losses(self.likelihood, outputs, targets).isfinite().all()):
                raise ValueError(
                    f"the loss of batch {len(marks)} is NaN or infinite; check its targets and the likelihood"
                )
            marks.append(self._mark(x, y))
            data, rows = data + len(outputs), rows + outputs.numel()
        if data == 0:
            raise ValueError("loader is empty; give it at least one batch")
        if self.tangent.mixes:
            warnings.warn(
                "the model's outputs for a datum depend on the others in its batch (a normalization layer without "
                "running statistics, or one that takes the batch for a sequence?): its functions are other ones in "
                "every batch, and not what is fitted here; make it treat each datum by itself in evaluation mode",
                stacklevel=5,
            )
        return data, rows, tuple(marks)


class KeptData(StoredData):
    """The data of a small network with its Jacobian in memory."""

    features: KeptLinearization

    def __init__(
        self,
        features: KeptLinearization,
        likelihood: Likelihood,
        targets: Tensor,
        batch_size: int,
        *,
        follow: bool = False,
        mode: Float[Tensor, " d"] | None = None,
        guess: Float[Tensor, " d"] | None = None,
    ) -> None:
        at = features.outputs
        if mode is not None:
            at = (features.matrix @ mode + features.offset).reshape(at.shape)
        super().__init__(features, likelihood.curvature(at), None, batch_size)
        self.likelihood, self.labels, self.follow, self.guess = likelihood, targets, follow, guess
        self.quadratic = isinstance(likelihood, Gaussian)

    def identity(self) -> dict[str, Any]:
        """Sizes and features, the outputs around which they are, the targets, and what is made of them."""
        return super().identity() | {
            "network": digest(self.features.outputs),
            "offset": digest(self.features.offset),
            "data": digest(self.labels),
            "likelihood": _told(self.likelihood),
            "curvature": "tangent" if self.follow else "network",
        }

    def batch(self, features: Operator, curvature: Curvature, index: Tensor, rows: slice | Tensor) -> Batch:
        """Of some data."""
        assert isinstance(features, KeptLinearization)
        return NetworkBatch(features, self.likelihood, self.labels[index], index, curvature)

    def following(self, mode: Float[Tensor, " d"]) -> KeptData:
        """The same data with ``B`` at the tangent model's predictions, if it is to follow them."""
        if not self.follow or self.quadratic:
            return self
        return KeptData(
            self.features, self.likelihood, self.labels, self.batch_size, follow=True, mode=mode, guess=self.guess
        )

    @property
    def noise_precision(self) -> float:
        """``b`` of a Gaussian likelihood."""
        return _noise_precision(self.likelihood)

    def with_noise_precision(self, precision: float) -> KeptData:
        """The same data with another noise."""
        likelihood = _with_noise(self.likelihood, precision)
        return KeptData(self.features, likelihood, self.labels, self.batch_size, guess=self.guess)


def _told(likelihood: Likelihood) -> str:
    """What it is and by which values, without the address by which Python calls an object."""
    by_values = type(likelihood).__repr__ is not object.__repr__
    return repr(likelihood) if by_values else type(likelihood).__qualname__


def _noise_precision(likelihood: Likelihood) -> float:
    if not isinstance(likelihood, Gaussian):
        raise ValueError(f"{type(likelihood).__name__} has no noise to learn; only a Gaussian likelihood has")
    return 1.0 / likelihood.noise


def _with_noise(likelihood: Likelihood, precision: float) -> Gaussian:
    assert isinstance(likelihood, Gaussian)
    return replace(likelihood, noise=1.0 / precision)
