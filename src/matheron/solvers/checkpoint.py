"""Checkpoints of a solve: safetensors with a JSON header, so that loading never runs code."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = "matheron-solve/1"


@dataclass
class Checkpoint:
    """Where an interrupted solve goes on from: ``path``, written every ``seconds``.

    A finished solve removes its checkpoint.

    >>> Checkpoint("solve.checkpoint", seconds=30.0).path.name
    'solve.checkpoint'
    """

    path: Path | str
    seconds: float = 60.0
    _written: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ValueError(f"checkpoint must be a file in an existing directory, got {self.path}")

    @classmethod
    def of(cls, value: Checkpoint | Path | str | None) -> Checkpoint | None:
        """A path is a checkpoint with the usual interval."""
        return value if value is None or isinstance(value, Checkpoint) else cls(value)

    @property
    def due(self) -> bool:
        """Whether the interval has passed."""
        return time.monotonic() - self._written >= self.seconds

    def save(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Write to a file beside it, then rename: an interruption leaves the old or the new, never half of one."""
        path = Path(self.path)
        beside = path.with_name(path.name + ".part")
        metadata = {"format": FORMAT, "header": json.dumps(header)}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, metadata)
        os.replace(beside, path)
        self._written = time.monotonic()

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was saved for the same problem; ``None`` if there is no file yet."""
        path = Path(self.path)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"checkpoint {path} is not a checkpoint of a solve or is damaged ({error}); remove it to start afresh"
            ) from error
        if metadata.get("format") != FORMAT:
            raise ValueError(
                f"checkpoint {path} has format {metadata.get('format')!r}, this version reads {FORMAT!r}; "
                "give another path or remove the file"
            )
        header = json.loads(metadata["header"])
        for key, value in identity.items():
            if header["identity"].get(key) != value:
                raise ValueError(
                    f"checkpoint {path} is of another solve: its {key} is {header['identity'].get(key)}, here it is "
                    f"{value}; give another path or remove the file"
                )
        return tensors, header

    def remove(self) -> None:
        """The solve is done."""
        Path(self.path).unlink(missing_ok=True)
