"""What the kernel's files say of processes, so that a loader needs no package for it.

All raise an OSError on systems without such files, and for a process that has ended.
"""

from __future__ import annotations

import os


def all_pids() -> list[int]:
    """The numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int:
    """The number of its parent."""
    return _stat(pid, 1)


def started_at(pid: int) -> int:
    """When it was started, in the kernel's ticks since boot."""
    return _stat(pid, 19)


def processor_ticks(pid: int) -> int:
    """What all its threads have used of the processor, in the kernel's ticks."""
    return _stat(pid, 11) + _stat(pid, 12)


def _stat(pid: int, field: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # a name may hold anything, and ends with the last )
    if not fields:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[field])
