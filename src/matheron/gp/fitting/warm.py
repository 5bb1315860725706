"""What learning leaves behind for conditioning."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from matheron.gp.draws import PriorDraws


@dataclass(frozen=True, eq=False)
class WarmStart:
    """``[H⁻¹(y − m) | H⁻¹ξ]``, about solved, with the draws whose noisy values the ``ξ`` are.

    There is one column per output, then one per function of ``draws``. ``digest`` is that of the inputs and targets
    they belong to, in the units of the process (:func:`matheron.gp.fitting.task.digest`).
    """

    draws: PriorDraws
    solution: Float[Tensor, "n s"]
    digest: str
