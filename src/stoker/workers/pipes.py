"""The pipes between the training process and its workers, and letting workers go.

A process that is forked from the training process later (another loader's worker, the user's own) closes its copies of
the training process's ends at once: else a worker would not see the end of its ticket pipe. Workers leave when that end
comes, or when nobody listens; one that does not is ended.
"""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from typing import Any

from stoker.interrupts import interrupts_kept
from stoker.slots import Arena
from stoker.workers.control import EPOCH
from stoker.workers.ends import end_all
from stoker.workers.parcel import Parcel

_NEEDED_TO_START = 8  # descriptors that starting a process takes for a moment, by any start method


class Pipes:
    """The descriptors between the training process and its workers."""

    def __init__(self, ticket_pipes: int) -> None:
        with ExitStack() as undo:  # whatever was opened when descriptors run out
            pairs = [_open_pipe(undo) for _ in range(ticket_pipes)]
            self.ticket_readers = [reader for reader, _ in pairs]
            self.ticket_writers = [writer for _, writer in pairs]
            self.report_reader, self.report_writer = _open_pipe(undo)
            for fd in (*self.ticket_writers, self.report_reader):
                os.set_blocking(fd, False)
            undo.pop_all()

    def renew(self, number: int) -> None:
        """A new ticket pipe in the place of one whose reader is gone: what lies in the old one is sent again."""
        os.close(self.ticket_readers[number])
        os.close(self.ticket_writers[number])
        self.ticket_readers[number], self.ticket_writers[number] = os.pipe()
        os.set_blocking(self.ticket_writers[number], False)

    def close_own_ends(self) -> None:
        """Close what only the training process uses: workers see the end of their tickets, and that nobody listens."""
        for fd in (*self.ticket_writers, self.report_reader):
            os.close(fd)
        self.ticket_writers = []

    def close_rest(self) -> None:
        for fd in (*self.ticket_readers, self.report_writer):
            os.close(fd)
        self.ticket_readers = []


def _open_pipe(undo: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        undo.callback(os.close, end)
    return ends


def check_descriptors() -> None:
    """Raise OSError now if a process can't be started for want of descriptors: halfway, some would stay open."""
    with ExitStack() as undo:
        for _ in range(_NEEDED_TO_START // 2):
            _open_pipe(undo)


OPEN_PIPES: weakref.WeakSet[Pipes] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pipes in list(OPEN_PIPES):
        pipes.close_own_ends()
    OPEN_PIPES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def let_go(owner_pid: int, arena: Arena, pipes: Pipes, workers: list[Any], parcel: Parcel, are_deaf: bool) -> None:
    """Close the pipes and wait until the workers are gone."""
    if os.getpid() != owner_pid:
        return  # a forked child dropped its copy; the workers are not its own
    with interrupts_kept():
        OPEN_PIPES.discard(pipes)
        parcel.close()
        arena.control[EPOCH] += 1
        pipes.close_own_ends()
        pipes.close_rest()
        end_all(workers, are_deaf)
