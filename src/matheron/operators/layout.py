"""How columns lie in memory while a matrix is multiplied with them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def multiply(A: Float[Tensor, "n m"], V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
    """``A V`` as ``(Vᵀ Aᵀ)ᵀ``, with each column in one piece.

    On a CPU a product with two to fifteen columns is two to four times faster that way round, and ten to fifty times
    where ``A`` is the transpose of a matrix stored by rows: the matrix streams past once. With one column or with many
    it makes no difference.

    >>> import torch
    >>> multiply(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    return (V.mT.contiguous() @ A.mT).mT
