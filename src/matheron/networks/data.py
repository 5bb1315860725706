"""The observations of a network as data of the linear model whose ``Φ`` is its Jacobian."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
    """``ℓ(y, g(ṽ, x) + J(x)(w − ṽ))``, with ``B`` at the network's own outputs.

    The curvature is computed when it is asked for: by then a product has often found the outputs on its way.
    """

    def __init__(
        self,
        linearization: Linearization | KeptLinearization,
        likelihood: Likelihood,
        labels: Tensor,
        index: Tensor | None = None,
    ) -> None:
        self.features, self.index, self.targets = linearization, index, None
        self.linearization, self.likelihood, self.labels = linearization, likelihood, labels

    @property
    def curvature(self) -> Curvature:
        """``B`` at ``g(ṽ, x)``."""
        if not hasattr(self, "_curvature"):
            self._curvature = self.likelihood.curvature(self.linearization.outputs.flatten(1))
        return self._curvature

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

    The first pass, made here, checks every target and output and counts the data.

    >>> import torch
    >>> from torch import nn
    >>> X, y = torch.randn(10, 3), torch.randint(4, (10,))
    >>> from matheron.networks import Categorical
    >>> data = NetworkData(TangentModel(nn.Linear(3, 4).eval()), Loading.of((X, y)), Categorical())
    >>> data.num_data, data.num_rows, data.num_weights
    (10, 40, 16)
    """

    def __init__(self, tangent: TangentModel, loading: Loading, likelihood: Likelihood, *, affine: bool = True) -> None:
        self.tangent, self.loading, self.likelihood, self.affine = tangent, loading, likelihood, affine
        self.dtype, self.device, self.num_weights = tangent.dtype, tangent.device, tangent.num_weights
        self.quadratic = isinstance(likelihood, Gaussian)
        self.num_data, self.num_rows, self.num_batches = self._examine()

    def batches(self, generator: torch.Generator | None = None) -> Iterator[NetworkBatch]:
        """One pass; a pass of another length than the first is refused."""
        seen = 0
        for x, y in self.loading.walk(generator):
            x = map_tensors(x, lambda t: t.to(self.device))
            size = batch_size(x)
            rows = size * self.num_rows // self.num_data
            features = Linearization(self.tangent, x, rows=rows, affine=self.affine)
            seen += size
            yield NetworkBatch(features, self.likelihood, self.likelihood.place(y, self.dtype, self.device))
        if seen != self.num_data:
            raise ValueError(
                f"loader gave {seen} data in this pass and {self.num_data} in the first; "
                "give one whose passes are alike: no random subsets, no generator that is used up"
            )

    def without_mode(self) -> NetworkData:
        """The same data for samples alone: the offset, which only the mode needs, is not computed."""
        twin = object.__new__(NetworkData)
        twin.__dict__.update(self.__dict__, affine=False)
        return twin

    def kept(self) -> KeptData:
        """The same data with all of ``Φ`` in memory: ``nc × d`` numbers."""
        parts = list(self.batches())
        features = torch.cat([batch.features.dense() for batch in parts])
        outputs = torch.cat([batch.linearization.outputs.flatten(1) for batch in parts])
        offset = torch.cat([batch.linearization.offset for batch in parts])
        targets = torch.cat([batch.labels for batch in parts])
        size = -(-self.num_data // self.num_batches)
        return KeptData(KeptLinearization(features, outputs, offset), self.likelihood, targets, size)

    @property
    def noise_precision(self) -> float:
        """``b`` of a Gaussian likelihood."""
        return _noise_precision(self.likelihood)

    def with_noise_precision(self, precision: float) -> NetworkData:
        """The same data with another noise."""
        twin = object.__new__(NetworkData)
        twin.__dict__.update(self.__dict__, likelihood=_with_noise(self.likelihood, precision))
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

    def __init__(self, features: KeptLinearization, likelihood: Likelihood, targets: Tensor, batch_size: int) -> None:
        super().__init__(features, likelihood.curvature(features.outputs), None, batch_size)
        self.likelihood, self.labels = likelihood, targets
        self.quadratic = isinstance(likelihood, Gaussian)

    def batch(self, features: Operator, curvature: Curvature, index: Tensor, rows: slice | Tensor) -> Batch:
        """Of some data."""
        assert isinstance(features, KeptLinearization)
        return NetworkBatch(features, self.likelihood, self.labels[index], index)

    @property
    def noise_precision(self) -> float:
        """``b`` of a Gaussian likelihood."""
        return _noise_precision(self.likelihood)

    def with_noise_precision(self, precision: float) -> KeptData:
        """The same data with another noise."""
        assert isinstance(self.features, KeptLinearization)
        return KeptData(self.features, _with_noise(self.likelihood, precision), self.labels, self.batch_size)


def _noise_precision(likelihood: Likelihood) -> float:
    if not isinstance(likelihood, Gaussian):
        raise ValueError(f"{type(likelihood).__name__} has no noise to learn; only a Gaussian likelihood has")
    return 1.0 / likelihood.noise


def _with_noise(likelihood: Likelihood, precision: float) -> Gaussian:
    assert isinstance(likelihood, Gaussian)
    return replace(likelihood, noise=1.0 / precision)
