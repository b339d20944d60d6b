"""The pipes between the training process and its workers, and letting workers go.

A process that is forked from the training process later (another loader's worker, the user's own) closes its copies of
the training process's ends at once: else a worker would not see the end of its ticket pipe. Workers leave when that end
comes, or when nobody listens; one that does not is ended.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from multiprocessing import connection
from typing import Any

from stoker.slots import Arena
from stoker.workers.main import EPOCH
from stoker.workers.parcel import Parcel

# How long a worker may take to finish what it is doing before it is ended, as in torch's loader.
_PATIENCE_S = 5.0


class Pipes:
    """The descriptors between the training process and its workers."""

    def __init__(self, ticket_pipes: int) -> None:
        pairs = [os.pipe() for _ in range(ticket_pipes)]
        self.ticket_readers = [reader for reader, _ in pairs]
        self.ticket_writers = [writer for _, writer in pairs]
        self.report_reader, self.report_writer = os.pipe()
        for fd in (*self.ticket_writers, self.report_reader):
            os.set_blocking(fd, False)

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


OPEN_PIPES: weakref.WeakSet[Pipes] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pipes in list(OPEN_PIPES):
        pipes.close_own_ends()
    OPEN_PIPES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def watch_end(worker: Any, start_method: str) -> None:
    """Note, as `worker.end`, a descriptor that becomes readable when a worker that was just started ends.

    The standard library's sentinel is a pipe that the worker's own children may hold open too: its death would go
    unnoticed until they are gone as well. A process descriptor tells of that one process. (A worker of the fork server
    is nobody's child here, and only its sentinel says how it ended.)
    """
    worker.end = worker.sentinel
    if start_method == "forkserver" or not hasattr(os, "pidfd_open"):
        return
    with contextlib.suppress(OSError):  # a kernel or a sandbox without them
        worker.end = os.pidfd_open(worker.pid)
        weakref.finalize(worker, os.close, worker.end)


def let_go(owner_pid: int, arena: Arena, pipes: Pipes, workers: list[Any], parcel: Parcel) -> None:
    """Close the pipes and wait until the workers are gone."""
    if os.getpid() != owner_pid:
        return  # a forked child dropped its copy; the workers are not its own
    OPEN_PIPES.discard(pipes)
    parcel.close()
    arena.control[EPOCH] += 1
    pipes.close_own_ends()
    pipes.close_rest()
    _wait_for(workers, _PATIENCE_S)
    for end in ("terminate", "kill"):
        for worker in workers:
            if worker.is_alive():
                getattr(worker, end)()
        _wait_for(workers, _PATIENCE_S)


def _wait_for(workers: list[Any], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    waiting = {worker.end: worker for worker in workers if worker.is_alive()}
    while waiting and (left := deadline - time.monotonic()) > 0:
        for end in connection.wait(list(waiting), left):
            waiting.pop(end).join()
