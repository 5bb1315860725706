"""How much memory is free, and how many bytes a matrix takes."""

import os
from pathlib import Path

import torch

SAFE = 0.8
"""The share of free memory that a matrix may take: the rest is for what is computed with it, and for other programs."""


def free_memory(device: torch.device) -> int:
    """Bytes that can be taken on ``device`` now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def gibibytes(size: float) -> str:
    """``size`` bytes for a message."""
    return f"{size / 2**30:.1f} GiB"
