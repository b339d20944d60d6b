"""When the training loop waits, where somebody takes batches from a pass ahead of the loop.

A pass tells its watch when it is asked for a batch and when it has given one. Read ahead, in another thread, it does
not know when the training loop itself waits. So then it puts what each batch holds into a queue instead, and whoever
reads ahead has one of these, tells it in the loop's own thread, and both are put together there: the log of steps has
one writer.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from stoker.watch.watch import PassWatch


class LoopEvents(Protocol):
    """What is told of whoever asks a pass for batches."""

    def asked(self) -> None:
        """It asks for a batch."""

    def got(self, samples: int, size_bytes: int) -> None:
        """It got one."""

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""


class Contents:
    """What the batches hold that were read ahead."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, int]] = deque()  # samples, bytes

    def asked(self) -> None:
        """Not by the training loop."""

    def got(self, samples: int, size_bytes: int) -> None:
        self._held.append((samples, size_bytes))

    def missed(self, error: BaseException) -> None:
        """The loop will be told when it gets there."""

    def next(self) -> tuple[int, int]:
        """Those of the next batch that the loop is given."""
        return self._held.popleft()


class LoopClock:
    """Told when the training loop asks for a batch, and what came of it."""

    def __init__(self, watch: PassWatch, contents: Contents) -> None:
        self._watch, self._contents = watch, contents

    def asked(self) -> None:
        """The loop asks for a batch."""
        self._watch.asked()

    def got(self) -> None:
        """It got one."""
        self._watch.got(*self._contents.next())

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""
        self._watch.missed(error)
