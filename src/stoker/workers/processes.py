"""Worker processes: started, fed through pipes, listened to, and let go.

    training process                                          worker processes
      submit ──► ticket pipe (one a worker, or one for all) ──►  read, load, write rows into the slot
      wait  ◄──  report pipe (one for all)               ◄──────  one record a ticket

Waiting is one poll() over the report pipe and the workers' sentinels: it ends with a report, a death or the timeout,
and nothing ticks meanwhile. Tickets are written without blocking; what does not fit waits here, so the two sides can
never block on each other. A process that is forked from the training process later (another loader's worker, the
user's own) closes its copies of the pipes at once: else a worker would not see the end of its ticket pipe.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from stoker.contracts import Answer, Ask, EpochNote, Job, Report, Ticket, WorkerSeat
from stoker.errors import WorkerDied, describe_exit, likely_cause
from stoker.slots import Arena
from stoker.workers.main import EPOCH, LANE_SPAN, LANES_AT, Descriptor, Station, worker_main, write_note
from stoker.workers.parcel import Parcel
from stoker.workers.wire import RECORD, ReportCode, TicketCode, write_records

# How long a worker may take to finish what it is doing before it is ended, as in torch's loader.
_PATIENCE_S = 5.0
_READ_BYTES = RECORD * 1024


@dataclass(frozen=True)
class Staff:
    """How many processes, and what they are given."""

    processes: int
    lanes: int
    context: Any  # a multiprocessing context
    base_seed: int
    init_fn: Callable[[int], Any] | None = None
    private: bool = True  # each worker has a ticket pipe of its own; False: all read the same one
    coroutines: bool = False
    states: Sequence[Any] = ()  # each worker's place, in a run that is resumed


class ProcessCrew:
    """Runs tickets in worker processes."""

    def __init__(self, job: Job, arena: Arena, staff: Staff) -> None:
        self._arena, self._staff = arena, staff
        self._tickets, self._reports = TicketCode(arena), ReportCode(arena)
        self._epoch = 0
        self._unsent: list[deque[bytes]] = [deque() for _ in range(staff.processes if staff.private else 1)]
        self._outstanding: dict[tuple[int, int], Ticket] = {}
        self._pipes = _Pipes(len(self._unsent))
        self.workers: list[Any] = []
        self._close = weakref.finalize(self, _close, os.getpid(), arena, self._pipes, self.workers)
        _OPEN_PIPES.add(self._pipes)
        try:
            self._start(Parcel(job))
        except BaseException:
            self.close()
            raise
        self._poll = self._make_poll()
        if staff.init_fn is not None and staff.private:
            self._hear_from_all()

    def begin_epoch(self, note: EpochNote) -> int:
        self._epoch += 1
        write_note(self._arena.control, note)
        self._arena.control[EPOCH] = self._epoch
        return self._epoch

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        self._outstanding[ticket.order, ticket.start] = ticket
        pipe = worker if self._staff.private and worker is not None else 0
        self._unsent[pipe].append(self._tickets.encode(ticket))

    def flush(self) -> None:
        """Write what the pipes take."""
        for fd, unsent in zip(self._pipes.ticket_writers, self._unsent, strict=True):
            for _ in range(write_records(fd, list(unsent)) if unsent else 0):
                unsent.popleft()

    def wait(self, timeout_s: float | None) -> list[Report]:
        self.flush()
        reports = self.collect()
        if reports or not self._outstanding:
            return reports
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            events = self._poll.poll(left_ms)
            reports = self.collect()
            if reports or not events:
                return reports
            dead = [worker for worker in self.workers if not worker.is_alive()]
            if dead:
                reports = self.collect()  # what was written between the look and the death
                if not reports:
                    raise self._obituary(dead)
                return reports

    def close(self) -> None:
        self._close()

    def _start(self, parcel: Parcel) -> None:
        for number in range(self._staff.processes):
            seat = WorkerSeat(number, self._staff.processes, self._staff.base_seed, self._staff.lanes)
            station = Station(
                self._arena,
                seat,
                Descriptor(self._pipes.ticket_readers[number if self._staff.private else 0]),
                Descriptor(self._pipes.report_writer),
                parcel,
                self._staff.init_fn,
                self._staff.coroutines,
                os.getpid(),
                self._staff.states[number] if self._staff.states else None,
            )
            worker = self._staff.context.Process(target=worker_main, args=(station,), daemon=True)
            _start_with_hint(worker, self._staff.context)
            self.workers.append(worker)
        parcel.close()

    def _hear_from_all(self) -> None:
        """Wait until every worker has run `init_fn`: what that raises belongs to the one who starts them."""
        waiting = set(range(self._staff.processes))
        for number in waiting:
            self.submit(Ticket(-1 - number, Ask.READY, 0, 0, 0, 1, self._epoch), number)
        self._arena.reserve(1)
        while waiting:
            for report in self.wait(None):
                waiting.discard(report.worker)
                if report.answer is Answer.ERROR:
                    self.close()
                    raise report.payload.to_exception()

    def collect(self) -> list[Report]:
        try:
            records = os.read(self._pipes.report_reader, _READ_BYTES)
        except BlockingIOError:
            return []
        reports = self._reports.decode(records)
        for report in reports:
            self._outstanding.pop((report.order, report.start), None)
        return reports

    def _make_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._pipes.report_reader, select.POLLIN)
        for worker in self.workers:
            poll.register(worker.sentinel, select.POLLIN)
        return poll

    def _obituary(self, dead: list[Any]) -> WorkerDied:
        first = dead[0]
        number = self.workers.index(first)
        held = self._held_by(number)
        pids = ", ".join(str(worker.pid) for worker in dead)
        text = (
            f"DataLoader worker (pid {pids}) {describe_exit(first.exitcode)}. "
            f"This was worker {number} of {len(self.workers)}, {_describe_held(held)}.\n"
            f"  {likely_cause(first.exitcode)}"
        )
        return WorkerDied(text, worker=number, pid=first.pid, exit_code=first.exitcode, samples=_keys_of(held))

    def _held_by(self, number: int) -> list[Ticket]:
        control, lanes = self._arena.control, self._staff.lanes
        places = [LANES_AT + (number * lanes + lane) * LANE_SPAN for lane in range(lanes)]
        found = [self._outstanding.get((control[place] - 1, control[place + 1])) for place in places]
        return [ticket for ticket in found if ticket is not None]


class _Pipes:
    """The descriptors between the training process and its workers."""

    def __init__(self, ticket_pipes: int) -> None:
        pairs = [os.pipe() for _ in range(ticket_pipes)]
        self.ticket_readers = [reader for reader, _ in pairs]
        self.ticket_writers = [writer for _, writer in pairs]
        self.report_reader, self.report_writer = os.pipe()
        for fd in (*self.ticket_writers, self.report_reader):
            os.set_blocking(fd, False)

    def close_own_ends(self) -> None:
        """Close what only the training process uses: workers see the end of their tickets, and that nobody listens."""
        for fd in (*self.ticket_writers, self.report_reader):
            os.close(fd)
        self.ticket_writers = []

    def close_rest(self) -> None:
        for fd in (*self.ticket_readers, self.report_writer):
            os.close(fd)
        self.ticket_readers = []


_OPEN_PIPES: weakref.WeakSet[_Pipes] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pipes in list(_OPEN_PIPES):
        pipes.close_own_ends()
    _OPEN_PIPES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _close(owner_pid: int, arena: Arena, pipes: _Pipes, workers: list[Any]) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child dropped its copy; the workers are not its own
    _OPEN_PIPES.discard(pipes)
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
    waiting = {worker.sentinel: worker for worker in workers if worker.is_alive()}
    while waiting and (left := deadline - time.monotonic()) > 0:
        for sentinel in connection.wait(list(waiting), left):
            waiting.pop(sentinel).join()


def _start_with_hint(worker: Any, context: Any) -> None:
    """Start a process; an error of pickling keeps its type and says what to do about it."""
    try:
        worker.start()
    except Exception as error:
        if context.get_start_method() != "fork" and hasattr(error, "add_note"):
            error.add_note(
                "The dataset, collate_fn and worker_init_fn are pickled to reach a worker that is not forked. Define "
                "them at the top level of a module (no lambdas, no local classes, no open files), or use "
                'multiprocessing_context="fork", or threads: workers=stoker.Workers(processes=0, lanes=4).'
            )
        raise


def _keys_of(tickets: list[Ticket]) -> list[Any]:
    return [key for ticket in tickets if ticket.keys is not None for key in list(ticket.keys)]


def _describe_held(tickets: list[Ticket]) -> str:
    keys = [str(key) for key in _keys_of(tickets)]
    if not keys:
        return "holding no sample" if not tickets else "making a batch of its iterable dataset"
    shown = ", ".join(keys[:8]) + (f", … ({len(keys)} in all)" if len(keys) > 8 else "")
    return f"loading sample{'s' if len(keys) > 1 else ''} {shown}"
