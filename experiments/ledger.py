"""Parts of a long run, written as they are measured, so that an interrupted run goes on from the last one."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class NotMeasured(LookupError):
    """A part was asked for that no run has measured yet."""


class Ledger:
    """``ID.partial``: one line per part of a run, under a line that says of which run.

    A file of another configuration or of other code is started afresh. With ``so_far`` parts are read and none is
    measured: the file stays as it is, and what it lacks is in ``pending``. With ``only``, a regular expression, the
    parts whose key has it are measured and the others left to another process, which may write to the file meanwhile.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Ledger(folder / "demo.partial", "v1").once("a", lambda: 1)
    1
    >>> Ledger(folder / "demo.partial", "v1").once("a", lambda: 2)
    1
    """

    def __init__(self, path: Path, identity: str, *, so_far: bool = False, only: str | None = None) -> None:
        self.path, self.identity = path, hashlib.sha256(identity.encode()).hexdigest()
        self.so_far, self.only = so_far, re.compile(only or "")
        self.parts: dict[str, Any] = {}
        self.pending: list[str] = []
        self.seconds = 0.0
        if self.read():
            return
        if so_far:
            raise NotMeasured(f"{path} holds no part of this run; start it without --so-far")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.identity + "\n", encoding="utf-8")

    def read(self) -> bool:
        """Take in what the file holds, and say whether it is of this run."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        if not lines or lines[0] != self.identity:
            return False
        for line in lines[1:]:
            try:
                entry = json.loads(line)
            except ValueError:  # the line that an interruption cut short
                continue
            if entry["key"] not in self.parts:
                self.parts[entry["key"]] = entry["value"]
                self.seconds += entry["seconds"]
        return True

    def once(self, key: str, compute: Callable[[], Any]) -> Any:
        """What was measured under ``key``, or what ``compute`` measures now, in plain values."""
        if self.lacks(key):
            raise NotMeasured(
                f"{key} is not measured yet, and this run cannot do without it; run on without --so-far and --parts"
            )
        if key not in self.parts:
            began = time.perf_counter()
            value = compute()
            entry = {"key": key, "value": value, "seconds": time.perf_counter() - began}
            with self.path.open("a", encoding="utf-8") as file:
                # A line of its own, also after one that was cut short.
                file.write("\n" + json.dumps(entry, ensure_ascii=False) + "\n")
            self.parts[key] = json.loads(json.dumps(value))
        return self.parts[key]

    def lacks(self, key: str) -> bool:
        """Whether the part is missing and not to be measured now."""
        if key not in self.parts:
            self.read()
        if key in self.parts or (not self.so_far and self.only.search(key)):
            return False
        if key not in self.pending:
            self.pending.append(key)
        return True

    def close(self) -> None:
        """The run is done, unless only a part of it was asked for and others are missing."""
        if not self.so_far and not self.pending:
            self.path.unlink(missing_ok=True)
