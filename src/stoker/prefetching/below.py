"""The processes below one: found and killed.

On Linux the kernel's files are read, so that a loader needs no package for it. Elsewhere psutil knows, and is
installed there. A number may belong to another process by the time that it is used, so who its parent is is asked again
right before the kill.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from stoker.proc import all_pids, parent_of


def kill_below(pid: int) -> None:
    """Kill the children of a process, and theirs; those that end meanwhile have done so by themselves."""
    if sys.platform == "linux":
        _kill_on_linux(pid)
    else:
        _kill_elsewhere(pid)


def _kill_on_linux(pid: int) -> None:
    parents = {number: _parent(number) for number in all_pids()}
    for child in list(_below(pid, parents)):
        if _parent(child) == parents[child]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)


def _below(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Children after their own children: a process whose parent is gone would get another one."""
    for child in [number for number, parent in parents.items() if parent == pid]:
        yield from _below(child, parents)
        yield child


def _parent(pid: int) -> int:
    """The number of its parent; 0 if it has ended."""
    try:
        return parent_of(pid)
    except OSError:
        return 0


def _kill_elsewhere(pid: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            child.kill()
