"""Lanes in the training process: threads, or coroutines in one thread.

Good where samples mostly wait or compute with the GIL released, and nothing has to be shipped to another process. The
threads block on a queue when there is nothing to do; none of them ever wakes just to look. A thread cannot be stopped
from outside: `close` waits for a sample under way, but not for ever.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from stoker.contracts import Answer, EpochNote, Job, Report, Ticket
from stoker.interrupts import interrupts_kept
from stoker.slots import Arena
from stoker.workers.ends import patience_s
from stoker.workers.lanes import Desk, serve_async, serve_in_threads, slots_of


class ThreadCrew:
    """Runs tickets on threads of this process."""

    is_at_rest = False  # a report may be between the queue and whoever takes it
    workers: Sequence[Any] = ()  # no processes
    restarts = 0

    def pid_of(self, worker: int) -> int | None:
        return None

    def __init__(self, job: Job, arena: Arena, lanes: int, coroutines: bool = False, state: Any = None) -> None:
        self._job = job
        self._tickets: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._epoch = 0
        self._lanes = lanes
        job.open(None, state)
        desk = Desk(self._take, self._send, slots_of(arena), self._is_cancelled)
        self._loop = asyncio.new_event_loop() if coroutines else None
        self._awaited: asyncio.Queue[Ticket | None] = asyncio.Queue()
        if self._loop is not None:
            thread = threading.Thread(target=self._run, args=(self._loop, desk), name="stoker-coroutines", daemon=True)
            thread.start()
            self._threads = [thread]
        else:
            self._threads = serve_in_threads(job, desk, lanes, "stoker")

    def begin_epoch(self, note: EpochNote) -> int:
        self._epoch += 1
        self._job.begin_epoch(note)
        return self._epoch

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        self._put(ticket)

    def flush(self) -> None:
        """Tickets are where they are needed already."""

    def wait(self, timeout_s: float | None) -> list[Report]:
        try:
            reports = [self._reports.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        return reports + self.collect()

    def collect(self) -> list[Report]:
        return [self._reports.get() for _ in range(self._reports.qsize())]

    def wake(self) -> None:
        """Let `wait` return: with a report that answers nothing."""
        self._reports.put(Report(-1, Answer.CANCELLED, 0, 0, worker=0))

    def close(self) -> None:
        self._epoch += 1  # whatever is still queued is cancelled
        with interrupts_kept():
            for _ in range(self._lanes):
                self._put(None)
            deadline = time.monotonic() + patience_s()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, deadline - time.monotonic()))

    def _take(self, lane: int) -> Ticket | None:
        return self._tickets.get()

    def _send(self, lane: int, ticket: Ticket, report: Report) -> None:
        self._reports.put(report)

    def _is_cancelled(self, ticket: Ticket) -> bool:
        return ticket.epoch != self._epoch

    def _put(self, ticket: Ticket | None) -> None:
        if self._loop is None:
            self._tickets.put(ticket)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._awaited.put_nowait, ticket)

    def _run(self, loop: asyncio.AbstractEventLoop, desk: Desk) -> None:
        try:
            loop.run_until_complete(serve_async(self._job, desk, self._lanes, self._awaited.get))
        finally:
            loop.close()
