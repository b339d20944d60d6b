"""The crew of one: the training process itself loads each batch when it is asked for."""

from __future__ import annotations

from collections import deque
from typing import Any

from stoker.contracts import Job, Report, Ticket
from stoker.slots import Arena
from stoker.workers.lanes import cancelled_report, slots_of


class InlineCrew:
    """Runs tickets in `wait`, one at a time, in the order they came."""

    def __init__(self, job: Job, arena: Arena) -> None:
        self._job = job
        self._slot = slots_of(arena)
        self._tickets: deque[Ticket] = deque()
        self._epoch = 0
        job.open(None, None)

    def begin_epoch(self, note: Any) -> int:
        self._epoch += 1
        self._job.begin_epoch(note)
        return self._epoch

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        self._tickets.append(ticket)

    def flush(self) -> None:
        """Tickets are where they are needed already."""

    def wait(self, timeout_s: float | None) -> list[Report]:
        if not self._tickets:
            return []
        ticket = self._tickets.popleft()
        if ticket.epoch != self._epoch:
            return [cancelled_report(ticket)]
        return [self._job.run(ticket, self._slot(ticket.slot))]

    def close(self) -> None:
        self._tickets.clear()
