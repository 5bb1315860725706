"""Inputs and targets in units of their own spread."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Standardization:
    """``(x − m_x) / s_x`` and ``(y − m_y) / s_y``, with the means and standard deviations of the training rows.

    A constant column is left at zero, a constant target at scale one. Statistics are in float64.

    >>> import torch
    >>> X = torch.tensor([[0.0, 7.0], [2.0, 7.0]])
    >>> units = Standardization.of(X, torch.tensor([[10.0], [30.0]]))
    >>> units.inputs(X)
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    >>> units.restore(torch.zeros(1, 1))
    tensor([[20.]])
    """

    x_mean: Float[Tensor, " d"]
    x_scale: Float[Tensor, " d"]
    y_mean: Float[Tensor, " c"]
    y_scale: Float[Tensor, " c"]

    @classmethod
    def of(cls, X: Float[Tensor, "n d"], Y: Float[Tensor, "n c"]) -> Standardization:
        """The statistics of these rows."""
        if X.layout != torch.strided:
            raise ValueError(
                "standardize=True needs dense inputs, as centering would fill a sparse matrix; "
                "scale the columns beforehand, or leave it out"
            )
        return cls(*_statistics(X), *_statistics(Y))

    @classmethod
    def none(cls, X: Tensor, Y: Float[Tensor, "n c"]) -> Standardization:
        """Leaves everything as it is."""
        zeros = [torch.zeros(V.shape[1], dtype=torch.float64, device=V.device) for V in (X, Y)]
        return cls(zeros[0], torch.ones_like(zeros[0]), zeros[1], torch.ones_like(zeros[1]))

    @property
    def trivial(self) -> bool:
        """Whether nothing changes."""
        moved = any(bool((mean != 0).any()) for mean in (self.x_mean, self.y_mean))
        return not moved and all(bool((scale == 1).all()) for scale in (self.x_scale, self.y_scale))

    def inputs(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """``(x − m_x) / s_x``."""
        if x.layout != torch.strided or (bool((self.x_mean == 0).all()) and bool((self.x_scale == 1).all())):
            return x
        # In float64, since a column such as a year loses digits when its mean is taken off in float32.
        return ((x.double() - self.x_mean) / self.x_scale).to(x.dtype)

    def targets(self, Y: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """``(y − m_y) / s_y``."""
        return Y if self.trivial else ((Y.double() - self.y_mean) / self.y_scale).to(Y.dtype)

    def restore(self, Y: Float[Tensor, "*b c"]) -> Float[Tensor, "*b c"]:
        """``s_y y + m_y``."""
        return Y if self.trivial else Y * self.y_scale.to(Y.dtype) + self.y_mean.to(Y.dtype)

    def restore_variance(self, V: Float[Tensor, "*b c"]) -> Float[Tensor, "*b c"]:
        """``s_y² v``."""
        return V if self.trivial else V * self.y_scale.square().to(V.dtype)

    def to(self, device: torch.device | str) -> Standardization:
        """On another device."""
        return Standardization(*(t.to(device) for t in (self.x_mean, self.x_scale, self.y_mean, self.y_scale)))


def _statistics(V: Tensor) -> tuple[Tensor, Tensor]:
    values = V.detach().double()
    # Equal extremes and not a zero deviation: the rounded mean of a constant column leaves a tiny one.
    constant = values.amin(0) == values.amax(0)
    scale = values.std(0, correction=0).masked_fill(constant, 1.0)
    return torch.where(constant, values[0], values.mean(0)), scale
