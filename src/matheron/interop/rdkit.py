"""Molecules as inputs of a Gaussian process, by RDKit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from matheron.arguments import require_count

try:
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator
    from rdkit.rdBase import BlockLogs
except ImportError as error:
    raise ImportError("matheron.interop.rdkit needs RDKit; pip install 'matheron[rdkit]'") from error

__all__ = ["fingerprints", "readable"]

SHOWN = 3
"""Molecules that an error names."""


def fingerprints(
    smiles: Sequence[str], *, radius: int = 1, bins: int = 1024, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n bins"]:
    """Morgan counts: how often each neighborhood of up to ``radius`` bonds stands in a molecule, hashed to ``bins``.

    Compressed sparse rows, which :class:`~matheron.kernels.Tanimoto` reads as they are; the defaults are those of the
    thesis' molecules (section 4.5.3). Molecules that RDKit cannot read are refused by place and name; :func:`readable`
    tells which they are.

    >>> import matheron as mt
    >>> X = fingerprints(["CCO", "CCN", "c1ccccc1"])  # ethanol, ethylamine, benzene
    >>> X.shape, mt.kernels.Tanimoto()(X)[0].detach().round(decimals=2)
    (torch.Size([3, 1024]), tensor([1.0000, 0.3300, 0.0000]))
    """
    require_count("radius", radius, least=0)
    require_count("bins", bins)
    molecules = _molecules(smiles)
    unread = [place for place, molecule in enumerate(molecules) if molecule is None]
    if unread:
        some = ", ".join(f"{smiles[place]!r} at {place}" for place in unread[:SHOWN])
        raise ValueError(
            f"smiles has {len(unread)} molecules that cannot be read: {some}{', …' if len(unread) > SHOWN else ''}; "
            "leave them out, readable(smiles) is false there"
        )
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=bins)
    starts, columns, counts = [0], [], []
    for molecule in molecules:
        found = sorted(generator.GetCountFingerprint(molecule).GetNonzeroElements().items())
        columns += [column for column, _ in found]
        counts += [count for _, count in found]
        starts.append(len(columns))
    return torch.sparse_csr_tensor(
        torch.tensor(starts), torch.tensor(columns, dtype=torch.int64), torch.tensor(counts, dtype=dtype),
        size=(len(molecules), bins), check_invariants=False,
    )  # fmt: skip


def readable(smiles: Sequence[str]) -> Bool[Tensor, " n"]:
    """Which of them RDKit reads as molecules.

    >>> readable(["CCO", "not a molecule"])
    tensor([ True, False])
    """
    return torch.tensor([molecule is not None for molecule in _molecules(smiles)], dtype=torch.bool)


def _molecules(smiles: Sequence[str]) -> list[Any]:
    """One each, ``None`` where there is none."""
    if isinstance(smiles, str) or not all(isinstance(one, str) for one in smiles):
        raise TypeError(f"smiles must be a list of strings, got {type(smiles).__name__}; one molecule is [smiles]")
    if len(smiles) == 0:
        raise ValueError("smiles is empty; give it at least one molecule")
    with BlockLogs():  # what cannot be read is said by whoever asks
        return [Chem.MolFromSmiles(one) if one else None for one in smiles]
