"""The observations of a network as data of the linear model whose ``Φ`` is its Jacobian."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.linear import Batch, Curvature, Data, StoredData
from matheron.networks.inputs import batch_size, map_tensors
from matheron.networks.likelihood import Likelihood
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
        self.follow, self.mode = follow, None
        self.dtype, self.device, self.num_weights = tangent.dtype, tangent.device, tangent.num_weights
        self.quadratic = isinstance(likelihood, Gaussian)
        self.num_data, self.num_rows, self.num_batches = self._examine()

    mode: Tensor | None
    """Where ``B`` is taken, if not at the network's outputs."""

    def batches(self, generator: torch.Generator | None = None) -> Iterator[NetworkBatch]:
        """One pass; a pass of another length than the first is refused."""
        seen = 0
        for x, y in self.loading.walk(generator):
            x = map_tensors(x, lambda t: t.to(self.device))
            size = batch_size(x)
            rows = size * self.num_rows // self.num_data
            features = Linearization(self.tangent, x, rows=rows, affine=self.affine, mode=self.mode)
            seen += size
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

    def kept(self) -> KeptData:
        """The same data with all of ``Φ`` in memory: ``nc × d`` numbers."""
        parts = list(self.batches())
        features = torch.cat([batch.features.dense() for batch in parts])
        outputs = torch.cat([batch.linearization.outputs.flatten(1) for batch in parts])
        offset = torch.cat([batch.linearization.offset for batch in parts])
        targets = torch.cat([batch.labels for batch in parts])
        size = -(-self.num_data // self.num_batches)
        return KeptData(
            KeptLinearization(features, outputs, offset), self.likelihood, targets, size, follow=self.follow
        )

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

    def _examine(self) -> tuple[int, int, int]:
        data, rows, batches = 0, 0, 0
        for x, y in self.loading.walk(None):
            outputs = self.tangent.predict(x).flatten(1)
            if not bool(outputs.isfinite().all()):
                raise ValueError(
                    f"the model gives NaN or infinite outputs in batch {batches}; train it again or mend the inputs"
                )
            targets = self.likelihood.require_targets(y, outputs)
            if not bool(self.likelihood.negative_log_likelihood(outputs, targets).isfinite().all()):
                raise ValueError(
                    f"the loss of batch {batches} is NaN or infinite; check its targets and the likelihood"
                )
            data, rows, batches = data + len(outputs), rows + outputs.numel(), batches + 1
        if data == 0:
            raise ValueError("loader is empty; give it at least one batch")
        return data, rows, batches


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
    ) -> None:
        at = features.outputs
        if mode is not None:
            at = (features.matrix @ mode + features.offset).reshape(at.shape)
        super().__init__(features, likelihood.curvature(at), None, batch_size)
        self.likelihood, self.labels, self.follow = likelihood, targets, follow
        self.quadratic = isinstance(likelihood, Gaussian)

    def batch(self, features: Operator, curvature: Curvature, index: Tensor, rows: slice | Tensor) -> Batch:
        """Of some data."""
        assert isinstance(features, KeptLinearization)
        return NetworkBatch(features, self.likelihood, self.labels[index], index, curvature)

    def following(self, mode: Float[Tensor, " d"]) -> KeptData:
        """The same data with ``B`` at the tangent model's predictions, if it is to follow them."""
        if not self.follow or self.quadratic:
            return self
        return KeptData(self.features, self.likelihood, self.labels, self.batch_size, follow=True, mode=mode)

    @property
    def noise_precision(self) -> float:
        """``b`` of a Gaussian likelihood."""
        return _noise_precision(self.likelihood)

    def with_noise_precision(self, precision: float) -> KeptData:
        """The same data with another noise."""
        return KeptData(self.features, _with_noise(self.likelihood, precision), self.labels, self.batch_size)


def _noise_precision(likelihood: Likelihood) -> float:
    if not isinstance(likelihood, Gaussian):
        raise ValueError(f"{type(likelihood).__name__} has no noise to learn; only a Gaussian likelihood has")
    return 1.0 / likelihood.noise


def _with_noise(likelihood: Likelihood, precision: float) -> Gaussian:
    assert isinstance(likelihood, Gaussian)
    return replace(likelihood, noise=1.0 / precision)
