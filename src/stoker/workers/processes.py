"""Worker processes: started, fed with tickets, listened to, and let go.

    training process                                          worker processes
      submit ──► a pipe a worker, or the board for all    ──►   take, load, write rows into the slot
      wait  ◄──  report pipe (one for all)               ◄────  one record a ticket

Waiting is one poll() over the report pipe and the workers' process descriptors: it ends with a report, a death or the
timeout, and nothing ticks meanwhile. Tickets are written without blocking; what does not fit waits here, so the two
sides can never block on each other.

A ticket has one holder at a time, known by construction: the only reader of a pipe, or whoever has the lock on its
number (`board`). It is sent again only when its holder is dead, and after all that a dead worker had reported was read.
So nobody writes into a slot whose batch is complete, and a complete batch's slot may be used again.
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
from stoker.interrupts import born_deaf, interrupts_kept
from stoker.slots import Arena
from stoker.workers.birth import watchful_name
from stoker.workers.board import Publisher
from stoker.workers.control import EPOCH, FIRST, ROW, Control, write_note
from stoker.workers.ends import end_now, exit_code, has_ended, watch_end
from stoker.workers.main import Descriptor, Station, worker_main
from stoker.workers.parcel import Parcel
from stoker.workers.pipes import OPEN_PIPES, Pipes, check_descriptors, let_go
from stoker.workers.recovery import Given, Held, Recovery
from stoker.workers.tickets import Key, PrivateSender, Sender
from stoker.workers.wire import NO_REPORT, RECORD, ReportReader, TicketCode

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
    private: bool = True  # tickets are for a certain worker; False: for whoever is free
    coroutines: bool = False
    states: Sequence[Any] = ()  # each worker's place, in a run that is resumed
    options: Workers = field(default_factory=Workers)


def arena_for(processes: int, lanes: int) -> Arena:
    """The memory that so many workers need."""
    return Arena(Control(processes, lanes).size_bytes, outboxes=processes)


class ProcessCrew:
    """Runs tickets in worker processes."""

    def __init__(self, job: Job, arena: Arena, staff: Staff) -> None:
        self._arena, self._staff = arena, staff
        self._control = Control(staff.processes, staff.lanes)
        self._tickets, self._reports = TicketCode(arena), ReportReader(arena, self._control)
        self._epoch = 0
        self._outstanding: dict[Key, Given] = {}
        self._parcel = Parcel(job)
        self._states: list[Any] = list(staff.states) or [None] * staff.processes
        self._recovery = Recovery(staff.options)
        self._alone: deque[Key] = deque()  # tickets that are sent one row at a time: one of them kills
        self._alone_now = _NOBODY
        self.is_at_rest = False
        self._is_woken = False  # somebody in another thread wants `wait` to return
        self._handles_term = callable(signal.getsignal(signal.SIGTERM))
        self._pipes = Pipes(staff.processes if staff.private else 1)
        self._sender: Sender = PrivateSender(self._pipes)
        if not staff.private:
            self._sender = Publisher(arena, self._control, self._pipes.ticket_writers[0])
        self.workers: list[Any] = []
        self.restarts = 0  # workers that were started in the place of others
        holding = (os.getpid(), arena, self._pipes, self.workers, self._parcel, self._handles_term)
        self._close = weakref.finalize(self, let_go, *holding)
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
        key, to = (ticket.order, ticket.start), worker or 0
        self._outstanding[key] = Given(ticket, to)
        self._sender.submit(key, self._tickets.encode(ticket), to)

    def flush(self) -> None:
        """Send what goes without blocking."""
        self._sender.flush()

    def wait(self, timeout_s: float | None) -> list[Report]:
        self.flush()
        reports = self.collect()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not reports and self._outstanding:
            self.is_at_rest = True  # what a signal handler raises here finds everything in its place
            events = self._poll.poll(self._patience_ms(deadline))
            self.is_at_rest = False
            reports = self.collect()
            if reports or self._is_woken:
                self._is_woken = False
                break
            reports = self._look_after_workers()
            if not reports and not events and deadline is not None and time.monotonic() >= deadline:
                break
        return reports

    def _patience_ms(self, deadline: float | None) -> float | None:
        """How long to wait at most: until the timeout, or a sample's deadline."""
        ends = [end for end in (deadline, self._recovery.next_look(self._arena.control, self._control)) if end]
        return max(0.0, min(ends) - time.monotonic()) * 1000 if ends else None

    def _look_after_workers(self) -> list[Report]:
        """End the stuck, replace the dead; gives reports in the name of those that cannot give them any more."""
        for number in self._recovery.stuck(self._arena.control, self._control, time.monotonic_ns()):
            end_now(self.workers[number])
        dead = [number for number, worker in enumerate(self.workers) if has_ended(worker)]
        return self._replace(dead) if dead else []

    def _collect_all(self) -> list[Report]:
        reports: list[Report] = []
        while written := self.collect():
            reports += written
        return reports

    def _replace(self, dead: list[int]) -> list[Report]:
        """Workers are gone: start others in their seats, which take over what they held, or give up."""
        reports = self._collect_all()  # what they wrote before they died
        lost: dict[Key, bool] = {}
        for number in dead:
            lost.update(self._sender.lost_with(number))
        # A ticket may have been let go by somebody who lives and has answered it: the answer was written before.
        reports += self._collect_all()
        lost = {key: was_taken for key, was_taken in lost.items() if key in self._outstanding}
        reports += [report for number in dead for report in self._bury(number, lost)]
        if self._alone_now in lost:  # it has its turn again
            del lost[self._alone_now]
            self._alone.appendleft(self._alone_now)
            self._alone_now = _NOBODY
        for number in dead:
            self._recovery.pause()
            self._reports.forget(number)
            self.workers[number] = self._start(number)
            self.restarts += 1
        self._poll = self._make_poll()
        self._send_one_alone()
        self._send_again(lost)
        return reports

    def _bury(self, number: int, lost: dict[Key, bool]) -> list[Report]:
        """Find out what a dead worker was doing, and who is to blame; what can be tried again stays in `lost`."""
        worker, lanes = self.workers[number], self._control.lanes_of(number)
        held = self._held_by(number, [key for key, was_taken in lost.items() if was_taken])
        if not self._recovery.may_replace(exit_code(worker)):
            raise self._obituary(number, worker, [one.ticket for one in held])
        reports, stuck = [], self._recovery.was_stuck(lanes)
        for place in lanes:  # also those whose report came through, and whose mark stayed
            self._arena.control[place] = 0
        for one in held:
            error = self._recovery.verdict(one, len(held) == 1, stuck, exit_code(worker))
            key = one.ticket.order, one.ticket.start
            if error is not None:
                del self._outstanding[key], lost[key]
                reports.append(self._bad_sample(one, number, error, lost))
            elif (len(held) > 1 or self._staff.coroutines) and key != self._alone_now:
                del lost[key]  # who of them it was shows when each is loaded alone
                self._alone.append(key)
        self._recovery.replaced(lanes)
        return reports

    def _send_one_alone(self) -> None:
        """Send the next suspect, one row, once the last was answered: nobody else is at hand in that process then."""
        self._alone = deque(key for key in self._alone if key in self._outstanding)
        if self._alone_now in self._outstanding:
            return
        self._sender.go_on()
        if not self._alone:
            return
        self._alone_now = key = self._alone.popleft()
        given = self._outstanding[key]
        rest = given.ticket
        if rest.ask is Ask.ROWS and rest.stop - rest.start > 1:
            first = replace(rest, stop=rest.start + 1, keys=rest.keys[:1])
            rest = replace(rest, start=rest.start + 1, keys=rest.keys[1:])
            self._outstanding[key] = Given(first, given.worker)
            self._outstanding[rest.order, rest.start] = Given(rest, given.worker)
            self._alone.appendleft((rest.order, rest.start))
        self._sender.send_alone(key, self._again(key), given.worker)

    def _held_by(self, number: int, taken: list[Key]) -> list[Held]:
        """What the lanes of a worker were doing, as far as they noted it."""
        cells = self._arena.control
        if self._staff.coroutines:
            return self._awaited_by(number, taken)
        marks = [(place, (cells[place] - 1, cells[place + FIRST])) for place in self._control.lanes_of(number)]
        # A mark stays when its ticket was answered. Where such a ticket was sent again (a batch with a bad sample), two
        # lanes may show it: the one with a sample at hand holds it.
        holders = {key: place for place, key in sorted(marks, key=lambda mark: cells[mark[0] + ROW] != NO_ROW)}
        return [
            Held(place, self._outstanding[key].ticket, cells[place + ROW], self._outstanding[key].worker)
            for place, key in marks
            if key in taken and holders[key] == place
        ]

    def _awaited_by(self, number: int, taken: list[Key]) -> list[Held]:
        """What a worker was awaiting: the suspect that it was given alone, else anything that was on its way to it."""
        place = self._control.lane_at(number, 0)
        awaited = [self._outstanding[key] for key in taken]
        if taken == [self._alone_now] and awaited[0].ticket.stop - awaited[0].ticket.start == 1:
            return [Held(place, awaited[0].ticket, awaited[0].ticket.start, awaited[0].worker)]
        return [Held(place, given.ticket, NO_ROW, given.worker) for given in awaited]

    def _bad_sample(self, held: Held, number: int, error: RemoteError, lost: dict[Key, bool]) -> Report:
        """A report for the sample that ended its worker; the other rows of its ticket are asked for again."""
        ticket, row = held.ticket, held.row
        payload = FailedRows([(row, error)])
        if ticket.ask is not Ask.ROWS:
            return Report(ticket.order, Answer.FAILED, ticket.start, ticket.stop, number, payload=payload)
        for start, stop in ((ticket.start, row), (row + 1, ticket.stop)):
            if start < stop:
                keys = ticket.keys[start - ticket.start : stop - ticket.start]
                part = replace(ticket, start=start, stop=stop, keys=keys)
                self._outstanding[part.order, part.start] = Given(part, held.worker)
                lost[part.order, part.start] = True
        return Report(ticket.order, Answer.FAILED, row, row + 1, number, payload=payload)

    def _send_again(self, lost: dict[Key, bool]) -> None:
        for key, was_taken in lost.items():
            given = self._outstanding[key]
            record = self._again(key) if was_taken else self._tickets.encode(given.ticket)
            self._sender.submit(key, record, given.worker)
        self.flush()

    def _again(self, key: Key) -> bytes:
        """A ticket that a worker has died on, to be sent once more."""
        given = self._outstanding[key]
        self._outstanding[key] = wary = Given(replace(given.ticket, singly=True), given.worker)
        return self._tickets.encode(wary.ticket)

    def wake(self) -> None:
        self._is_woken = True
        if self._close.alive:
            os.write(self._pipes.report_writer, NO_REPORT)

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
            staff.private,
            staff.coroutines,
            os.getpid(),
            self._states[number],
            watched=staff.options.replaces and not staff.coroutines,
            timed=staff.options.sample_timeout_s is not None,
            max_bytes=staff.options.worker_max_bytes,
            owner_handles_term=self._handles_term,
            epoch=max(1, self._epoch),
        )
        worker = staff.context.Process(target=worker_main, args=(station,), daemon=True)
        worker._name = watchful_name(worker.name, os.getpid())
        start_method = staff.context.get_start_method()
        check_descriptors()
        with interrupts_kept(), born_deaf(start_method):
            _start_with_hint(worker, staff.context)
        watch_end(worker, start_method)
        return worker

    def _hear_from_all(self) -> None:
        """Wait until every worker has run `init_fn`: what that raises belongs to the one who starts them."""
        waiting = set(range(self._staff.processes))
        for number in waiting:
            self.submit(Ticket(-1 - number, Ask.READY, 0, 0, 0, 1, self._epoch), number)
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
        """Whether this answers something that was asked."""
        key = report.order, report.start
        known = self._outstanding.pop(key, None) is not None
        self._sender.answered(key)
        if known and (self._alone or self._sender.is_held_back):
            self._send_one_alone()
        return known

    def _make_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._pipes.report_reader, select.POLLIN)
        for worker in self.workers:
            poll.register(worker.end, select.POLLIN)
        return poll

    def _obituary(self, number: int, worker: Any, held: list[Ticket]) -> WorkerDied:
        stuck, code = self._recovery.was_stuck(self._control.lanes_of(number)), exit_code(worker)
        limit_s = self._staff.options.sample_timeout_s
        end = f"was ended because a sample took more than {limit_s} seconds" if stuck else describe_exit(code)
        text = (
            f"DataLoader worker (pid {worker.pid}) {end}. "
            f"This was worker {number} of {len(self.workers)}, {_describe_held(held)}.\n"
            f" {'' if stuck else ' ' + likely_cause(code)}{self._recovery.advice()}"
        )
        return WorkerDied(text, worker=number, pid=worker.pid, exit_code=code, samples=_keys_of(held))


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
