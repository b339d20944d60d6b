"""The part of a loader that answers for itself: statistics, a trace, and whoever wants to be told now and then."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.arguments.asked import OwnArguments
from stoker.passes.failures import Failures
from stoker.watch.chores import Listener
from stoker.watch.stats import Stats
from stoker.watch.tally import KEPT_WAITS, Tally
from stoker.watch.trace import Trace

if TYPE_CHECKING:
    from stoker.passes.batch_pass import BatchIterator


class Watched:
    """What `stoker.DataLoader` can tell about its passes."""

    _asked: OwnArguments
    _failures: Failures
    _tally: Tally
    _trace: Trace | None
    _listeners: list[Listener]
    _latest: weakref.ref[BatchIterator] | None

    def _watch(self) -> None:
        self._tally, self._trace, self._listeners, self._latest = Tally(), None, [], None

    def stats(self) -> Stats:
        """Where the time went so far, over all passes; `print(loader.stats())` is a readable block."""
        latest = self._latest_pass()
        self._tally.memory.look(latest.pids() if latest is not None else ())
        return self._stats()

    def _stats(self) -> Stats:
        """The same without a look at memory, which takes some milliseconds."""
        latest = self._latest_pass()
        if latest is not None:
            return latest.stats(KEPT_WAITS)
        none = {"slots": 0, "slots_in_use": 0, "slots_leased": 0}
        return self._tally.stats(max(1, self._asked.workers.lanes), failures=len(self._failures.listed), **none)

    def on_stats(self, function: Callable[[Stats, int], object], every: int = 50) -> None:
        """Call `function(stats, step)` every so many steps, with what has happened since the last call.

        It is called when the training loop asks for its next batch. `step` counts over all passes.
        """
        if every < 1:
            raise ValueError(f"every should be at least 1 step, but got {every}")
        stats = self._stats()
        self._listeners.append(Listener(function, every, stats.steps + every, stats))
        latest = self._latest_pass()
        if latest is not None:
            latest.plan()  # in the middle of a pass

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Write what the following passes do to a file for Perfetto, until the trace is closed or its block ends."""
        if self._trace is not None:
            self._trace.close()  # one at a time
        self._trace = trace = Trace(path)
        return trace

    def _latest_pass(self) -> BatchIterator | None:
        return self._latest() if self._latest is not None else None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, and a loader that travels to another process, begins its statistics anew."""
        return {**self.__dict__, "_tally": Tally(), "_trace": None, "_listeners": [], "_latest": None}
