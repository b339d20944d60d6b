"""Memory: how many more workers there is room for."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_KEPT_FREE = 0.1  # of the machine's memory, or of the control group's: for the model, and for what nobody foresees
_GUESSED_BYTES = 64 * 2**20  # that a worker holds for itself, where none can be asked


def room_for(pids: Iterable[int], root: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """How many more processes fit that are as large as the largest of these; a large number where nobody can tell."""
    largest = max((_private_bytes(pid) for pid in pids), default=0) or _GUESSED_BYTES
    return max(0, int(min(_left_on_machine(meminfo), _left_in_group(root)) // largest))


def _private_bytes(pid: int) -> int:
    """What a process holds for itself: the slots that it writes into are everybody's."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * mmap.PAGESIZE


def _left_on_machine(meminfo: Path) -> float:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        total, available = (int(lines[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError, IndexError):
        return float(os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE)
    return available - _KEPT_FREE * total


def _left_in_group(root: Path) -> float:
    """What the control group may still take; what it can give back at any time (its page cache) counts as free."""
    try:
        most = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return most * (1 - _KEPT_FREE) - (used - int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # "max", or no such files
        return float("inf")
