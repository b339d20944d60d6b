"""How much of the machine other programs use, asked while this one does nothing.

Three answers, since each alone can be wrong: the load average knows of the last minute only, the kernel's counts of
busy cores know of this moment, and how long computing takes (`cost.crowding`) knows of a queue that others leave free.
"""

from __future__ import annotations

import os
import time
import warnings

from stoker.extras import brought_by

with brought_by("tools"):
    import psutil


def load_per_core() -> float:
    """The load average of the last minute over the machine's cores; 0 where the system has none."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0


def swapped_bytes() -> int:
    """How much the machine has moved to and from its swap since it was started; 0 where it does not say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # psutil's, in containers that hide it
        swap = psutil.swap_memory()
    return int(swap.sin + swap.sout)


def share_taken(seconds: float) -> float:
    """The share of the cores this process may use that is used, by whomever, while it sleeps for so long."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    before = _busy_s(mine)
    begun_at = time.perf_counter()
    time.sleep(seconds)
    took_s = time.perf_counter() - begun_at
    after = _busy_s(mine)
    cores = min(len(before), len(after))
    return min(1.0, max(0.0, sum(after) - sum(before)) / max(1e-9, cores * took_s)) if cores else 0.0


def _busy_s(mine: set[int] | None) -> list[float]:
    """Seconds that each core has computed for somebody."""
    found = []
    for number, core in enumerate(psutil.cpu_times(percpu=True)):
        if mine is None or number in mine:
            waiting = core.idle + getattr(core, "iowait", 0.0) + getattr(core, "steal", 0.0)
            counted_twice = getattr(core, "guest", 0.0) + getattr(core, "guest_nice", 0.0)
            found.append(sum(core) - waiting - counted_twice)
    return found
