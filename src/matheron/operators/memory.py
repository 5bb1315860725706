"""How much memory is free, and how many bytes a matrix takes."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

SAFE = 0.8
"""The share of free memory that a matrix may take: the rest is for what is computed with it, and for other programs."""

UNKNOWN = 4 * 2**30
"""Bytes that are taken to be free where the system does not say."""

BEYOND = 2**60
"""Bytes that no machine has."""

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes that can be taken on ``device`` now: no more than the container of this process has left."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([_free_on_machine(), *(limit.left() for limit in limits(CGROUPS, OWN))])


def gibibytes(size: float) -> str:
    """``size`` bytes for a message."""
    return f"{size / 2**30:.1f} GiB"


def _free_on_machine() -> int:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


@dataclass(frozen=True)
class Limit:
    """The files in which a control group keeps its limit, what is used of it, and how much of that is a file cache."""

    most: Path
    used: Path
    cache: tuple[Path, str]

    @classmethod
    def of(cls, folder: Path) -> "Limit | None":
        """That of a control group of either version, if it has one."""
        second = cls(folder / "memory.max", folder / "memory.current", (folder / "memory.stat", "inactive_file"))
        first = cls(
            folder / "memory.limit_in_bytes",
            folder / "memory.usage_in_bytes",
            (folder / "memory.stat", "total_inactive_file"),
        )
        for limit in (second, first):
            try:
                # Without a limit, version 2 says "max" and version 1 a number beyond any memory.
                if int(limit.most.read_text()) < BEYOND:
                    return limit
            except (OSError, ValueError):
                continue
        return None

    def left(self) -> int:
        """Bytes, those of files that the system can let go of among them."""
        path, name = self.cache
        try:
            statistics = dict(line.split() for line in path.read_text().splitlines())
            used = int(self.used.read_text()) - int(statistics.get(name, 0))
            return max(int(self.most.read_text()) - used, 0)
        except (OSError, ValueError):
            return BEYOND


@cache
def limits(root: Path, own: Path) -> tuple[Limit, ...]:
    """Of the control groups that this process is in by its ``own`` file, and of those that hold them below ``root``."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return ()
    folders = []
    for line in lines:
        _, controller, group = line.split(":", 2)
        if controller in ("", "memory"):
            folder = root / controller / group.lstrip("/")
            folders += [folder, *folder.parents[: len(Path(group.lstrip("/")).parts)]]
    found = [Limit.of(folder) for folder in folders]
    return tuple(limit for limit in found if limit is not None)
