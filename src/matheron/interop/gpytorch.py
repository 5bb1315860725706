"""GPyTorch kernels as kernels of this library."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels import (
    RBF,
    FeatureMap,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    NoFeaturesError,
    Periodic,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
from matheron.kernels.lengthscale import LengthscaleKernel

try:
    import gpytorch.kernels as theirs
    from linear_operator import to_dense
except ImportError as error:
    raise ImportError("matheron.interop.gpytorch needs GPyTorch; pip install 'matheron[gpytorch]'") from error

Columns = tuple[int, ...] | None

MATERN: dict[float, Callable[..., LengthscaleKernel]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52}


__all__ = ["GPyTorchKernel", "kernel"]


def kernel(covar_module: Any, *, native: bool = True) -> Kernel:
    """``k(x, z) = covar_module(x, z).to_dense()`` as a kernel of this library, at its present hyperparameters.

    With ``native=True`` RBF, Matérn, rational quadratic, periodic and linear kernels, their sums, products and scales,
    become our own: faster, with random features. What is left is wrapped (:class:`GPyTorchKernel`), as is everything
    with ``native=False``. Hyperparameters are copied: fitting never changes ``covar_module``. An output scale becomes
    the ``variance``; without one the variance is held at one. Frozen hyperparameters stay frozen. GPyTorch's priors are
    not carried over, nor bounds on the hyperparameters of translated kernels; a warning names those left behind.

    >>> import gpytorch
    >>> theirs = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=3))
    >>> theirs.outputscale = 2.0
    >>> ours = kernel(theirs)
    >>> type(ours).__name__, round(ours.variance.item(), 6), ours.lengthscale.shape
    ('Matern32', 2.0, torch.Size([3]))
    """
    if not isinstance(covar_module, theirs.Kernel):
        raise TypeError(f"covar_module must be a gpytorch.kernels.Kernel, got {type(covar_module).__name__}")
    if len(covar_module.batch_shape) > 0:
        raise ValueError(
            f"covar_module has batch shape {tuple(covar_module.batch_shape)}; give it a kernel without one, "
            "for independent outputs pass targets of shape (n, c), which share a kernel"
        )
    if any(isinstance(part, theirs.InducingPointKernel) for part in covar_module.modules()):
        raise TypeError(
            "covar_module has an InducingPointKernel, whose entries depend on the whole matrix; give it the base "
            "kernel and pass inducing= to condition"
        )
    if any(getattr(part, "grid_is_dynamic", False) for part in covar_module.modules()):
        raise TypeError(
            "covar_module has a GridInterpolationKernel without bounds, whose grid moves with the inputs it is given; "
            "pass it grid_bounds="
        )
    # In float64, as hyperparameters are here; a float32 softplus would lose digits that its inverse needs.
    module = copy.deepcopy(covar_module).double()
    translation = Translation()
    native = native and not _ties(module)
    result = translation.called(module, None) if native else wrapped(module, _compose(None, module))
    left = [name for name, *_ in module.named_priors()] + translation.bounded
    if left:
        warnings.warn(
            f"covar_module has {', '.join(left)}, which are not carried over; pass priors= to GaussianProcess.fit, "
            "or native=False to keep bounds",
            stacklevel=2,
        )
    return result


class GPyTorchKernel(Kernel):
    """``k(x, z)`` as a GPyTorch kernel evaluates it: dense, tile by tile, in float64.

    Its parameters are those of ``module``, unconstrained as GPyTorch stores them, so that fitting learns them. It has
    no random features: condition with ``num_samples=0`` for the mean and exact variances.

    >>> import gpytorch
    >>> import torch
    >>> k = kernel(gpytorch.kernels.CosineKernel())
    >>> k(torch.zeros(3, 2), torch.ones(4, 2)).shape, [name for name, _ in k.named_parameters()]
    (torch.Size([3, 4]), ['module.raw_period_length'])
    """

    def __init__(self, module: nn.Module, *, columns: Sequence[int] | None = None) -> None:
        super().__init__(columns)
        self.module = module

    def covariance(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """One tile."""
        x, dtype, z = x.double(), x.dtype, z.double()
        # Between equal inputs GPyTorch goes other ways, some of them through factorizations with jitter. A further
        # row keeps it on the plain way, on which only the diagonal can be off by rounding.
        square = torch.equal(x, z)
        value = to_dense(self.module(x, torch.cat([z, z[:1]]) if square else z))
        if square and value.shape == (x.shape[0], z.shape[0] + 1):
            value = value[:, :-1].diagonal_scatter(to_dense(self.module(x, diag=True)))
        if value.shape != (x.shape[0], z.shape[0]):
            raise ValueError(
                f"the GPyTorch kernel {self.name} gives {tuple(value.shape)} for {x.shape[0]} and {z.shape[0]} rows; "
                "kernels with several outputs per input are not supported, use one without"
            )
        return value.to(dtype)

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """``k(x_i, x_i)`` by GPyTorch's own way."""
        return to_dense(self.module(self.select(x).double(), diag=True)).to(x.dtype)

    def dimension(self) -> int | None:
        """That of ``ard_num_dims``, also below scales, where GPyTorch does not look for it."""
        module: Any = self.module
        while isinstance(module, theirs.ScaleKernel):
            module = module.base_kernel
        return module.ard_num_dims

    def features(
        self,
        num: int,
        *,
        dimension: int | None = None,
        orthogonal: bool = False,
        generator: torch.Generator | int | None = None,
    ) -> FeatureMap:
        """There are none."""
        raise NoFeaturesError(
            f"the GPyTorch kernel {self.name} has no random features; condition with num_samples=0, "
            "which gives the mean and exact variances"
        )

    @property
    def name(self) -> str:
        """What GPyTorch calls it."""
        return type(self.module).__name__


def wrapped(module: Any, columns: Columns) -> GPyTorchKernel:
    """The module on ``columns``, which stand for its own ``active_dims``."""
    module.active_dims = None
    return GPyTorchKernel(module, columns=columns)


class Translation:
    """Kernel by kernel into our own; subclasses of GPyTorch's may mean something else, and are left as they are."""

    leaves: ClassVar[tuple[type, ...]] = (
        theirs.RBFKernel,
        theirs.MaternKernel,
        theirs.RQKernel,
        theirs.PeriodicKernel,
        theirs.LinearKernel,
    )

    def __init__(self) -> None:
        self.bounded: list[str] = []

    def called(self, module: Any, columns: Columns) -> Kernel:
        """``module(x, z)`` for ``x`` restricted to ``columns``, of which it selects its ``active_dims``."""
        return self.forwarded(module, _compose(columns, module))

    def forwarded(self, module: Any, columns: Columns) -> Kernel:
        """``module.forward(x, z)``, for which ``active_dims`` mean nothing: a scale calls its base this way."""
        kind = type(module)
        if kind is theirs.ScaleKernel:
            return self.scaled(module, self.forwarded(module.base_kernel, columns))
        if kind is theirs.AdditiveKernel:
            return Sum(*(self.called(part, columns) for part in module.kernels))
        if kind is theirs.ProductKernel:
            return Product(*(self.called(part, columns) for part in module.kernels))
        return self.leaf(module, columns) if kind in self.leaves else wrapped(module, columns)

    def scaled(self, module: Any, part: Kernel) -> Kernel:
        """The variance where that is free, a scale around it otherwise."""
        self.note_bounds(module, "outputscale")
        scale = module.outputscale.detach()
        if isinstance(part, LengthscaleKernel) and not part.log_variance.requires_grad:
            part.variance = part.variance.detach() * scale
            part.log_variance.requires_grad_(module.raw_outputscale.requires_grad)
            return part
        result = Scaled(part, scale)
        result.log_scale.requires_grad_(module.raw_outputscale.requires_grad)
        return result

    def leaf(self, module: Any, columns: Columns) -> Kernel:
        """A kernel of variance one, with GPyTorch's conventions turned into ours."""
        found: LengthscaleKernel
        if isinstance(module, theirs.LinearKernel):
            # v Σ x z is Σ x z / ℓ².
            found = Linear(self.value(module, "variance").rsqrt(), columns=columns)
            found.log_lengthscale.requires_grad_(module.raw_variance.requires_grad)
        else:
            lengthscale = self.value(module, "lengthscale")
            if isinstance(module, theirs.MaternKernel):
                found = MATERN[module.nu](lengthscale, columns=columns)
            elif isinstance(module, theirs.RQKernel):
                found = RationalQuadratic(lengthscale, self.value(module, "alpha").squeeze(), columns=columns)
                found.log_alpha.requires_grad_(module.raw_alpha.requires_grad)
            elif isinstance(module, theirs.PeriodicKernel):
                # GPyTorch divides by ℓ where we divide by ℓ².
                found = Periodic(self.value(module, "period_length"), lengthscale.sqrt(), columns=columns)
                found.log_period.requires_grad_(module.raw_period_length.requires_grad)
            else:
                found = RBF(lengthscale, columns=columns)
            found.log_lengthscale.requires_grad_(module.raw_lengthscale.requires_grad)
        found.log_variance.requires_grad_(False)
        return found

    def value(self, module: Any, name: str) -> Tensor:
        """A hyperparameter, ``()`` for all inputs or ``(d,)``."""
        self.note_bounds(module, name)
        value = getattr(module, name).detach()
        return value.reshape(()) if module.ard_num_dims is None and value.numel() == 1 else value.reshape(-1)

    def note_bounds(self, module: Any, name: str) -> None:
        """Remember a constraint that says more than that the value is positive."""
        constraint = getattr(module, f"raw_{name}_constraint", None)
        if constraint is None:
            return
        low, high = float(constraint.lower_bound.max()), float(constraint.upper_bound.min())
        if low > 0 or high < math.inf:
            self.bounded.append(f"bounds on {name} of {type(module).__name__}")


def _compose(columns: Columns, module: Any) -> Columns:
    """``active_dims`` count within the columns selected already."""
    if module.active_dims is None:
        return columns
    picked = tuple(module.active_dims.tolist())
    return picked if columns is None else tuple(columns[i] for i in picked)


def _ties(module: nn.Module) -> bool:
    """Whether a hyperparameter serves in two places, which copies of it would no longer."""
    return len(list(module.named_parameters(remove_duplicate=False))) > len(list(module.parameters()))
