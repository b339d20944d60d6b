"""Worker processes: started, fed through pipes, listened to, and let go.

    training process                                          worker processes
      submit ──► ticket pipe (one a worker, or one for all) ──►  read, load, write rows into the slot
      wait  ◄──  report pipe (one for all)               ◄──────  one record a ticket

Waiting is one poll() over the report pipe and the workers' process descriptors: it ends with a report, a death or the
timeout, and nothing ticks meanwhile. Tickets are written without blocking; what does not fit waits here, so the two
sides can never block on each other.
"""

from __future__ import annotations

import os
import select
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.contracts import NO_ROW, Answer, Ask, EpochNote, FailedRows, Job, Report, Ticket, Workers, WorkerSeat
from stoker.errors import RemoteError, WorkerDied, describe_exit, likely_cause
from stoker.slots import Arena, own_fork
from stoker.workers.interrupts import born_deaf, interrupts_kept
from stoker.workers.main import (
    EPOCH,
    FIRST,
    LANE_SPAN,
    LANES_AT,
    ROW,
    Descriptor,
    Station,
    worker_main,
    write_note,
)
from stoker.workers.parcel import Parcel
from stoker.workers.pipes import OPEN_PIPES, Pipes, let_go, watch_end
from stoker.workers.recovery import Given, Held, Recovery
from stoker.workers.wire import RECORD, ReportCode, TicketCode, write_records

_READ_BYTES = RECORD * 1024
_NOBODY = (-1, -1)  # no ticket


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
    options: Workers = field(default_factory=Workers)


class ProcessCrew:
    """Runs tickets in worker processes."""

    def __init__(self, job: Job, arena: Arena, staff: Staff) -> None:
        self._arena, self._staff = arena, staff
        self._tickets, self._reports = TicketCode(arena), ReportCode(arena)
        self._epoch = 0
        self._unsent: list[deque[bytes]] = [deque() for _ in range(staff.processes if staff.private else 1)]
        self._outstanding: dict[tuple[int, int], Given] = {}
        self._parcel = Parcel(job)
        self._states: list[Any] = list(staff.states) or [None] * staff.processes
        self._recovery = Recovery(staff.options)
        self._alone: deque[tuple[int, int]] = deque()  # tickets that are sent one row at a time: one of them kills
        self._alone_now = _NOBODY
        self._reserved = -1  # the pipe that nothing is sent through while a suspect is at hand
        self._quiet_before = False
        self._pipes = Pipes(len(self._unsent))
        self.workers: list[Any] = []
        self.restarts = 0  # workers that were started in the place of others
        self._close = weakref.finalize(self, let_go, os.getpid(), arena, self._pipes, self.workers, self._parcel)
        OPEN_PIPES.add(self._pipes)
        try:
            for number in range(staff.processes):
                self.workers.append(self._start(number))
            if not staff.options.replaces:
                self._parcel.close()
        except BaseException:
            self.close()
            raise
        self._poll = self._make_poll()
        if staff.init_fn is not None and staff.private:
            self._hear_from_all()

    def begin_epoch(self, note: EpochNote) -> int:
        if self._epoch:  # a worker that is replaced from now on begins the new epoch, not the end of the old one
            self._states = [None] * self._staff.processes
        self._epoch += 1
        write_note(self._arena.control, note)
        self._arena.control[EPOCH] = self._epoch
        return self._epoch

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        pipe = worker if self._staff.private and worker is not None else 0
        self._outstanding[ticket.order, ticket.start] = Given(ticket, pipe)
        self._unsent[pipe].append(self._tickets.encode(ticket))

    def flush(self) -> None:
        """Write what the pipes take."""
        for number, unsent in enumerate(self._unsent):
            if unsent and number != self._reserved:
                for _ in range(write_records(self._pipes.ticket_writers[number], list(unsent))):
                    unsent.popleft()

    def wait(self, timeout_s: float | None) -> list[Report]:
        self.flush()
        reports = self.collect()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not reports and self._outstanding:
            events = self._poll.poll(self._patience_ms(deadline))
            reports = self.collect()
            if reports:
                break
            reports = self._look_after_workers()
            if not reports and not events and deadline is not None and time.monotonic() >= deadline:
                break
        return reports

    def _patience_ms(self, deadline: float | None) -> float | None:
        """How long to wait at most: until the timeout, a sample's deadline, or a look for a ticket that got lost."""
        ends = [end for end in (deadline, self._recovery.next_look(self._arena.control, self._lanes())) if end]
        return max(0.0, min(ends) - time.monotonic()) * 1000 if ends else None

    def _look_after_workers(self) -> list[Report]:
        """End the stuck, replace the dead; gives reports in the name of those that cannot give them any more."""
        for number in self._recovery.stuck(self._arena.control, self._lanes(), time.monotonic_ns()):
            self.workers[number].kill()
            self.workers[number].join()
        reports: list[Report] = []
        for number, worker in enumerate(self.workers):
            if not worker.is_alive():
                reports += self.collect()  # what it wrote before it died
                reports += self._replace(number, worker)
        if not reports and self._recovery.looking:
            reports = self._look_for_lost()
        return reports

    def _look_for_lost(self) -> list[Report]:
        """Send again what nobody has: seen twice, because a ticket may be between the pipe and the note of it."""
        quiet = self._is_quiet() and self._quiet_before
        self._quiet_before = self._is_quiet()
        reports = self.collect()  # what was written while looking
        if quiet and not reports:
            self._send_again([key for key in self._outstanding if key not in self._alone])
            self._recovery.looking = False
        return reports

    def _replace(self, number: int, worker: Any) -> list[Report]:
        """A worker is gone: start another in its seat, which takes over what it held, or give up."""
        held = self._held_by(number)
        lanes = self._lanes_of(number)
        if not self._recovery.may_replace(worker.exitcode):
            raise self._obituary(number, worker, [one.ticket for one in held])
        reports, stuck = [], self._recovery.was_stuck(lanes)
        for place in lanes:  # also those whose report came through, and whose mark stayed
            self._arena.control[place] = 0
        for one in held:
            error = self._recovery.verdict(one, len(held) == 1, stuck, worker.exitcode)
            if error is not None:
                del self._outstanding[one.ticket.order, one.ticket.start]
                reports.append(self._bad_sample(one, number, error))
        again = self._lost_with(number, held)
        if self._alone_now in again:  # it has its turn again
            again.remove(self._alone_now)
            self._alone.appendleft(self._alone_now)
            self._alone_now = _NOBODY
        if len(held) > 1 or self._staff.coroutines:  # who of them it was shows when each is loaded alone
            self._alone.extend(again)
            again = []
        self._recovery.replaced(lanes)
        self._recovery.pause()
        self.workers[number] = self._start(number)
        self.restarts += 1
        self._poll = self._make_poll()
        self._send_one_alone()
        self._send_again(again)
        return reports

    def _lost_with(self, number: int, held: list[Held]) -> list[tuple[int, int]]:
        """The tickets that have to be sent again."""
        if not self._staff.private:
            self._recovery.looking = True  # one may have been taken and not noted when the worker died
            return [key for one in held if (key := (one.ticket.order, one.ticket.start)) in self._outstanding]
        self._pipes.renew(number)
        self._unsent[number].clear()
        return [key for key, given in self._outstanding.items() if given.pipe == number and key not in self._alone]

    def _send_one_alone(self) -> None:
        """Send the next suspect, one row, once the last was answered: nobody else is at hand in that process then."""
        self._alone = deque(key for key in self._alone if key in self._outstanding)
        if self._alone_now in self._outstanding:
            return
        self._reserved = -1
        if not self._alone:
            return
        self._alone_now = key = self._alone.popleft()
        given = self._outstanding[key]
        rest = given.ticket
        if rest.ask is Ask.ROWS and rest.stop - rest.start > 1:
            first = replace(rest, stop=rest.start + 1, keys=rest.keys[:1])
            rest = replace(rest, start=rest.start + 1, keys=rest.keys[1:])
            self._outstanding[key] = Given(first, given.pipe)
            self._outstanding[rest.order, rest.start] = Given(rest, given.pipe)
            self._alone.appendleft((rest.order, rest.start))
        record = self._again(key)
        if not write_records(self._pipes.ticket_writers[given.pipe], [record]):
            self._unsent[given.pipe].appendleft(record)
        elif self._staff.private:
            self._reserved = given.pipe

    def _lanes_of(self, number: int) -> list[int]:
        """Where the lanes of a worker make their notes."""
        first = LANES_AT + number * self._staff.lanes * LANE_SPAN
        return list(range(first, first + self._staff.lanes * LANE_SPAN, LANE_SPAN))

    def _held_by(self, number: int) -> list[Held]:
        """What the lanes of a worker were doing, as far as they noted it."""
        control = self._arena.control
        if self._staff.coroutines:
            return self._awaited_by(number)
        found = [(place, self._held_at(place)) for place in self._lanes_of(number)]
        return [Held(place, given.ticket, control[place + ROW], given.pipe) for place, given in found if given]

    def _awaited_by(self, number: int) -> list[Held]:
        """What a worker was awaiting: the suspect that it was given alone, else anything that was on its way to it."""
        place, suspect = self._lanes_of(number)[0], self._outstanding.get(self._alone_now)
        if suspect is not None and suspect.pipe == number == self._reserved:
            ticket = suspect.ticket
            return [Held(place, ticket, ticket.start if ticket.stop - ticket.start == 1 else NO_ROW, number)]
        given_to = [given for given in self._outstanding.values() if given.pipe == number]
        return [Held(place, given.ticket, NO_ROW, number) for given in given_to]

    def _bad_sample(self, held: Held, number: int, error: RemoteError) -> Report:
        """A report for the sample that ended its worker; the other rows of its ticket are asked for again."""
        ticket, row = held.ticket, held.row
        payload = FailedRows([(row, error)])
        if ticket.ask is not Ask.ROWS:
            return Report(ticket.order, Answer.FAILED, ticket.start, ticket.stop, number, payload=payload)
        for start, stop in ((ticket.start, row), (row + 1, ticket.stop)):
            if start < stop:
                keys = ticket.keys[start - ticket.start : stop - ticket.start]
                part = replace(ticket, start=start, stop=stop, keys=keys)
                self._outstanding[part.order, part.start] = Given(part, held.pipe)
        return Report(ticket.order, Answer.FAILED, row, row + 1, number, payload=payload)

    def _send_again(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            self._unsent[self._outstanding[key].pipe].append(self._again(key))
        self.flush()

    def _again(self, key: tuple[int, int]) -> bytes:
        """A ticket that a worker has died on, to be sent once more."""
        given = self._outstanding[key]
        self._outstanding[key] = wary = Given(replace(given.ticket, singly=True), given.pipe)
        return self._tickets.encode(wary.ticket)

    def _is_quiet(self) -> bool:
        """Whether nobody works on anything and nothing waits to be taken, so that what is outstanding was lost."""
        waiting = any(select.select([reader], [], [], 0)[0] for reader in self._pipes.ticket_readers)
        return not waiting and not any(self._arena.control[place] for place in self._lanes()) and not any(self._unsent)

    def _lanes(self) -> range:
        return range(LANES_AT, LANES_AT + self._staff.processes * self._staff.lanes * LANE_SPAN, LANE_SPAN)

    def _held_at(self, place: int) -> Given | None:
        return self._outstanding.get((self._arena.control[place] - 1, self._arena.control[place + FIRST]))

    def close(self) -> None:
        self._close()

    def _start(self, number: int) -> Any:
        """Start the worker in a seat."""
        staff = self._staff
        station = Station(
            self._arena,
            WorkerSeat(number, staff.processes, staff.base_seed, staff.lanes),
            Descriptor(self._pipes.ticket_readers[number if staff.private else 0]),
            Descriptor(self._pipes.report_writer),
            self._parcel,
            staff.init_fn,
            staff.coroutines,
            os.getpid(),
            self._states[number],
            watched=staff.options.replaces and not staff.coroutines,
            timed=staff.options.sample_timeout_s is not None,
            max_bytes=staff.options.worker_max_bytes,
            owner_handles_term=callable(signal.getsignal(signal.SIGTERM)),
            epoch=max(1, self._epoch),
        )
        worker = staff.context.Process(target=worker_main, args=(station,), daemon=True)
        start_method = staff.context.get_start_method()
        with own_fork(), interrupts_kept(), born_deaf(start_method):
            _start_with_hint(worker, staff.context)
        watch_end(worker, start_method)
        return worker

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
        if not self._close.alive:
            return []
        try:
            records = os.read(self._pipes.report_reader, _READ_BYTES)
        except BlockingIOError:
            return []
        reports = [report for report in self._reports.decode(records) if self._is_awaited(report)]
        for report in reports:
            self._recovery.heard()
            state = getattr(report.payload, "state", None)
            if state is not None:
                self._states[report.worker] = state
        return reports

    def _is_awaited(self, report: Report) -> bool:
        """Whether this answers something that was asked; a ticket that was sent twice is answered once."""
        known = self._outstanding.pop((report.order, report.start), None) is not None
        if known and (self._alone or self._reserved >= 0):
            self._send_one_alone()
        return known

    def _make_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._pipes.report_reader, select.POLLIN)
        for worker in self.workers:
            poll.register(worker.end, select.POLLIN)
        return poll

    def _obituary(self, number: int, worker: Any, held: list[Ticket]) -> WorkerDied:
        stuck = self._recovery.was_stuck(self._lanes_of(number))
        limit_s = self._staff.options.sample_timeout_s
        end = (
            f"was ended because a sample took more than {limit_s} seconds" if stuck else describe_exit(worker.exitcode)
        )
        text = (
            f"DataLoader worker (pid {worker.pid}) {end}. "
            f"This was worker {number} of {len(self.workers)}, {_describe_held(held)}.\n"
            f" {'' if stuck else ' ' + likely_cause(worker.exitcode)}{self._recovery.advice()}"
        )
        return WorkerDied(text, worker=number, pid=worker.pid, exit_code=worker.exitcode, samples=_keys_of(held))


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
