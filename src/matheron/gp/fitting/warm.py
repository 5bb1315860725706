"""What learning leaves behind for conditioning."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from matheron.archive import digest
from matheron.gp.draws import PriorDraws
from matheron.gp.observations import Observations
from matheron.kernels import Kernel


@dataclass(frozen=True, eq=False)
class WarmStart:
    """``[H⁻¹(y − m) | H⁻¹ξ]``, about solved, with the draws whose noisy values the ``ξ`` are.

    There is one column per output, then one per function of ``draws``. ``digest`` is that of the inputs and targets
    they belong to, in the units of the process.

    >>> import torch
    >>> import matheron as mt
    >>> X = torch.linspace(0, 1, 100)[:, None]
    >>> y = X[:, 0] + 0.1 * torch.randn(100, generator=torch.Generator().manual_seed(0))
    >>> gp = mt.GaussianProcess(mt.kernels.RBF()).fit(X, y, "iterative", steps=2, num_samples=3, generator=0)
    >>> isinstance(gp.warm, WarmStart), gp.warm.solution.shape
    (True, torch.Size([100, 4]))
    """

    draws: PriorDraws
    solution: Float[Tensor, "n s"]
    digest: str

    def fits(self, kernel: Kernel, data: Observations, num_features: int) -> bool:
        """Whether functions of this kernel and so many features, given these data, could be these."""
        functions = self.draws.functions
        # Functions follow the hyperparameters of their own kernel, which the process may have exchanged since.
        same = functions.features.kernel is kernel and functions.num_features == num_features
        return same and self.digest == digest(data.X, data.Y)
