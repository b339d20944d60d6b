"""What a worker process does, from its first line to its last.

    started ─► who am I (seeds, worker info) ─► worker_init_fn ─► tickets … ─► end of the ticket pipe ─► gone

It ends when the ticket pipe ends, when nobody reads its reports any more, or within moments of the training process's
death, in whatever way that dies: a thread blocks on the parent's process descriptor, which costs nothing while it
waits, and leaves when it wakes. Ctrl-C reaches all processes of a terminal, and SIGTERM all of a job that is preempted:
workers ignore the one, and the other if the training process has a handler for it, because that decides.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import mmap
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import active_children, parent_process, reduction
from multiprocessing.connection import wait as wait_for_any
from typing import Any

from stoker.contracts import NO_ROW, Answer, EpochNote, Job, Report, Ticket, WorkerSeat
from stoker.errors import RemoteError
from stoker.interrupts import deafness_over
from stoker.slots import Arena
from stoker.workers.board import Claims
from stoker.workers.control import EPOCH, FIRST, NUMBER, ROW, SINCE, Control, read_note
from stoker.workers.deaths import NOT_WANTED, TOO_LARGE
from stoker.workers.identity import Identity
from stoker.workers.lanes import Desk, serve, serve_async, serve_in_thread, slots_of
from stoker.workers.parcel import Parcel
from stoker.workers.tickets import PrivateTaker, Taker
from stoker.workers.wire import ReportWriter, TicketCode


class Descriptor:
    """A file descriptor that travels to a worker, by any start method."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (reduction.DupFd(self.fd),)


def _receive(handle: Any) -> Descriptor:
    return Descriptor(handle.detach())


@dataclass
class Station:
    """All that a worker process is given."""

    arena: Arena
    seat: WorkerSeat
    tickets: Descriptor
    reports: Descriptor
    parcel: Parcel
    init_fn: Callable[[int], Any] | None
    private: bool  # the ticket pipe is this worker's own; else it carries permits to look at the board
    coroutines: bool
    owner_pid: int
    state: Any = None  # where this worker's dataset stood, in a run that is resumed
    watched: bool = False  # note each sample that is begun, where the training process can see it
    timed: bool = False  # and when
    max_bytes: int | None = None
    owner_handles_term: bool = False
    epoch: int = 1  # the one that the state is a place in


def worker_main(station: Station) -> None:
    """The target of a worker process."""
    gc.freeze()  # what was inherited by fork stays shared: the collector would write into every object's header
    deafness_over()
    if station.owner_handles_term:
        signal.signal(signal.SIGTERM, _leave_it_to_the_owner)
    threading.Thread(target=_leave_with, args=(station.owner_pid,), name="stoker-watch", daemon=True).start()
    Identity(station.seat, station.parcel.content.dataset).assume()
    job = _open_job(station)
    seat = Seat(station, job)
    if station.coroutines:
        desk = seat.desk()
        asyncio.run(serve_async(job, desk, station.seat.lanes, _async_take(station, desk)))
    else:
        seat.serve()


def _leave_it_to_the_owner(number: int, frame: Any) -> None:
    """Not SIG_IGN, which programs that a dataset starts would inherit."""


def _open_job(station: Station) -> Job:
    job: Job = station.parcel.content
    try:
        if station.init_fn is not None:
            station.init_fn(station.seat.id)
        job.open(station.seat.id, station.state)
        _check_size(station.max_bytes)
    except Exception as error:
        return FailedJob(RemoteError.capture(error, f"in DataLoader worker process {station.seat.id}"))
    return job


@dataclass
class FailedJob:
    """Stands in for a job whose worker could not be set up: answers everything with that error."""

    error: RemoteError

    @property
    def dataset(self) -> Any:
        return None

    def open(self, worker: int | None, state: Any) -> None:
        """Nothing to open."""

    def for_lane(self, mark: Callable[[int], None] | None) -> FailedJob:
        return self

    def limit(self, lanes: int) -> None:
        """Nothing is awaited."""

    def begin_epoch(self, note: EpochNote) -> None:
        """The error stays."""

    def run(self, ticket: Ticket, slot: Any) -> Report:
        return Report(ticket.number, Answer.ERROR, ticket.start, ticket.stop, 0, payload=self.error)

    async def run_async(self, ticket: Ticket, slot: Any) -> Report:
        return self.run(ticket, slot)


class Seat:
    """A worker's place at work: where its lanes take tickets, begin epochs and send reports.

    How many lanes are at work is looked up whenever one of them takes a ticket: it starts those that are missing, and
    ends itself if it is one too many. A worker that is asked to leave does so when no lane has a ticket any more.
    """

    def __init__(self, station: Station, job: Job) -> None:
        control = Control(station.seat.count, station.seat.lanes)
        self._station, self._job, self._cells = station, job, station.arena.control
        self._code = TicketCode(station.arena)
        self._answers = ReportWriter(station.arena, control, station.seat.id)
        self._tickets = _taker(station, control)
        self._lanes = control.lanes_of(station.seat.id)
        self._wanted_at = control.wanted_at(station.seat.id)
        self._threads: dict[int, threading.Thread] = {}  # of lanes beyond the first
        self._hiring = threading.Lock()
        self._epoch = 0  # the one that the job has begun
        self._beginning = threading.Lock()
        self._leaving_as: int | None = None  # its exit code, once it is to go: as soon as no lane is at work

    def desk(self) -> Desk:
        return Desk(
            self._take, self._send, slots_of(self._station.arena), self._is_cancelled, _end_process, self._marker
        )

    def serve(self) -> None:
        """Work with as many lanes as are wanted, the first of them in this thread, until there are no more tickets."""
        serve(self._job, self.desk())
        for thread in list(self._threads.values()):
            thread.join()

    def _take(self, lane: int) -> Ticket | None:
        while True:
            if not self._is_staying(lane):
                return None
            taken = self._tickets.take()
            if taken is None:
                return None
            if not taken[1]:
                continue
            ticket = self._code.decode(taken[1])
            ticket.claim = taken[0]
            if not self._station.coroutines:  # those hold many tickets at a time
                _mark(self._cells, self._lanes[lane], ticket)
            try:
                self._code.load_keys(ticket)
            except Exception as error:  # the user's own keys, which cannot be unpickled here
                ticket.keys = None
                self._send(lane, ticket, _failure(self._station, ticket, error))
                continue
            self._begin_epoch_of(ticket)
            return ticket

    def _is_staying(self, lane: int) -> bool:
        """Whether this lane is still wanted; if more are, they are started. Does not return if the worker is to go."""
        wanted = self._cells[self._wanted_at]
        if not wanted:
            self._leaving_as = self._leaving_as or NOT_WANTED
            self._leave_if_idle()
        if self._leaving_as is not None:
            threading.Event().wait()  # for ever: the last lane that is at work ends the process
        if wanted > 1 + len(self._threads) and not self._station.coroutines:
            self._hire(wanted)
        if lane < wanted:
            return True
        with self._hiring:
            self._threads.pop(lane, None)
        return False

    def _hire(self, wanted: int) -> None:
        name = f"worker-{self._station.seat.id}"
        with self._hiring:
            for lane in range(1, wanted):
                if lane not in self._threads:
                    self._threads[lane] = serve_in_thread(self._job, self.desk(), lane, name)

    def _begin_epoch_of(self, ticket: Ticket) -> None:
        with self._beginning:  # no lane loads for an epoch whose note has not been read
            if ticket.epoch != self._epoch and ticket.epoch == self._cells[EPOCH]:
                note = read_note(self._cells)
                if self._epoch == 0 and ticket.epoch != self._station.epoch:
                    self._job.begin_epoch(note)  # the epoch of the state was left before this worker had begun it
                self._job.begin_epoch(note)
                self._epoch = ticket.epoch

    def _send(self, lane: int, ticket: Ticket, report: Report) -> None:
        try:
            record = self._answers.encode(report)
        except Exception as error:  # what the user's code made cannot be pickled, or is too large
            record = self._answers.encode(_failure(self._station, ticket, error))
        try:
            os.write(self._station.reports.fd, record)
        except BrokenPipeError:
            _leave(0)  # nobody listens any more: the loader was closed
        self._cells[self._lanes[lane]] = 0
        self._tickets.release(ticket.claim)
        most = self._station.max_bytes
        if most is not None and _private_bytes() > most:
            self._leaving_as = TOO_LARGE
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._leaving_as is not None and not any(self._cells[place] for place in self._lanes):
            _leave(self._leaving_as)

    def _marker(self, lane: int) -> Callable[[int], None] | None:
        return _marker(self._cells, self._lanes[lane], self._station.timed) if self._station.watched else None

    def _is_cancelled(self, ticket: Ticket) -> bool:
        return bool(ticket.epoch != self._cells[EPOCH])


def _taker(station: Station, control: Control) -> Taker:
    if station.private:
        return PrivateTaker(station.tickets.fd)
    return Claims(station.arena, control, station.tickets.fd)


def _failure(station: Station, ticket: Ticket, error: Exception) -> Report:
    remote = RemoteError.capture(error, f"in DataLoader worker process {station.seat.id}")
    return Report(ticket.number, Answer.ERROR, ticket.start, ticket.stop, station.seat.id, payload=remote)


def _end_process(error: BaseException) -> None:
    code = error.code if isinstance(error, SystemExit) else 1
    _leave(code if isinstance(code, int) else 1)


def _leave(code: int) -> None:
    """End this process at once, and the children that the user's code has, or a loader inside a filler."""
    for child in active_children():
        child.kill()
    os._exit(code)


def _mark(control: Any, place: int, ticket: Ticket) -> None:
    control[place + ROW], control[place + SINCE] = NO_ROW, 0
    control[place + FIRST], control[place + NUMBER] = ticket.start, ticket.number + 1


def _marker(control: Any, place: int, timed: bool) -> Callable[[int], None]:
    if not timed:  # one store with no Python around it, because this happens for every sample
        return functools.partial(control.__setitem__, place + ROW)

    def mark(row: int) -> None:
        control[place + ROW] = NO_ROW
        control[place + SINCE] = time.monotonic_ns()  # one clock for all processes of a machine
        control[place + ROW] = row

    return mark


def _check_size(max_bytes: int | None) -> None:
    """A worker that is too large before its first sample would be replaced after every one."""
    if max_bytes is not None and (held := _private_bytes()) > max_bytes:
        raise ValueError(
            f"worker_max_bytes is {max_bytes:,}, but a worker that has only just started holds {held:,} bytes (the "
            f"dataset, and what Python and its modules take). Give at least {2 * held:,}."
        )


def _private_bytes() -> int:
    """Memory that only this process holds: slots that it has written to are everybody's."""
    with open("/proc/self/statm", "rb") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * mmap.PAGESIZE


def _async_take(station: Station, desk: Desk) -> Callable[[], Any]:
    fd = station.tickets.fd

    os.set_blocking(fd, False)

    async def take() -> Ticket | None:
        while True:
            try:
                return desk.take(0)
            except BlockingIOError:
                await _readable(fd)

    return take


async def _readable(fd: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


def _leave_with(owner_pid: int) -> None:
    """Block until the training process is gone, then leave at once."""
    try:
        if hasattr(os, "pidfd_open"):
            watch = select.poll()
            watch.register(os.pidfd_open(owner_pid), select.POLLIN)
            watch.poll()
        else:
            parent = parent_process()
            wait_for_any([parent.sentinel] if parent is not None else [])
    except ProcessLookupError:
        pass  # it is gone already
    _leave(1)
