"""Work in a fresh child process under a memory limit, timed run by run, so that runs of peers can be interleaved."""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from experiments.harness import peak_memory, plain

GIB = 2**30
ROOT = Path(__file__).parent.parent


class Peer:
    """``module:function`` prepared in a child with ``function(**arguments)``, which returns what a run calls.

    A child that raises, dies or takes too long is recorded in ``ended`` as it ended; it never takes the parent along.
    """

    def __init__(self, target: str, arguments: Mapping[str, Any], *, memory: int, timeout: float = 600.0) -> None:
        self.timeout = timeout
        self.ended: str | None = None
        self.runs: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "experiments.peer", target, json.dumps(dict(arguments)), str(memory)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
        )
        self.ready = self._answer() or {}

    def run(self) -> float:
        """Seconds of one run, NaN from a child that has ended."""
        if self.ended is None:
            assert self.process.stdin is not None
            self.process.stdin.write("run\n")
            answer = self._answer()
            if answer is not None:
                self.runs.append(answer)
                return answer["seconds"]
        return float("nan")

    def close(self) -> None:
        """Let the child go."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()

    @property
    def peak(self) -> int | None:
        """The child's largest resident set in bytes."""
        return self.runs[-1]["peak"] if self.runs else None

    def _answer(self) -> dict[str, Any] | None:
        stdout = self.process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], self.timeout)[0]:
            self.process.kill()
            self.ended = f"stopped after {self.timeout:g} s"
        line = stdout.readline()
        if self.ended is None and not line:
            code = self.process.wait()
            self.ended = f"died of {signal.Signals(-code).name}" if code < 0 else f"left with code {code}"
        if self.ended is not None:
            return None
        answer = json.loads(line)
        self.ended = answer.get("ended")
        return None if self.ended else answer


def interleave(peers: Iterable[Peer], repeats: int) -> list[list[float]]:
    """Seconds per round and peer, one run of each per round; a first round that is not counted warms up."""
    peers = list(peers)
    for peer in peers:
        peer.run()
        peer.runs.clear()
    return [[peer.run() for peer in peers] for _ in range(repeats)]


def resident_memory() -> int:
    """The resident set now, where the system tells it; the largest so far elsewhere."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory(resource.RUSAGE_SELF)


def _follow(parent: int) -> None:
    """Leave when the parent has: what an interrupted measurement leaves behind would slow the next one."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _child(target: str, arguments: str, memory: str) -> int:
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not be taken for answers
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    module, name = target.split(":")
    try:
        prepare: Callable[..., Callable[[], torch.Tensor | Mapping[str, Any]]] = getattr(
            importlib.import_module(module), name
        )
        work = prepare(**json.loads(arguments))
        print(json.dumps({"resident": resident_memory()}), file=answers)
        for _ in sys.stdin:
            began = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - began
            facts = result if isinstance(result, Mapping) else {"norm": float(result.double().norm())}
            answer = {"seconds": seconds, "peak": peak_memory(resource.RUSAGE_SELF), **facts}
            print(json.dumps(plain(answer)), file=answers)
    except Exception as error:  # however it ends, it is a result
        print(json.dumps({"ended": f"{type(error).__name__}: {error}".splitlines()[0][:200]}), file=answers)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
