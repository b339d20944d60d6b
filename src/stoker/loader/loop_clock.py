"""Told when the training loop waits: by a pass itself, or by whoever takes batches from it ahead of the loop.

What is loaded and what is waited for are counted apart, because reading ahead does them in two threads: each number of
a `PassTally` has one writer.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.loader.tally import PassTally
from stoker.loader.trace import PassTrace


@dataclass
class LoopClock:
    """Notes the waits of one pass. Times are nanoseconds of `time.perf_counter_ns`."""

    count: PassTally
    trace: PassTrace | None
    batches: int = 0

    def waited(self, begin_ns: int, end_ns: int) -> None:
        """The loop asked for a batch, and got it."""
        self.count.step(begin_ns, end_ns)
        if self.trace is not None:
            self.trace.wait(begin_ns, end_ns, {"batch": self.batches})
        self.batches += 1

    def ended(self, begin_ns: int, end_ns: int, error: BaseException) -> None:
        """The loop asked for a batch, and there was none: the end, or an error."""
        self.count.waited(begin_ns, end_ns)
        if self.trace is not None and not self.count.over:
            self.trace.end(begin_ns, end_ns, error)
        self.count.over |= isinstance(error, StopIteration)
