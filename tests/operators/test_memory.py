"""Free memory: what the machine has, within what the container may take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from matheron.operators import memory

CPU = torch.device("cpu")


def group(folder: Path, names: tuple[str, str, str], most: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{most}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")


SECOND = ("memory.max", "memory.current", "inactive_file")
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that names the control groups of this process."""
    path = tmp_path / "self"
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN", path)
    return path


def test_the_container_is_the_limit_and_its_file_cache_is_free(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/pod/box\n")
    group(tmp_path / "cgroup" / "pod" / "box", SECOND, "max", 900, 0)
    group(tmp_path / "cgroup" / "pod", SECOND, "1000000", 700000, 100000)
    assert memory.free_memory(CPU) == 400000


def test_the_older_kind_of_group_too(tmp_path: Path, own: Path) -> None:
    """Its path is that of the host, while only the container's own folder can be seen."""
    own.write_text("3:cpuset:/\n4:memory:/docker/0123\n0::/\n")
    group(tmp_path / "cgroup" / "memory", FIRST, "1000", 1200, 0)
    assert memory.free_memory(CPU) == 0


def test_without_a_limit_it_is_that_of_the_machine(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write_text("4:memory:/\n")
    group(tmp_path / "cgroup" / "memory", FIRST, "9223372036854771712", 10, 0)
    monkeypatch.setattr(memory, "_free_on_machine", lambda: 12345)
    assert memory.free_memory(CPU) == 12345


def test_a_system_that_does_not_say(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.delattr("os.sysconf")
    assert memory.free_memory(CPU) == memory.UNKNOWN
