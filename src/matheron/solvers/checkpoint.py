"""Checkpoints of a solve: safetensors with a JSON header, so that loading never runs code."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from matheron.archive import Archive, Kind, read

KIND = Kind("solve", 2)

MINUTE = 60.0

SHARE = 0.05
"""Of the time, that writing may take."""


@dataclass
class Checkpoint:
    """Where an interrupted solve goes on from: ``path``, written every ``seconds``.

    Left out, that is a minute, or longer where writing would take more than a small share of the time. A finished solve
    removes its checkpoint. ``notes`` of the caller are kept in the file too.

    >>> Checkpoint("solve.checkpoint", seconds=30.0).path.name
    'solve.checkpoint'
    """

    path: Path | str
    seconds: float | None = None
    notes: dict[str, Any] = field(default_factory=dict, repr=False)
    _written: float = field(default=0.0, repr=False)
    _cost: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ValueError(f"checkpoint must be a file in an existing directory, got {self.path}")

    @classmethod
    def of(cls, value: Checkpoint | Path | str | None) -> Checkpoint | None:
        """A path is a checkpoint with the usual interval."""
        if value is None or isinstance(value, Checkpoint):
            return value
        if not isinstance(value, str | Path):
            raise TypeError(f"checkpoint must be a path or a Checkpoint, got {value!r}")
        return cls(value)

    @property
    def due(self) -> bool:
        """Whether the interval has passed."""
        interval = max(MINUTE, self._cost / SHARE) if self.seconds is None else self.seconds
        return time.monotonic() - self._written >= interval

    def save(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Write what the solve goes on from."""
        began = time.monotonic()
        Archive(KIND, tensors, header | {"notes": self.notes}).write(self.path)
        self._written = time.monotonic()
        self._cost = self._written - began

    @property
    def second(self) -> Checkpoint:
        """That of a second attempt at the same, beside this one, with the same notes."""
        return Checkpoint(Path(f"{self.path}.second"), self.seconds, self.notes)

    def recall(self, note: str) -> Any:
        """A note in the file or that of the second attempt, ``None`` where there is none."""
        paths = (Path(self.path), Path(self.second.path))
        return next((self._read(path).header["notes"].get(note) for path in paths if path.exists()), None)

    def load(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was saved for the same problem; ``None`` if there is no file yet."""
        path = Path(self.path)
        if not path.exists():
            return None
        archive = self._read(path)
        saved = archive.header["identity"]
        for key, value in identity.items():
            if saved.get(key) != value:
                raise ValueError(
                    f"checkpoint {path} is of another solve: its {key} is {saved.get(key)}, here it is {value}; "
                    "give another path or remove the file"
                )
        return archive.tensors, archive.header

    @staticmethod
    def _read(path: Path) -> Archive:
        try:
            return read(path, KIND, what="a checkpoint")
        except ValueError as error:
            raise ValueError(f"checkpoint: {error}; or remove it to start afresh") from error

    def remove(self) -> None:
        """The solve is done."""
        Path(self.path).unlink(missing_ok=True)
