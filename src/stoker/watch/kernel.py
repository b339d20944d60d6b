"""What the kernel says of a process: the memory it holds, when it began.

Asked in the midst of training, so on Linux its files are read directly: importing psutil takes 20 ms, for which the
training loop would wait. Elsewhere psutil knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from stoker.proc import started_at


def proportional_bytes(pids: Iterable[int]) -> int:
    """Memory of this process and these, pages that several share counted once in all; who is gone holds none."""
    held = _held_on_linux if sys.platform == "linux" else _held_elsewhere
    return sum(map(held, (os.getpid(), *pids)))


def began(pid: int) -> float:
    """When a process began (in units of the kernel's), by which it is known from a later one with the same number.

    0 if it is gone.
    """
    return _began_on_linux(pid) if sys.platform == "linux" else _began_elsewhere(pid)


def _held_on_linux(pid: int) -> int:
    lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), 0)


def _began_on_linux(pid: int) -> float:
    try:
        return float(started_at(pid))
    except OSError:
        return 0.0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it has ended meanwhile, or is somebody else's
        return b""


def _held_elsewhere(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _began_elsewhere(pid: int) -> float:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0
