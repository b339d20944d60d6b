"""Counting as the passes of a loader go along, at a cost that cannot be seen.

    PassTally   one pass; written by whoever holds the iterator's lock
    Tally       all passes of a loader; adds them up when somebody asks

A step costs two looks at a clock and an entry in a log (measured: benchmarks/overhead.py). Nothing is shared between
the passes of a loader but the deque of waits, whose `extend` is atomic; so two iterators may run in two threads, and a
third thread may ask meanwhile. Passes that are over are folded into one when the next begins, so a loader may have any
number of them.

A pass that is left early does not say so. It is over when its iterator is gone, or begins anew, and its last step is
then the last that was heard of it.

Memory is the one number that is dear: the kernel walks page tables, for some milliseconds a process. So somebody looks
when asked, and now and then during a long pass, such that looking takes at most a thousandth of the time.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.contracts import Report
from stoker.watch.kernel import proportional_bytes
from stoker.watch.stats import Stats

KEPT_WAITS = 4096
_NUMBERS = itertools.count(1)
_NO_GAUGES = {"lanes": 1, "slots": 0, "slots_in_use": 0, "slots_leased": 0, "failures": 0}
_LOOK_SHARE = 1000  # a look at memory is put off until it takes at most this fraction of the time
_GUESSED_LOOK_NS = 2_000_000  # a process, until one was timed


@dataclass
class Counts:
    """What can be added up over passes."""

    steps: int = 0
    samples: int = 0
    size_bytes: int = 0
    pass_ns: int = 0
    wait_ns: int = 0
    retries: int = 0
    restarts: int = 0
    busy_ns: list[int] = field(default_factory=list)  # one number a worker

    def add(self, other: Counts) -> None:
        for name in ("steps", "samples", "size_bytes", "pass_ns", "wait_ns", "retries", "restarts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.busy_ns += [0] * (len(other.busy_ns) - len(self.busy_ns))
        for worker, busy_ns in enumerate(other.busy_ns):
            self.busy_ns[worker] += busy_ns


class PassTally:
    """Counts one pass.

    A step is four numbers at the end of `log`, which the watch puts there itself: all that can be put off is. Now
    and then the log is summed up. Sums and log are one tuple, replaced as a whole, so that another thread never sees a
    step twice or not at all.
    """

    def __init__(self, begun_ns: int, now_ns: int, owner: Any, workers: int, waits_ns: deque[int]) -> None:
        self.begun_ns = begun_ns
        self.start_ns = now_ns - begun_ns  # what the training loop waited until there was an iterator
        self.asked_ns = 0  # when it last asked for a batch
        self.log: list[int] = []  # of each step: when it was asked for, when it came, samples, bytes
        self.retries = self.restarts = 0
        self.busy_ns = [0] * workers
        self.first_load_ns = 0  # when the first run of rows was begun, by whichever worker
        self.ready = 0
        self.closed = False  # whoever loads was let go
        self.over = False  # and the training loop knows
        self._owner = weakref.ref(owner)
        self._waits_ns = waits_ns
        self._first: tuple[int, int] | None = None  # when the first batch was asked for, and when it came
        self._summed: tuple[Counts, int, list[int]] = (Counts(wait_ns=self.start_ns), now_ns, self.log)

    def waited(self, begin_ns: int, end_ns: int) -> None:
        """The training loop asked for a batch and got none."""
        if not self.over:
            self.sum_up()
            sums, _, log = self._summed
            self._summed = replace(sums, wait_ns=sums.wait_ns + end_ns - begin_ns), end_ns, log

    def heard(self, report: Report) -> None:
        """A worker has answered. What it did before this pass began is not counted: shares are of a pass's time."""
        self.retries += report.retries
        if report.busy_ns:
            began_ns = report.began_ns
            if began_ns >= self.begun_ns:
                self.busy_ns[report.worker] += report.busy_ns
                if not 0 < self.first_load_ns <= began_ns:
                    self.first_load_ns = began_ns
            else:
                self.busy_ns[report.worker] += max(0, began_ns + report.busy_ns - self.begun_ns)

    def sum_up(self) -> None:
        """Empty the log. Only for whoever writes it, or when nobody does any more."""
        if self.log:
            sums, latest_ns = self._now()
            self._first = self.first
            self._waits_ns.extend(self.unsummed_waits_ns())
            self.log = []
            self._summed = sums, latest_ns, self.log

    def unsummed_waits_ns(self) -> list[int]:
        log = self._summed[2][:]
        return [end_ns - begin_ns for begin_ns, end_ns in zip(log[::4], log[1::4], strict=True)]

    def add_to(self, total: Counts, now_ns: int) -> None:
        """Add the sums as they are at this moment."""
        is_running, asked_ns = self.is_running, self.asked_ns
        sums, latest_ns = self._now()
        total.add(sums)
        if is_running and asked_ns > latest_ns:
            total.wait_ns += max(0, now_ns - asked_ns)
        more = Counts(retries=self.retries, restarts=self.restarts, busy_ns=self.busy_ns)
        more.pass_ns = max(0, (now_ns if is_running else latest_ns) - self.begun_ns)
        total.add(more)

    def _now(self) -> tuple[Counts, int]:
        """Sums and log together, and when the training loop was last seen."""
        sums, latest_ns, log = self._summed
        log = log[:]
        if not log:
            return sums, latest_ns
        return Counts(
            steps=sums.steps + len(log) // 4,
            wait_ns=sums.wait_ns + sum(log[1::4]) - sum(log[::4]),
            samples=sums.samples + sum(log[2::4]),
            size_bytes=sums.size_bytes + sum(log[3::4]),
        ), log[-3]

    @property
    def is_running(self) -> bool:
        return not self.over and not self.closed and self._owner() is not None

    def is_left(self, owner: Any) -> bool:
        """Whether nobody can go on with it, now that `owner` begins a new pass."""
        alive = self._owner()
        return alive is None or alive is owner

    @property
    def first(self) -> tuple[int, int] | None:
        """When the first batch was asked for, and when it came."""
        log = self._summed[2]
        return self._first if self._first or not log else (log[0], log[1])

    @property
    def split_first(self) -> tuple[int, int]:
        """What the training loop waited for the first batch: until somebody had begun to load it, and from then on."""
        if self.first is None:
            return self.start_ns, 0
        begin_ns, end_ns = self.first
        loading_from_ns = min(max(begin_ns, self.first_load_ns), end_ns)
        return self.start_ns + loading_from_ns - begin_ns, end_ns - loading_from_ns


class Tally:
    """Counts for one loader, over all its passes."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.clock = clock  # in nanoseconds, the same for all processes of a machine
        self.number = next(_NUMBERS)  # of the loader in this process
        self.memory = Memory()
        self._waits_ns: deque[int] = deque(maxlen=KEPT_WAITS)
        self._folded = Counts()
        self._passes: list[PassTally] = []  # the latest last
        self._lock = threading.Lock()  # for the two above

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()  # counts belong to the process, and to the loader, that made them

    def begin_pass(self, begun_ns: int, owner: Any, workers: int) -> PassTally:
        """A pass can load from now on; the time until here was its start-up."""
        begun = PassTally(begun_ns, self.clock(), owner, workers, self._waits_ns)
        with self._lock:
            self._fold(owner)
            self._passes.append(begun)
        return begun

    def _fold(self, owner: Any) -> None:
        """Add up passes that are over: ended, without an iterator, or with one that begins anew."""
        still: list[PassTally] = []
        for one in self._passes:
            one.over |= one.is_left(owner)
            if one.over:
                one.sum_up()
                one.add_to(self._folded, 0)
            else:
                still.append(one)
        self._passes = still

    def total(self) -> Counts:
        """What all passes have counted until now."""
        total, now_ns = Counts(), self.clock()
        with self._lock:
            total.add(self._folded)
            for one in self._passes:
                one.add_to(total, now_ns)
        return total

    def stats(self, latest_steps: int = KEPT_WAITS, **gauges: int) -> Stats:
        """The numbers now; quantiles are those of the latest steps. `gauges` are those that nobody counts."""
        total = self.total()
        with self._lock:
            latest = self._passes[-1] if self._passes else None
            waits_ns = [*self._waits_ns, *(wait_ns for one in self._passes for wait_ns in one.unsummed_waits_ns())]
        start_up_ns, first_batch_ns = latest.split_first if latest is not None else (0, 0)
        read_off: dict[str, Any] = {**_NO_GAUGES, **gauges}
        return Stats(
            steps=total.steps,
            samples=total.samples,
            size_bytes=total.size_bytes,
            seconds=total.pass_ns / 1e9,
            wait_s=total.wait_ns / 1e9,
            wait_quantiles_s=_quantiles(sorted(waits_ns[-latest_steps:])),
            start_up_s=start_up_ns / 1e9,
            first_batch_s=first_batch_ns / 1e9,
            busy_s=tuple(busy_ns / 1e9 for busy_ns in total.busy_ns),
            ready=latest.ready if latest is not None and latest.is_running else 0,
            retries=total.retries,
            restarts=total.restarts,
            peak_bytes=self.memory.peak_bytes,
            **read_off,
        )


class Memory:
    """Looks at how much memory a loader's processes hold together, seldom enough not to be noticed."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.due_ns = 0  # when to look unasked; 0: nobody has begun yet

    def begin(self, now_ns: int, processes: int) -> None:
        """A pass begins with so many processes."""
        self.due_ns = self.due_ns or now_ns + _LOOK_SHARE * _GUESSED_LOOK_NS * processes

    def look(self, pids: Iterable[int]) -> None:
        """Look now."""
        begun_ns = time.perf_counter_ns()
        self.peak_bytes = max(self.peak_bytes, proportional_bytes(pids))
        now_ns = time.perf_counter_ns()
        self.due_ns = now_ns + _LOOK_SHARE * (now_ns - begun_ns)


def _quantiles(ordered: list[int]) -> dict[str, float]:
    if not ordered:
        return {}
    places = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    return {name: ordered[round(share * (len(ordered) - 1))] / 1e9 for name, share in places.items()}
