"""What every feature map offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from matheron.kernels.base import Kernel


class NoFeaturesError(TypeError):
    """The kernel has no random features.

    >>> from matheron.kernels import RBF, Tanimoto
    >>> try:
    ...     (Tanimoto() * RBF()).features(10, dimension=2)
    ... except NoFeaturesError as error:
    ...     print(str(error)[:50])
    the product Tanimoto * RBF has no random features,
    """


class FeatureMap(nn.Module, ABC):
    """``φ: x ↦ (n, num)`` with ``E φ(x) φ(z)ᵀ = k(x, z)``: a kernel as a linear model (thesis §2.2.3).

    The base draws are buffers in float64, whatever dtype the map is moved to; the hyperparameters are those of
    ``kernel`` at each call, which the map refers to but does not own. So ``φ(x) w`` with fixed ``w`` is one random
    function, that deforms as the hyperparameters are learnt. ``seed`` is that of the draws, if no generator was passed.

    >>> import torch
    >>> from matheron.kernels import RBF
    >>> k = RBF(lengthscale=[1.0, 1.0])
    >>> phi = k.features(2000, generator=torch.Generator().manual_seed(0))
    >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    >>> bool((phi(x) @ phi(x).T - k(x)).abs().max() < 0.05)
    True
    """

    kernel: Kernel
    seed: int | None = None

    def __init__(self, kernel: Kernel, num: int) -> None:
        super().__init__()
        # Not a submodule: parameters and state would otherwise be counted twice by whoever holds both.
        self.__dict__["kernel"] = kernel
        self.num = num

    @abstractmethod
    def evaluate(self, x: Tensor) -> Float[Tensor, "n num"]:
        """``φ(x)`` of inputs that were checked."""

    def forward(self, x: Tensor) -> Float[Tensor, "n num"]:
        """``φ(x)``, in the dtype of ``x``, differentiable in ``x`` and in the hyperparameters."""
        return self.evaluate(self.kernel.check_inputs("x", x))

    def extra_repr(self) -> str:
        """The number of features."""
        return f"num={self.num}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FeatureMap:
        # Draws move between devices but keep their dtype: rounded draws would be another random function.
        return super()._apply(lambda t: t.to(fn(t).device), recurse)


def drawn(sample: Callable[..., Tensor], *shape: int, kernel: Kernel, generator: torch.Generator) -> Tensor:
    """Random numbers in float64 from the generator's device, on that of the kernel's hyperparameters."""
    draws = sample(*shape, dtype=torch.float64, generator=generator, device=generator.device)
    parameter = next(kernel.parameters(), None)
    return draws if parameter is None else draws.to(parameter.device)
