"""Told when the training loop waits: by a pass itself, or by whoever takes batches from it ahead of the loop.

What is loaded and what is waited for are counted apart, because reading ahead does them in two threads: each number of
a `PassTally` has one writer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stoker.loader.tally import PassTally
from stoker.loader.trace import PassTrace


@dataclass
class LoopClock:
    """Notes the waits of one pass."""

    count: PassTally
    trace: PassTrace | None
    clock: Callable[[], int] = time.perf_counter_ns
    batches: int = 0
    _asked_ns: int = 0

    def asked(self, now_ns: int | None = None) -> None:
        """The loop asks for a batch."""
        self._asked_ns = self.count.asked_ns = self.clock() if now_ns is None else now_ns

    def got(self, samples: int | None = None) -> None:
        """It got one."""
        end_ns = self.clock()
        self.count.step(self._asked_ns, end_ns)
        if self.trace is not None:
            self.trace.wait(self._asked_ns, end_ns, {"batch": self.batches, "samples": samples})
        self.batches += 1

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""
        end_ns = self.clock()
        self.count.waited(self._asked_ns, end_ns)
        if self.trace is not None and not self.count.over:
            self.trace.end(self._asked_ns, end_ns, error)
        self.count.over |= isinstance(error, StopIteration)
