"""Files of tensors with a JSON header, in safetensors: reading one never runs code."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

PREFIX = "matheron-"


@dataclass(frozen=True)
class Kind:
    """What a file holds and in which version of its format, as ``matheron-<name>/<version>``.

    >>> str(Kind("posterior", 1))
    'matheron-posterior/1'
    """

    name: str
    version: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}/{self.version}"


@dataclass(frozen=True, eq=False)
class Archive:
    """Tensors by name, and a header of plain values."""

    kind: Kind
    tensors: dict[str, Tensor]
    header: dict[str, Any]

    def write(self, path: Path | str) -> None:
        """Write beside ``path``, then rename: an interruption leaves the old or the new, never half of one."""
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"path must be a file in an existing directory, got {path}")
        beside = path.with_name(path.name + ".part")
        metadata = {"format": str(self.kind), "header": json.dumps(self.header)}
        save_file({name: tensor.detach().contiguous() for name, tensor in self.tensors.items()}, beside, metadata)
        os.replace(beside, path)


def digest(*tensors: Tensor) -> str:
    """A short hash of their values, by which a file knows what it belongs to.

    >>> import torch
    >>> digest(torch.ones(2)) == digest(torch.ones(2)), digest(torch.eye(2).to_sparse_csr()) == digest(torch.ones(2))
    (True, False)
    """
    found = hashlib.sha256()
    for tensor in tensors:
        sparse = tensor.layout != torch.strided
        for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()) if sparse else (tensor,):
            found.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def read(path: Path | str, *kinds: Kind, what: str) -> Archive:
    """The archive at ``path``, if it is of one of these kinds; ``what`` says in errors what was looked for."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path {path} is not a file; give that of {what}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copied to memory aligned like any other, so that products come out the same to the last bit.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata.get("header", "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not {what}, or it is damaged ({error}); write it again") from error
    found = metadata.get("format", "")
    for kind in kinds:
        if found == str(kind) and isinstance(header, dict):
            return Archive(kind, tensors, header)
        name, _, version = found.partition("/")
        if name == f"{PREFIX}{kind.name}" and version.isdigit() and int(version) > kind.version:
            raise ValueError(
                f"{path} was written by a newer version of matheron (format {found}, this one reads {kind}); upgrade"
            )
    known = " or ".join(map(str, kinds))
    raise ValueError(f"{path} has format {found or 'unknown'!r}, not {known}; give the path of {what}")
