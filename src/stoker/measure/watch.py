"""Memory and processor time of a whole tree of processes, seen from outside.

Memory is proportional set size: a page that n processes share counts 1/n for each of them, so the sum over a tree is
what the tree really takes; resident sizes added up would count the torch library once for every worker. The watching
process is the parent of the tree that it watches, so it shares pages with it (the tree was forked from it). Its part of
what is shared belongs to the sum; what it has alone does not.

    sum over the tree of pss  +  (pss - uss) of the watcher

Looking costs the watched processes a little: the kernel walks their page tables. So the next look is put off until the
last one is at most a fiftieth of the time between (and never closer than 50 ms): both are guesses at what cannot be
seen in a result.

Processor time is user and system time of every process of the tree, ended children included. The kernel counts it in
hundredths of a second, so it means little for a trial of less than one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

_LEAST_PAUSE_S = 0.05
_PAUSE_PER_LOOK = 50.0


class Watch:
    """Watches the tree below one process."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._self = psutil.Process()
        self.seen: set[psutil.Process] = {self._root}
        self.peak_bytes = 0
        self.looks = 0
        self.pause_s = _LEAST_PAUSE_S

    def look(self) -> None:
        """Sum up memory now, remember the peak, and who was there."""
        begun_at = time.perf_counter()
        processes = list(tree(self._root))
        self.seen.update(processes)
        total = sum(proportional_bytes(process) for process in processes) + _shared_part(self._self)
        self.peak_bytes = max(self.peak_bytes, total)
        self.looks += 1
        self.pause_s = max(_LEAST_PAUSE_S, _PAUSE_PER_LOOK * (time.perf_counter() - begun_at))

    def cpu_s(self) -> float:
        """Processor time of the tree since its processes were started."""
        return sum(_cpu_s(process) for process in tree(self._root))

    def end_all(self) -> None:
        """Kill whatever of the tree still runs; only processes that were seen in it are touched."""
        self.seen.update(tree(self._root))
        for process in self.seen:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def tree(root: psutil.Process) -> Iterator[psutil.Process]:
    """A process and all below it; nothing if it has ended."""
    try:
        yield root
        yield from root.children(recursive=True)
    except psutil.NoSuchProcess:
        return


def proportional_bytes(process: psutil.Process) -> int:
    """What a process holds, pages that n share counting 1/n each; 0 if it has ended."""
    try:
        info = process.memory_full_info()
    except psutil.Error:  # ended meanwhile, or a zombie
        return 0
    return int(getattr(info, "pss", info.uss))


def _shared_part(process: psutil.Process) -> int:
    info = process.memory_full_info()
    return max(0, int(getattr(info, "pss", info.uss)) - int(info.uss))


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(sum(times[:4]))  # user, system, and both of the children that have ended
