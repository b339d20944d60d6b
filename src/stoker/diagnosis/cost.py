"""What one thread's time went into: computing, waiting for a core, or waiting for something else.

Of the wall clock's time a thread computes for some, and the kernel knows for how long it was ready to run and had no
core (`schedstat`). What is left is waiting: for a disk, a network, a lock. A thread that never gave its core away
waited for nothing else: what is missing was taken from it, by other programs or by the host of a virtual machine. So
a machine that is busy with other things makes a sample slower, but does not make it look like one that waits.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_SPIN_S = 0.02


@dataclass(frozen=True)
class Cost:
    """Seconds of one thread."""

    seconds: float
    computing_s: float
    queued_s: float = 0.0  # ready to run, without a core
    waiting_s: float = 0.0
    read_bytes: float = 0.0  # from a disk, by the whole process

    def divided(self, samples: int) -> Cost:
        """The cost of one of so many that were had together."""
        if samples <= 1:
            return self
        return Cost(*(getattr(self, field.name) / samples for field in fields(self)))

    @property
    def own_s(self) -> float:
        """Without what other programs took."""
        return self.seconds - self.queued_s


def timed(call: Callable[[], T]) -> tuple[T, Cost]:
    """Call it, and see what that took."""
    read, queued, switches = _read_bytes(), _queued_s(), _voluntary_switches()
    begun_at, begun_busy = time.perf_counter(), time.thread_time()
    result = call()
    computing_s, seconds = time.thread_time() - begun_busy, time.perf_counter() - begun_at
    gave_way = _voluntary_switches() > switches
    computing_s = min(computing_s, seconds)  # two clocks
    queued_s = left_s = seconds - computing_s  # who never gave way waited for nothing but a core
    if gave_way:
        queued_s = 0.0 if queued is None else min(left_s, (_queued_s() or 0.0) - queued)
    return result, Cost(seconds, computing_s, queued_s, left_s - queued_s, _read_bytes() - read)


def crowding() -> float:
    """How many times its own time computing takes now: 1 on a machine that has nothing else to do."""
    _, cost = timed(_spin)
    return max(1.0, (cost.computing_s + cost.queued_s) / max(1e-9, cost.computing_s))


def _spin() -> None:
    until_s = time.thread_time() + _SPIN_S
    while time.thread_time() < until_s:
        pass


def _voluntary_switches() -> int:
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_nvcsw


def _queued_s() -> float | None:
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
        return int(text.split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _read_bytes() -> float:
    """What this process has read from disks, where the system says so."""
    try:
        text = Path("/proc/self/io").read_text(encoding="ascii")
    except OSError:
        return 0.0
    fields = dict(line.split(": ") for line in text.splitlines())
    return float(fields.get("read_bytes", 0))
