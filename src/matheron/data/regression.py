"""Regression sets, and splits of them standardized with training statistics."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from matheron.arguments import require_count, require_finite, require_float, require_inputs

ALWAYS_TRAIN = 255
TEST_FRACTION = 10


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and targets as ``(value - mean) / scale``, with the mean and scale (population) of the training rows.

    A column that is constant over the training rows is zero throughout, since it says nothing about the target.

    >>> X = torch.tensor([[0.0, 7.0], [2.0, 7.0], [4.0, 8.0]])
    >>> split = standardize(X, torch.tensor([1.0, 3.0, 5.0]), test=torch.tensor([False, False, True]))
    >>> split.X_train
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    >>> split.y_test, split.restore(split.y_test)
    (tensor([3.]), tensor([5.]))
    """

    X_train: Float[Tensor, "n d"]
    y_train: Float[Tensor, " n"]
    X_test: Float[Tensor, "m d"]
    y_test: Float[Tensor, " m"]
    y_mean: float
    y_scale: float

    def restore(self, y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return standardized targets or predictions in raw units; a standard deviation is only times ``y_scale``."""
        return y * self.y_scale + self.y_mean


@dataclass(frozen=True, eq=False)
class Regression:
    """Inputs ``X`` and targets ``y`` in raw units, with the test fold of every row where a benchmark fixes one.

    Split ``i`` tests on the rows with ``folds == i``; rows with fold 255 are never tested on. Without folds, split
    ``i`` tests on a tenth of the rows, drawn with a generator seeded by ``i``.

    >>> X = torch.arange(20.0)[:, None]
    >>> line = Regression("line", X, 3 * X[:, 0] + 1)
    >>> split = line.split(0)
    >>> split.X_train.shape, split.X_test.shape
    (torch.Size([18, 1]), torch.Size([2, 1]))
    >>> bool((split.restore(split.y_train) > 0).all())
    True
    """

    name: str
    X: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    folds: UInt8[Tensor, " n"] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_inputs("X", self.X)
        require_targets(self.y, self.rows)
        if self.folds is not None and (self.folds.shape != self.y.shape or self.folds.dtype != torch.uint8):
            raise ValueError(
                f"folds must be one uint8 per row, shape ({self.rows},), "
                f"got {self.folds.dtype} of shape {tuple(self.folds.shape)}"
            )
        if self.columns is not None and len(self.columns) != self.X.shape[1]:
            raise ValueError(f"columns has {len(self.columns)} names for the {self.X.shape[1]} columns of X; name each")

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.X.shape[0]

    def split(self, index: int, dtype: torch.dtype = torch.float32) -> Split:
        """Return split ``index``, standardized in float64 and then cast to ``dtype``."""
        return standardize(self.X, self.y, self.test_rows(index), dtype)

    def test_rows(self, index: int) -> Bool[Tensor, " n"]:
        """Return which rows split ``index`` tests on."""
        require_count("index", index, least=0)
        if self.folds is not None:
            test = self.folds == index
            if index == ALWAYS_TRAIN or not bool(test.any()):
                known = sorted(set(self.folds.unique().tolist()) - {ALWAYS_TRAIN})
                raise ValueError(f"index is {index}, but {self.name} has splits {known}; choose one of them")
            return test
        generator = torch.Generator().manual_seed(index)
        chosen = torch.randperm(self.rows, generator=generator)[: max(1, self.rows // TEST_FRACTION)]
        test = torch.zeros(self.rows, dtype=torch.bool)
        test[chosen] = True
        return test


def require_targets(y: Tensor, rows: int) -> None:
    """Refuse targets that are not one finite floating-point number per row."""
    require_finite("y", require_float("y", y))
    if y.shape != (rows,):
        raise ValueError(f"y must have shape ({rows},), one target per row of X, got {tuple(y.shape)}")


def standardize(
    X: Float[Tensor, "n d"], y: Float[Tensor, " n"], test: Bool[Tensor, " n"], dtype: torch.dtype = torch.float32
) -> Split:
    """Part the rows into training and test rows and standardize both with the statistics of the training rows."""
    if not bool(test.any()) or bool(test.all()):
        raise ValueError(f"test marks {int(test.sum())} of {len(test)} rows; both parts need at least one row")
    # Float64, since a float32 mean of raw columns such as a year or an identifier loses digits.
    inputs, targets = X.double(), y.double()
    inputs_train, targets_train = inputs[~test], targets[~test]
    # Equality of the extremes and not a zero deviation: the rounded mean of a constant column leaves a tiny one.
    constant = inputs_train.amin(0) == inputs_train.amax(0)
    mean = inputs_train.mean(0)
    scale = inputs_train.std(0, correction=0).masked_fill(constant, 1.0)
    inputs_train = ((inputs_train - mean) / scale).masked_fill(constant, 0.0)
    inputs_test = ((inputs[test] - mean) / scale).masked_fill(constant, 0.0)
    y_mean = float(targets_train.mean())
    y_scale = 1.0 if bool((targets_train == targets_train[0]).all()) else float(targets_train.std(correction=0))
    return Split(
        X_train=inputs_train.to(dtype),
        y_train=((targets_train - y_mean) / y_scale).to(dtype),
        X_test=inputs_test.to(dtype),
        y_test=((targets[test] - y_mean) / y_scale).to(dtype),
        y_mean=y_mean,
        y_scale=y_scale,
    )
