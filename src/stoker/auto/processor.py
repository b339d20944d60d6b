"""The processor: how many cores there are for this process, and how much of them somebody has used.

Cores are those the process may run on, no more than its control group has time for, divided among the ranks of this
host: a core that another rank loads with is not free, though the kernel would share it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stoker.proc import processor_ticks

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cores() -> int:
    """The cores this process may use, whoever else does."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_share(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The cores that are this rank's: within the control group's quota, and shared with the other ranks here."""
    return max(1.0, min(cores(), _quota(root)) / _ranks_here())


def _ranks_here() -> int:
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(told)) if told.isdecimal() else 1


def _quota(root: Path) -> float:
    """How many cores' time the control group may use; without a limit, more than there are."""
    try:
        quota, period = (root / "cpu.max").read_text().split()[:2]
        return float("inf") if quota == "max" else max(1.0, int(quota) / int(period))
    except (OSError, ValueError):
        return _quota_of_old(root)


def _quota_of_old(root: Path) -> float:
    try:
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        return max(1.0, quota / int((root / "cpu" / "cpu.cfs_period_us").read_text())) if quota > 0 else float("inf")
    except (OSError, ValueError):
        return float("inf")


class ProcessorTime:
    """Adds up what some processes have used, as they come and go."""

    def __init__(self) -> None:
        self._spent: dict[int, float] = {}  # by process, when last looked
        self.total_s = 0.0

    def look(self, pids: Iterable[int]) -> None:
        """Count what has been used since the last look; what a process used after its last is not known."""
        now = {pid: spent for pid in pids if (spent := _used_s(pid)) is not None}
        self.total_s += sum(spent - self._spent.get(pid, 0.0) for pid, spent in now.items())
        self._spent = now


def _used_s(pid: int) -> float | None:
    """Processor time of a process; None if it is gone, or where nobody tells."""
    try:
        return processor_ticks(pid) / _TICKS_PER_S
    except OSError:
        return None
