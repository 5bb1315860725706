"""What was observed, a batch at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from matheron.archive import digest
from matheron.arguments import require_count, require_finite, require_float, require_same
from matheron.linear.curvature import Curvature, GaussianCurvature
from matheron.operators import Dense, Operator


class Batch:
    """Some rows of ``Φ`` with their ``B``, their targets, and the loss ``½‖Y − F‖²_B`` of predictions ``F = Φw``.

    ``index`` says which data these are, where that is known; their rows are whole. A likelihood that is not Gaussian
    overrides :meth:`loss`, :meth:`loss_gradient` and :meth:`loss_curvature`; an affine model adds its offset to ``F``
    there.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> batch = Batch(Dense(torch.eye(2)), GaussianCurvature(2.0, size=2), targets=torch.ones(2))
    >>> batch.loss_gradient(torch.zeros(2, 1)).flatten(), batch.loss(torch.zeros(2, 1))
    (tensor([-2., -2.]), tensor([2.]))
    """

    def __init__(
        self,
        features: Operator,
        curvature: Curvature,
        index: Int[Tensor, " b"] | None = None,
        targets: Float[Tensor, " m"] | None = None,
    ) -> None:
        self.features, self.index, self.targets, self._curvature = features, index, targets, curvature

    @property
    def curvature(self) -> Curvature:
        """``B`` of these rows."""
        return self._curvature

    @property
    def rows(self) -> int:
        """Rows of ``Φ``: data times outputs."""
        return self.features.shape[0]

    def loss(self, F: Float[Tensor, "m s"]) -> Float[Tensor, " s"]:
        """Minus the log-likelihood of each column, up to a constant."""
        error = self._error(F)
        return 0.5 * (error * (self.curvature @ error)).sum(0)

    def loss_gradient(self, F: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        """``∂ℓ/∂F``."""
        return self.curvature @ self._error(F)

    def loss_curvature(self, F: Float[Tensor, " m"]) -> Curvature:
        """``∂²ℓ/∂F²`` at ``F``, which a Gaussian likelihood has everywhere alike."""
        return self.curvature

    def _error(self, F: Float[Tensor, "m s"]) -> Float[Tensor, "m s"]:
        if self.targets is None:
            raise ValueError("these data have no targets, so there is no mode; give targets=, or leave the mode out")
        return F - self.targets[:, None]


class Data(ABC):
    """All observations, walked a batch at a time.

    >>> import torch
    >>> from matheron.linear import Batch, Data, GaussianCurvature
    >>> from matheron.operators import Dense
    >>> class Line(Data):  # a slope from a million points that are made as they are needed
    ...     num_weights, num_rows, num_data, num_batches = 1, 1_000_000, 1_000_000, 1_000
    ...     dtype, device = torch.float32, torch.device("cpu")
    ...
    ...     def batches(self, generator=None):
    ...         for _ in range(self.num_batches):
    ...             x = torch.linspace(0, 1, 1_000)
    ...             yield Batch(Dense(x[:, None]), GaussianCurvature(1.0, size=1_000), targets=2.0 * x)
    >>> from matheron.linear import DiagonalPrior, solve_dense
    >>> solve_dense(Line(), DiagonalPrior(1.0, num_weights=1), 2, generator=0).mode.round(decimals=3)
    tensor([2.])
    """

    num_weights: int
    num_rows: int
    num_data: int
    num_batches: int
    dtype: torch.dtype
    device: torch.device
    quadratic: bool = True
    """Whether the loss is ``½‖Y − F‖²_B`` with the ``B`` of the batches."""
    guess: Float[Tensor, " d"] | None = None
    """Weights known to fit the data, if any are: the search for a mode sets out from a multiple of them."""

    @abstractmethod
    def batches(self, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """One pass over all data: batches of random data with a generator, the same in the same order without."""

    def in_order(self) -> Iterator[tuple[slice, Batch]]:
        """The fixed order, each batch with the rows it holds."""
        done = 0
        for batch in self.batches():
            yield slice(done, done + batch.rows), batch
            done += batch.rows

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with for these to be the same observations."""
        return {"weights": self.num_weights, "rows": self.num_rows}

    @property
    def noise_precision(self) -> float:
        """``b``, where ``B = bI``."""
        raise ValueError(f"{type(self).__name__} has no single noise precision to learn; leave learn_noise out")

    def with_noise_precision(self, precision: float) -> Data:
        """The same observations with ``B = bI``."""
        raise ValueError(f"{type(self).__name__} has no single noise precision to learn; leave learn_noise out")

    def without_mode(self) -> Data:
        """The same observations for samples alone, without what only a mode needs."""
        return self

    def following(self, mode: Float[Tensor, " d"]) -> Data:
        """The same observations with ``B`` at the predictions of ``mode``; themselves where ``B`` stays."""
        return self


class StoredData(Data):
    """Observations with their features as one operator; rows of a datum stay together, ``curvature.outputs`` of them.

    ``targets`` is ``(m,)`` or ``(n, c)``; without ``batch_size`` (in data) all of them are one batch.

    >>> import torch
    >>> from matheron.operators import Dense
    >>> Phi, B = Dense(torch.randn(6, 4)), GaussianCurvature(1.0, size=6, outputs=2)
    >>> data = StoredData(Phi, B, torch.zeros(6), batch_size=2)
    >>> [batch.rows for batch in data.batches()]
    [4, 2]
    """

    def __init__(
        self,
        features: Operator,
        curvature: Curvature,
        targets: Float[Tensor, " m"] | Float[Tensor, "n c"] | None = None,
        batch_size: int | None = None,
    ) -> None:
        if not isinstance(features, Operator) or not isinstance(curvature, Curvature):
            raise TypeError("features must be an Operator such as Dense(Phi), and curvature a Curvature")
        require_same("curvature", curvature, "features", features)
        if curvature.shape[0] != features.shape[0]:
            raise ValueError(f"curvature has {curvature.shape[0]} rows but features has {features.shape[0]}")
        self.num_rows, self.num_weights = features.shape
        self.num_data, self.outputs = curvature.num_data, curvature.outputs
        self.dtype, self.device = features.dtype, features.device
        self.features, self.curvature = features, curvature
        self.targets = None if targets is None else self._require_targets(targets)
        self.batch_size = self.num_data if batch_size is None else require_count("batch_size", batch_size)
        self.num_batches = -(-self.num_data // self.batch_size)

    def batches(self, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Slices in order, or of one random permutation per pass."""
        order = torch.arange(self.num_data)
        if generator is not None and self.num_batches > 1:
            order = torch.randperm(self.num_data, generator=generator, device=generator.device)
        order = order.to(self.device)
        outputs = torch.arange(self.outputs, device=self.device)
        for start in range(0, self.num_data, self.batch_size):
            index = order[start : start + self.batch_size]
            if generator is None or self.num_batches == 1:
                rows: slice | Tensor = slice(start * self.outputs, (start + len(index)) * self.outputs)
            else:
                rows = (index[:, None] * self.outputs + outputs).flatten()
            yield self.batch(self.features.rows(rows), self.curvature.take(index), index, rows)

    def batch(self, features: Operator, curvature: Curvature, index: Tensor, rows: slice | Tensor) -> Batch:
        """The batch of some rows; other likelihoods make their own."""
        return Batch(features, curvature, index, None if self.targets is None else self.targets[rows])

    def identity(self) -> dict[str, Any]:
        """Sizes, targets and, where they are stored, the first row of the features."""
        found = super().identity()
        if self.targets is not None:
            found["targets"] = digest(self.targets)
        if isinstance(self.features, Dense):
            found["features"] = digest(self.features.matrix[:1])
        return found

    @property
    def noise_precision(self) -> float:
        """``b``, where ``B = bI``."""
        values = self.curvature.diagonal()
        if not isinstance(self.curvature, GaussianCurvature) or bool((values != values[0]).any()):
            return super().noise_precision
        return float(values[0])

    def with_noise_precision(self, precision: float) -> StoredData:
        """The same observations with ``B = bI``."""
        curvature = GaussianCurvature(
            precision, self.num_rows, outputs=self.outputs, dtype=self.dtype, device=self.device
        )
        return StoredData(self.features, curvature, self.targets, self.batch_size)

    def _require_targets(self, targets: Tensor) -> Tensor:
        targets = require_finite("targets", require_float("targets", targets))
        if targets.shape not in ((self.num_rows,), (self.num_data, self.outputs)):
            raise ValueError(
                f"targets has shape {tuple(targets.shape)}; "
                f"give ({self.num_rows},) or ({self.num_data}, {self.outputs})"
            )
        require_same("targets", targets, "features", self)
        return targets.reshape(-1)
