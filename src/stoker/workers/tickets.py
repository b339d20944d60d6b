"""How tickets get to workers: through a pipe to a certain one, or by the board to whoever is free.

Each way has a sender in the training process and a taker in a worker, with the same few methods. A sender is the one
who knows which tickets are on their way; after a death it says which of them nobody has any more.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Protocol

from stoker.workers.pipes import Pipes
from stoker.workers.wire import RECORD, write_records

Key = tuple[int, int]  # a ticket's batch and first row
NOBODY = -1


class Sender(Protocol):
    """The training process's side."""

    @property
    def is_held_back(self) -> bool:
        """Whether something waits until a ticket that was sent alone is answered."""

    def submit(self, key: Key, record: bytes, worker: int) -> None:
        """Send a ticket with the next flush."""

    def send_alone(self, key: Key, record: bytes, worker: int) -> None:
        """Send a ticket so that its worker has nothing else at hand until it is answered."""

    def go_on(self) -> None:
        """The ticket that was sent alone is answered."""

    def flush(self) -> None:
        """Send what goes without blocking."""

    def answered(self, key: Key) -> None:
        """A ticket is no longer on its way."""

    def lost_with(self, worker: int) -> dict[Key, bool]:
        """A worker is dead: the tickets that nobody has any more, oldest first, and whether it may have taken them.

        They are no longer on their way.
        """

    def rouse(self, count: int) -> None:
        """Let so many lanes look up that may be asleep."""


class Taker(Protocol):
    """A worker's side."""

    def take(self) -> tuple[int, bytes] | None:
        """Block for a ticket: a number to release it by, and its record. None when there will be no more.

        A record may be empty: then there was nothing after all.
        """

    def release(self, number: int) -> None:
        """The ticket was answered."""


class PrivateSender:
    """A pipe for each worker: nobody else reads it, so what a dead worker had was all that was sent to it."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._unsent: list[deque[bytes]] = [deque() for _ in pipes.ticket_writers]
        self._sent_to: dict[Key, int] = {}
        self._alone = NOBODY  # the worker that is sent nothing, because a suspect is at hand there

    @property
    def is_held_back(self) -> bool:
        return self._alone != NOBODY

    def submit(self, key: Key, record: bytes, worker: int) -> None:
        self._sent_to[key] = worker
        self._unsent[worker].append(record)

    def send_alone(self, key: Key, record: bytes, worker: int) -> None:
        self._sent_to[key] = worker
        if write_records(self._pipes.ticket_writers[worker], [record]):
            self._alone = worker
        else:
            self._unsent[worker].appendleft(record)

    def go_on(self) -> None:
        self._alone = NOBODY

    def flush(self) -> None:
        for worker, unsent in enumerate(self._unsent):
            if unsent and worker != self._alone:
                for _ in range(write_records(self._pipes.ticket_writers[worker], list(unsent))):
                    unsent.popleft()

    def answered(self, key: Key) -> None:
        self._sent_to.pop(key, None)

    def lost_with(self, worker: int) -> dict[Key, bool]:
        self._pipes.renew(worker)
        self._unsent[worker].clear()
        lost = [key for key, to in self._sent_to.items() if to == worker]
        for key in lost:
            del self._sent_to[key]
        if self._alone == worker:
            self._alone = NOBODY
        return dict.fromkeys(lost, True)

    def rouse(self, count: int) -> None:
        """Nobody is asked to leave whose tickets are his own."""


class PrivateTaker:
    """Reads a worker's own pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def take(self) -> tuple[int, bytes] | None:
        record = os.read(self._fd, RECORD)  # raises BlockingIOError where lanes are coroutines
        return (NOBODY, record) if record else None

    def release(self, number: int) -> None:
        """The pipe is this worker's own: there is nothing to let go."""
