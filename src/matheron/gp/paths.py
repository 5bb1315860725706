"""Posterior functions, as modules."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.gp.draws import PriorFunctions
from matheron.gp.observations import require_rows
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel
from matheron.kernels.rows import take_rows
from matheron.operators import KernelOperator

BLOCK = 8192
"""Inputs predicted at once, so that memory does not grow with their number."""


class Paths(nn.Module):
    """``f_j(·) + K_(·)X (α_y − α_j)``: posterior functions by Matheron's rule (thesis §2.3).

    Calling it gives ``(s, m)``, or ``(s, m, c)`` for several outputs: the same functions at every call, differentiable
    in the inputs. ``paths[i]`` is one of them alone. Where inducing points stand for the data, they are the support.
    After ``.to(dtype)`` they take and give that dtype.

    >>> import torch
    >>> import matheron as mt
    >>> X, g = torch.linspace(0, 6, 50)[:, None], torch.Generator().manual_seed(0)
    >>> posterior = mt.GaussianProcess(mt.kernels.RBF(), 0.01).condition(X, X[:, 0].sin(), num_samples=3, generator=g)
    >>> posterior.paths(X).shape, posterior.paths[0](X).shape, len(posterior.paths)
    (torch.Size([3, 50]), torch.Size([50]), 3)
    """

    support: Float[Tensor, "p d"]
    mean_weights: Float[Tensor, "p c"]
    sample_weights: Float[Tensor, "p k"]
    center: Float[Tensor, " c"]

    def __init__(
        self,
        kernel: Kernel,
        support: Tensor,
        mean_weights: Float[Tensor, "p c"],
        sample_weights: Float[Tensor, "p k"],
        prior: PriorFunctions | None,
        center: Float[Tensor, " c"],
        units: Standardization,
        *,
        single: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.kernel, self.prior, self.units, self.single, self.dtype = kernel, prior, units, single, dtype
        self.picked: int | None = None
        self.register_buffer("support", support)
        self.register_buffer("mean_weights", mean_weights)
        self.register_buffer("sample_weights", sample_weights)
        self.register_buffer("center", center)

    @property
    def outputs(self) -> int:
        """``c``."""
        return self.mean_weights.shape[1]

    def __len__(self) -> int:
        return self.sample_weights.shape[1] // self.outputs

    def __getitem__(self, index: int) -> Paths:
        try:
            index = operator.index(index)
        except TypeError as error:
            raise TypeError(f"index must be a whole number, as functions come one by one, got {index!r}") from error
        if not -len(self) <= index < len(self):
            raise IndexError(f"index is {index}, but there are {len(self)} functions")
        columns = slice((index % len(self)) * self.outputs, (index % len(self) + 1) * self.outputs)
        assert self.prior is not None
        one = copy.copy(self)
        one._buffers = dict(self._buffers)
        one._modules = dict(self._modules)
        one.sample_weights = self.sample_weights[:, columns]
        one.prior = PriorFunctions(self.prior.features, self.prior.weights[:, columns], self.prior.num_features)
        one.picked = index
        return one

    def __iter__(self) -> Iterator[Paths]:
        return (self[index] for index in range(len(self)))

    def forward(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "..."]:
        """Values of the functions at ``x``, in the units of the targets."""
        if len(self) == 0:
            raise ValueError("no functions were drawn; condition with num_samples= of at least one")
        difference = self.mean_weights.repeat(1, len(self)) - self.sample_weights
        values = [self.prior_values(part) + self.pull(part, difference) for part in self.blocks(x)]
        samples = torch.cat(values).unflatten(1, (len(self), self.outputs)).movedim(1, 0)
        samples = self.out(self.units.restore(samples + self.center.to(samples.dtype)))
        return samples if self.picked is None else samples[0]

    def each(self, x: Float[Tensor, "s k d"], first: int = 0) -> Float[Tensor, "s k"]:
        """``f_j(x_j)``: each function, from the ``first`` on, at inputs of its own; differentiable in them.

        All functions at all inputs would be ``s`` times the work. The ``s k`` rows of the kernel matrix are in memory.

        >>> import torch
        >>> import matheron as mt
        >>> X, g = torch.linspace(0, 6, 50)[:, None], torch.Generator().manual_seed(0)
        >>> paths = mt.GaussianProcess(mt.kernels.RBF(), 0.01).condition(X, X[:, 0].sin(), generator=g).paths
        >>> x = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])  # two inputs for each of two functions
        >>> torch.allclose(paths.each(x, first=5)[1], paths[6](x[1]), atol=1e-5)
        True
        """
        if self.outputs != 1:
            raise ValueError(
                f"there are {self.outputs} outputs; functions have inputs of their own for one output only"
            )
        s, k, _ = x.shape
        columns = slice(first, first + s)
        [rows] = self.blocks(x.flatten(0, 1), s * k)
        assert self.prior is not None
        pulled = self.kernel(rows, self.support).unflatten(0, (s, k))
        values = pulled @ (self.mean_weights - self.sample_weights[:, columns]).mT[:, :, None]
        features = self.prior.features(rows).unflatten(0, (s, k))
        values = values + features @ self.prior.weights[:, columns].mT[:, :, None].to(rows.dtype)
        return self.units.restore(values + self.center.to(rows.dtype))[..., 0].to(self.dtype)

    def mean(self, x: Tensor) -> Float[Tensor, "m c"]:
        """``m + K_(·)X α_y``, in standard units."""
        return self.pull(x, self.mean_weights) + self.center.to(x.dtype)

    def mean_and_deviations(self, x: Tensor) -> tuple[Float[Tensor, "m c"], Float[Tensor, "m k"]]:
        """The mean, and the zero-mean functions ``f_j − K_(·)X α_j``, in standard units."""
        both = self.pull(x, torch.cat([self.mean_weights, self.sample_weights], dim=1))
        c = self.outputs
        return both[:, :c] + self.center.to(x.dtype), self.prior_values(x) - both[:, c:]

    def prior_values(self, x: Tensor) -> Float[Tensor, "m k"]:
        """``f_j(x)``."""
        if self.prior is None:
            raise ValueError("no functions were drawn; condition with num_samples= of at least one")
        return self.prior(x)

    def pull(self, x: Tensor, weights: Float[Tensor, "p k"]) -> Float[Tensor, "m k"]:
        """``K_xX weights``, in tiles."""
        return KernelOperator(self.kernel, x, self.support, memory=0) @ weights

    def blocks(self, x: Tensor, size: int = BLOCK) -> Iterator[Tensor]:
        """Checked inputs in standard units and the precision of the solution, some rows at a time."""
        x = self.require_inputs(x)
        parts = (take_rows(x, slice(i, i + size)) for i in range(0, x.shape[0], size))
        return (self.units.inputs(part.to(self.support.dtype)) for part in parts)

    def require_inputs(self, x: Tensor) -> Tensor:
        """Refuse inputs unlike those of training."""
        x = require_rows(self.kernel, x, name="x", least=1)
        if x.shape[1] != self.support.shape[1]:
            raise ValueError(
                f"x has {x.shape[1]} columns but the training inputs had {self.support.shape[1]}; give the same columns"
            )
        if x.dtype != self.dtype:
            raise TypeError(
                f"x is {x.dtype} but the training inputs were {self.dtype}; convert it, for example x.to({self.dtype})"
            )
        return x

    def out(self, values: Float[Tensor, "*b c"]) -> Tensor:
        """In the dtype of the data, and without the column of a single output where the targets had none."""
        return (values[..., 0] if self.single else values).to(self.dtype)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        moved = super()._apply(lambda t: t.to(fn(t).device), recurse)
        moved.units, moved.dtype = self.units.to(moved.center.device), spoken(fn, self.dtype)
        return moved

    def extra_repr(self) -> str:
        """Numbers of functions and outputs."""
        return f"functions={len(self)}, outputs={self.outputs}, support={self.support.shape[0]}"


def spoken(fn: Callable[[Tensor], Tensor], dtype: torch.dtype) -> torch.dtype:
    """What ``.to(dtype)`` makes of the dtype of inputs and answers; numbers inside keep their precision.

    Rounded weights would make other functions: where they were solved for in float64, it was for a reason.
    """
    found = fn(torch.empty(0, dtype=dtype)).dtype
    if found not in (torch.float32, torch.float64):
        raise TypeError(f"dtype is {found}, too coarse for inputs; move to torch.float32 or torch.float64")
    return found
