"""Parts of a long run, written as they are measured, so that an interrupted run goes on from the last one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class NotMeasured(LookupError):
    """A part was asked for that no run has measured yet."""


class Ledger:
    """``ID.partial``: one line per part of a run, under a line that says of which run.

    A file of another configuration or of other code is started afresh. With ``so_far`` parts are read and none is
    measured: the file stays as it is, and what it lacks is in ``pending``.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Ledger(folder / "demo.partial", "v1").once("a", lambda: 1)
    1
    >>> Ledger(folder / "demo.partial", "v1").once("a", lambda: 2)
    1
    """

    def __init__(self, path: Path, identity: str, *, so_far: bool = False) -> None:
        self.path, self.identity, self.so_far = path, hashlib.sha256(identity.encode()).hexdigest(), so_far
        self.parts: dict[str, Any] = {}
        self.pending: list[str] = []
        self.seconds_before = 0.0
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines and lines[0] == self.identity:
            for line in lines[1:]:
                try:
                    entry = json.loads(line)
                except ValueError:  # the line that an interruption cut short
                    continue
                self.parts[entry["key"]] = entry["value"]
                self.seconds_before += entry["seconds"]
        elif so_far:
            raise NotMeasured(f"{path} holds no part of this run; start it without --so-far")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.identity + "\n", encoding="utf-8")

    def once(self, key: str, compute: Callable[[], Any]) -> Any:
        """What was measured under ``key``, or what ``compute`` measures now, in plain values."""
        if self.lacks(key):
            raise NotMeasured(f"{key} is not measured yet, and this run cannot do without it; run on without --so-far")
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
        if not self.so_far or key in self.parts:
            return False
        if key not in self.pending:
            self.pending.append(key)
        return True

    def close(self) -> None:
        """The run is done, unless only what it has so far was asked for."""
        if not self.so_far:
            self.path.unlink(missing_ok=True)
