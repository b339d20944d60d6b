"""Who watches a loader: one `Watch` for all its passes, and for each pass an object with a call for every event.

    training loop      asked ─► got, or missed            when it waits, and for what
    whoever loads      heard, ready, taken, retried,      who did what
                       restarted, decided, let_go, end
    now and then       chores                             memory, the page of `stoker top`, listeners

Where nobody has asked for a trace, one that writes nothing stands in its place. A step costs two calls, two looks at a
clock and an entry in a log: less than a hundredth of a batch that takes a tenth of a millisecond (measured:
benchmarks/overhead.py).

The watch of a pass belongs to the pass. Whoever is asked for statistics looks at the latest one, if it is still there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from stoker.contracts import Report
from stoker.watch.chores import NEVER, Chores, Listener
from stoker.watch.stats import Stats
from stoker.watch.tally import KEPT_WAITS, PassTally, Tally
from stoker.watch.trace import NO_TRACE, NoTrace, PassTrace, Trace
from stoker.whole_numbers import check_whole


class Watchable(Protocol):
    """What a pass can be asked about itself."""

    def pids(self) -> list[int]:
        """The processes that load for this one."""

    def gauges(self) -> dict[str, int]:
        """Those of the statistics that are read off and not counted: lanes, slots, failures."""

    def facts(self) -> dict[str, Any] | None:
        """What a page says beside numbers; None for no page."""

    def close(self) -> None:
        """Let go whoever loads."""


class Watch:
    """Watches one loader."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self._trace: Trace | None = None
        self._listeners: list[Listener] = []
        self._latest: weakref.ref[PassWatch] | None = None

    @property
    def clock(self) -> Callable[[], int]:
        return self.tally.clock

    def begin_pass(self, owner: Watchable, begun_ns: int, workers: int, processes: int) -> PassWatch:
        """A pass can load from now on: by so many workers, of which so many are processes. It was begun then."""
        begun = PassWatch(self.tally, owner, self.tally.begin_pass(begun_ns, owner, workers), self._listeners)
        self.tally.memory.begin(begun_ns, 1 + processes)
        if self._trace is not None and not self._trace.closed:
            begun.trace = self._trace.begin_pass(begun.count)
        begun.begin_chores()
        self._latest = weakref.ref(begun)
        return begun

    def stats(self, idle: dict[str, int]) -> Stats:
        """The numbers now, without a look at memory, which takes some milliseconds; `idle` where there is no pass."""
        latest = self._latest_watch()
        if latest is not None and latest.owner() is not None:
            return latest.stats(KEPT_WAITS)
        return self.tally.stats(KEPT_WAITS, **idle)

    def look(self) -> None:
        """Look at memory."""
        latest = self._latest_watch()
        self.tally.memory.look(latest.pids() if latest is not None else ())

    def tell(self, function: Callable[[Stats, int], object], every: int, now: Stats) -> None:
        """Call `function(stats, step)` every so many steps from now on."""
        steps = check_whole("every", every, least=1, what="steps")
        self._listeners.append(Listener(function, steps, now.steps + steps, now))
        latest = self._latest_watch()
        if latest is not None:
            latest.schedule_chores()  # in the middle of a pass

    def begin_trace(self, path: str | os.PathLike[str]) -> Trace:
        """Write down what the following passes do; one trace at a time."""
        if self._trace is not None:
            self._trace.close()
        self._trace = Trace(path)
        return self._trace

    @property
    def latest_pass(self) -> Watchable | None:
        """The pass that began last, if it is still there."""
        latest = self._latest_watch()
        return None if latest is None else latest.owner()

    def _latest_watch(self) -> PassWatch | None:
        return self._latest() if self._latest is not None else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Watch, ()  # a copy, and a loader that travels to another process, begins anew


class PassWatch:
    """Watches one pass. Called by whoever holds the pass's lock."""

    def __init__(self, tally: Tally, owner: Watchable, count: PassTally, listeners: list[Listener]) -> None:
        self.tally, self.count = tally, count
        self.owner = weakref.ref(owner)  # which has this object
        self.trace: PassTrace | NoTrace = NO_TRACE
        self._clock = tally.clock
        self._chores = Chores(listeners)
        self._steps = 0
        self._due_ns = self._due_step = NEVER

    # The training loop.

    def asked(self) -> None:
        """It asks for a batch. Chores that are due are done now: their time is a part of its wait."""
        now_ns = self.count.asked_ns = self._clock()
        if now_ns >= self._due_ns or self._steps >= self._due_step:
            self._do_chores(now_ns)

    def got(self, samples: int, size_bytes: int) -> None:
        """It got one."""
        count, end_ns = self.count, self._clock()
        count.log += (count.asked_ns, end_ns, samples, size_bytes)
        self.trace.wait(count.asked_ns, end_ns, self._steps, samples)
        self._steps += 1

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""
        begin_ns, end_ns = self.count.asked_ns, self._clock()
        self.count.waited(begin_ns, end_ns)
        if not self.count.over:
            self.trace.end(begin_ns, end_ns, error)
        self.count.over |= isinstance(error, StopIteration)

    # Whoever loads.

    def heard(self, report: Report, pid: int | None, batch: int | None) -> None:
        """A lane has answered a ticket; `pid` is None for lanes of the training process."""
        self.count.heard(report)
        self.trace.load(report, pid, batch)

    def ready(self, batches: int) -> None:
        """So many batches were finished when the training loop asked."""
        self.count.ready = batches
        self.trace.ready(self.count.asked_ns, batches)

    def taken(self, number: int, slot: int, batch: int, rows: int) -> None:
        """A batch has left the queue."""
        self.trace.taken(number, slot, {"batch": batch, "rows": rows}, self._clock)

    def restarted(self, workers: int) -> None:
        """So many workers were started in the place of others."""
        self.count.restarts += workers
        self.trace.restarted(self._clock(), workers)

    def decided(self, size: str, reason: str) -> None:
        """Another number of workers is to load."""
        self.trace.decided(self._clock(), size, reason)

    def retried(self, tries: int) -> None:
        """Samples were tried again."""
        self.count.retries += tries

    def let_go(self) -> None:
        """Nobody loads for this pass any more."""
        self.count.closed = True
        self._chores.end()

    def end(self) -> None:
        """The pass is over."""
        self._chores.end()

    # Now and then.

    def pids(self) -> list[int]:
        owner = self.owner()
        return [] if owner is None else owner.pids()

    def facts(self) -> dict[str, Any] | None:
        owner = self.owner()
        return None if owner is None else owner.facts()

    def stats(self, latest_steps: int) -> Stats:
        """The loader's statistics now, without a look at memory."""
        owner = self.owner()
        return self.tally.stats(latest_steps, **({} if owner is None else owner.gauges()))

    def begin_chores(self) -> None:
        self._due_ns, self._due_step = self._chores.begin(self)

    def schedule_chores(self) -> None:
        """Find out when there are chores again."""
        self._due_ns, self._due_step = self._chores.due(self, self._steps)

    def _do_chores(self, now_ns: int) -> None:
        try:
            self._chores.do(self, self._steps, now_ns)
        except BaseException:  # a listener's: the loop does not wait any more
            self.count.waited(now_ns, self._clock())
            raise
        finally:
            self.schedule_chores()
