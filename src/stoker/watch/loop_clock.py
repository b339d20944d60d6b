"""When the training loop waits, where somebody takes batches from a pass ahead of the loop.

A pass counts its own waits. Read ahead, in another thread, it does not know when the training loop itself waits; so
whoever reads ahead has one of these and tells it. The pass puts what each batch holds into a queue, and the loop's
thread puts both together when it is given the batch: the log of steps has one writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.passes.batch_pass import BatchIterator


class LoopClock:
    """Told when the training loop asks for a batch, and what came of it."""

    def __init__(self, iterator: BatchIterator) -> None:
        self._iterator, self._made = iterator, iterator._contents
        self._count, self._trace = iterator._count, iterator._trace
        self._batches = 0

    def asked(self) -> None:
        """The loop asks for a batch."""
        self._count.asked_ns = self._iterator.begin_step()

    def got(self) -> None:
        """It got one."""
        begin_ns, end_ns = self._count.asked_ns, self._iterator._clock()
        samples, size_bytes = self._made.popleft()
        self._count.log.extend((begin_ns, end_ns, samples, size_bytes))
        if self._trace is not None:
            self._trace.wait(begin_ns, end_ns, {"batch": self._batches, "samples": samples})
        self._batches += 1

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""
        self._iterator.end_step(self._count.asked_ns, error)
