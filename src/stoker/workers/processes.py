"""Worker processes: started, fed with tickets, listened to, and let go.

    training process                                          worker processes
      submit ──► a pipe a worker, or the board for all    ──►   take, load, write rows into the slot
      wait  ◄──  report pipe (one for all)               ◄────  one record a ticket

Waiting is one poll() over the report pipe and the workers' process descriptors: it ends with a report, a death or the
timeout, and nothing ticks meanwhile. Tickets are written without blocking; what does not fit waits here, so the two
sides can never block on each other.

A ticket has one holder at a time, known by construction: the only reader of a pipe, or whoever has the lock on its
number (`board`). It is sent again only when its holder is dead (`recovery`). So nobody writes into a slot whose batch
is complete, and a complete batch's slot may be used again.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

from stoker.contracts import Answer, Ask, EpochNote, Job, Report, Ticket
from stoker.slots import Arena
from stoker.workers.board import Publisher
from stoker.workers.control import EPOCH, Control, write_note
from stoker.workers.handed import HandedOut
from stoker.workers.pipes import OPEN_PIPES, Pipes, let_go
from stoker.workers.recovery import Recovery
from stoker.workers.seats import Seats, Staff
from stoker.workers.tickets import PrivateSender, Sender
from stoker.workers.wire import NO_REPORT, RECORD, ReportReader, TicketCode

__all__ = ["ProcessCrew", "Staff", "arena_for"]

_READ_BYTES = RECORD * 1024


def arena_for(processes: int, lanes: int) -> Arena:
    """The memory that so many workers need."""
    return Arena(Control(processes, lanes).size_bytes, outboxes=processes)


class ProcessCrew:
    """Runs tickets in worker processes."""

    def __init__(self, job: Job, arena: Arena, staff: Staff) -> None:
        self._arena, self._control = arena, Control(staff.processes, staff.lanes)
        self._pipes = Pipes(staff.processes if staff.private else 1)
        self._reports = ReportReader(arena, self._control)
        self._handed = HandedOut(TicketCode(arena), self._make_sender(staff.private))
        self._seats = Seats(job, arena, self._control, self._pipes, staff)
        self._recovery = Recovery(arena, self._control, self._seats, self._handed)
        self._epoch = 0
        self.is_at_rest = False
        self._is_woken = False  # somebody in another thread wants `wait` to return
        seats = self._seats
        holding = (os.getpid(), arena, self._pipes, seats.workers, seats.parcel, seats.handles_term)
        self._close = weakref.finalize(self, let_go, *holding)
        OPEN_PIPES.add(self._pipes)
        try:
            seats.fill()
        except BaseException:
            self.close()
            raise
        if staff.init_fn is not None and staff.private:
            self._hear_from_all()

    @property
    def workers(self) -> list[Any]:
        return self._seats.seated

    def pid_of(self, worker: int) -> int | None:
        pid: int | None = self._seats.workers[worker].pid
        return pid

    @property
    def is_idle(self) -> bool:
        """Whether everything that was asked for is answered."""
        return not self._handed

    def resize(self, processes: int, lanes: int) -> None:
        """Let so many processes with so many lanes each be at work from now on; who is too many leaves by itself."""
        if self._close.alive:  # else an interrupt came while it was let go
            self._handed.sender.rouse(self._seats.resize(processes, lanes))

    @property
    def restarts(self) -> int:
        return self._seats.restarts

    def begin_epoch(self, note: EpochNote) -> int:
        if self._epoch:
            self._seats.forget_places()
        self._epoch += 1
        write_note(self._arena.control, note)
        self._arena.control[EPOCH] = self._epoch
        return self._epoch

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        self._handed.hand_out(ticket, worker or 0)

    def flush(self) -> None:
        """Send what goes without blocking."""
        self._handed.sender.flush()

    def wait(self, timeout_s: float | None) -> list[Report]:
        self.flush()
        reports = self.collect()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not reports and self._handed:
            self.is_at_rest = True  # what a signal handler raises here finds everything in its place
            has_news = self._seats.wait(self._patience_ms(deadline))
            self.is_at_rest = False
            reports = self.collect()
            if reports or self._is_woken:
                self._is_woken = False
                break
            reports = self._recovery.look(self._collect_all)
            if not reports and not has_news and deadline is not None and time.monotonic() >= deadline:
                break
        return reports

    def collect(self) -> list[Report]:
        if not self._close.alive:
            return []
        try:
            records = os.read(self._pipes.report_reader, _READ_BYTES)
        except BlockingIOError:
            return []
        return [report for report in self._reports.decode(records) if self._is_awaited(report)]

    def wake(self) -> None:
        self._is_woken = True
        if self._close.alive:
            os.write(self._pipes.report_writer, NO_REPORT)

    def close(self) -> None:
        self._close()

    def _make_sender(self, private: bool) -> Sender:
        if private:
            return PrivateSender(self._pipes)
        return Publisher(self._arena, self._control, self._pipes.ticket_writers[0])

    def _patience_ms(self, deadline: float | None) -> float | None:
        """How long to wait at most: until the timeout, or a sample's deadline."""
        ends = [end for end in (deadline, self._recovery.next_look()) if end]
        return max(0.0, min(ends) - time.monotonic()) * 1000 if ends else None

    def _collect_all(self) -> list[Report]:
        reports: list[Report] = []
        while written := self.collect():
            reports += written
        return reports

    def _is_awaited(self, report: Report) -> bool:
        """Whether this answers something that was asked; what follows from the answer is noted."""
        key = report.number, report.start
        is_known = self._handed.forget(key)
        self._handed.sender.answered(key)
        if is_known:
            self._recovery.heard()
            state = getattr(report.payload, "state", None)
            if state is not None:
                self._seats.note_place(report.worker, state)
        return is_known

    def _hear_from_all(self) -> None:
        """Wait until every worker has run `init_fn`: what that raises belongs to the one who starts them."""
        waiting = set(range(len(self.workers)))  # each with a pipe of its own, so all seats are taken
        for number in waiting:
            self.submit(Ticket(-1 - number, Ask.READY, 0, 0, 0, 1, self._epoch), number)
        while waiting:
            for report in self.wait(None):
                waiting.discard(report.worker)
                if report.answer is Answer.ERROR:
                    self.close()
                    raise report.payload.to_exception()
