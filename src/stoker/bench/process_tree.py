"""Memory and processor time of a whole tree of processes, seen from outside.

Memory is proportional set size: a page that n processes share counts 1/n for each of them, so the sum over a tree is
what the tree really takes; resident sizes added up would count the torch library once for every worker. The watching
process is the parent of the tree that it watches, so it shares pages with it (the tree was forked from it). Its part of
what is shared belongs to the sum; what it has alone does not.

    sum over the tree of pss  +  (pss - uss) of the watcher

Looking costs the watched processes a little: the kernel walks their page tables. So the next look is put off until the
last one is at most a fiftieth of the time between, but for half a second at most: a plateau that lasts longer is always
seen. In between are glances, which read one line a process (resident sizes added up, shared pages counted often). A
glance that finds more than there was at any look so far is followed by a look at once. The numbers are guesses at what
cannot be seen in a result.

Processor time is user and system time of every process of the tree, ended children included. The kernel counts it in
hundredths of a second, so it means little for a trial of less than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from stoker.extras import brought_by

with brought_by("tools"):
    import psutil

_LEAST_PAUSE_S = 0.05  # between two glances
_PAUSE_PER_LOOK = 50.0
_LONGEST_PAUSE_S = 0.5
_SHORTEST_PER_LOOK = 4.0  # memory that grows all the time may be looked at for a fifth of it
_GROWN = 1.01


class ProcessTree:
    """A process and all below it, watched from outside."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._root = psutil.Process(pid)
        self._self = psutil.Process()
        self.seen: set[psutil.Process] = {self._root}
        self.peak_bytes = 0
        self.looks = 0
        self.pause_s = _LEAST_PAUSE_S
        self._clock = clock
        self._resident_bytes = 0  # at the look that found most
        self._looked_at = clock()
        self._look_s = 0.0

    def glance(self) -> None:
        """Look if it is time to, or if there seems to be more memory than at any look before."""
        begun_at = self._clock()
        since_s = begun_at - self._looked_at
        due = since_s >= min(_LONGEST_PAUSE_S, _PAUSE_PER_LOOK * self._look_s)
        if due or (since_s >= _SHORTEST_PER_LOOK * self._look_s and self._has_grown()):
            self.look()
        else:
            self.pause_s = self._pause_after(self._clock() - begun_at)

    def look(self) -> None:
        """Sum up memory now, remember the peak, and who was there."""
        begun_at = self._clock()
        processes = list(and_all_below(self._root))
        self.seen.update(processes)
        self._resident_bytes = max(self._resident_bytes, sum(map(resident_bytes, processes)))
        total = sum(proportional_bytes(process) for process in processes) + _shared_part(self._self)
        self.peak_bytes = max(self.peak_bytes, total)
        self.looks += 1
        self._looked_at = self._clock()
        self._look_s = self._looked_at - begun_at
        self.pause_s = _LEAST_PAUSE_S

    def _has_grown(self) -> bool:
        processes = list(and_all_below(self._root))
        self.seen.update(processes)
        return sum(map(resident_bytes, processes)) > _GROWN * self._resident_bytes

    def _pause_after(self, glance_s: float) -> float:
        """On a machine with very many processes a glance is dear too."""
        return min(_LONGEST_PAUSE_S, max(_LEAST_PAUSE_S, _PAUSE_PER_LOOK * glance_s))

    def cpu_s(self) -> float:
        """Processor time of the tree since its processes were started."""
        return sum(_cpu_s(process) for process in and_all_below(self._root))

    def end_all(self) -> None:
        """Kill whatever of the tree still runs; only processes that were seen in it are touched."""
        self.seen.update(and_all_below(self._root))
        for process in self.seen:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def and_all_below(root: psutil.Process) -> Iterator[psutil.Process]:
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


def resident_bytes(process: psutil.Process) -> int:
    """What a process has in memory, shared pages too; quick to ask for; 0 if it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _shared_part(process: psutil.Process) -> int:
    info = process.memory_full_info()
    return max(0, int(getattr(info, "pss", info.uss)) - int(info.uss))


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(sum(times[:4]))  # user, system, and both of the children that have ended
