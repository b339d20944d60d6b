"""The seats of a crew: a process in each, started, seen to end, and another started in its place.

How many seats are taken may change while the crew works: the first so many are, and whoever sits beyond them is asked
to leave when its tickets are done. Whether a seat is to be taken is written in the control room, by nobody but this.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.contracts import Job, WorkerSeat
from stoker.interrupts import born_deaf, interrupts_kept
from stoker.options import Workers
from stoker.slots import Arena
from stoker.workers.birth import watchful_name
from stoker.workers.control import EPOCH, Control
from stoker.workers.deaths import NOT_WANTED
from stoker.workers.ends import end_now, exit_code, has_ended, watch_end
from stoker.workers.main import Descriptor, Station, worker_main
from stoker.workers.parcel import Parcel
from stoker.workers.pipes import Pipes, check_descriptors


@dataclass(frozen=True)
class Staff:
    """How many processes there may be, and what they are given."""

    processes: int
    lanes: int  # of each, at most
    context: Any  # a multiprocessing context
    base_seed: int
    init_fn: Callable[[int], Any] | None = None
    private: bool = True  # tickets are for a certain worker; False: for whoever is free
    coroutines: bool = False
    states: Sequence[Any] = ()  # each worker's place, in a run that is resumed
    options: Workers = field(default_factory=Workers)
    size: tuple[int, int] | None = None  # processes and lanes to begin with, where their number may change


class Seats:
    """Who sits where."""

    def __init__(self, job: Job, arena: Arena, control: Control, pipes: Pipes, staff: Staff) -> None:
        self.staff = staff
        self.parcel = Parcel(job)
        self.workers: list[Any] = []
        self.restarts = 0  # workers that were started in the place of others
        self.handles_term = callable(signal.getsignal(signal.SIGTERM))
        self._arena, self._control, self._pipes = arena, control, pipes
        self._states: list[Any] = list(staff.states) or [None] * staff.processes
        self._leaving: set[int] = set()  # seats whose worker was asked to leave, gone or not
        self._empty: set[int] = set()  # those of them whose worker is gone

    def fill(self) -> None:
        """Start whoever is there from the beginning."""
        self.resize(*(self.staff.size or (self.staff.processes, self.staff.lanes)))
        if not self.staff.options.replaces and self.staff.size is None:
            self.parcel.close()

    def resize(self, processes: int, lanes: int) -> int:
        """Let so many be at work from now on, with so many lanes each; says how many lanes are too many now."""
        cells, too_many = self._arena.control, 0
        for number in range(self.staff.processes):
            place, wanted = self._control.wanted_at(number), lanes if number < processes else 0
            too_many += max(0, cells[place] - wanted)
            if cells[place] and not wanted:
                self._leaving.add(number)
            cells[place] = wanted
        for number in range(processes):
            if number == len(self.workers):
                self.workers.append(self._start(number))
            elif number in self._empty:
                self._take(number)
        self._poll = self._make_poll()
        return too_many

    def refill(self, number: int) -> None:
        """Start another in the place of one that is gone, if somebody is wanted there."""
        if self._is_wanted(number):
            self.restarts += not self.has_left(number)
            self._take(number)
        else:
            self._empty.add(number)
        self._poll = self._make_poll()

    def has_left(self, number: int) -> bool:
        """Whether the worker that was there has left because it was asked to."""
        return number in self._leaving and exit_code(self.workers[number]) == NOT_WANTED

    @property
    def seated(self) -> list[Any]:
        """The workers that are there."""
        return [worker for number, worker in enumerate(self.workers) if number not in self._empty]

    def _is_wanted(self, number: int) -> bool:
        return bool(self._arena.control[self._control.wanted_at(number)])

    def _take(self, number: int) -> None:
        """Let a new worker take a seat that another has left."""
        self.workers[number] = self._start(number)
        self._empty.discard(number)
        self._leaving.discard(number)

    def note_place(self, number: int, state: Any) -> None:
        """Where a worker's dataset stands: whoever replaces it goes on from there."""
        self._states[number] = state

    def forget_places(self) -> None:
        """Whoever is replaced from now on begins the new epoch, not the end of the old one."""
        self._states = [None] * self.staff.processes

    def wait(self, patience_ms: float | None) -> bool:
        """Block until there is a report or a death; False when the time is up."""
        return bool(self._poll.poll(patience_ms))

    def ended(self) -> list[int]:
        return [number for number, worker in enumerate(self.workers) if number not in self._empty and has_ended(worker)]

    def end(self, number: int) -> None:
        """End a worker that does not answer."""
        end_now(self.workers[number])

    def _make_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._pipes.report_reader, select.POLLIN)
        for worker in self.seated:
            poll.register(worker.end, select.POLLIN)
        return poll

    def _start(self, number: int) -> Any:
        """Start the worker in a seat, with an empty outbox, and no marks of whoever sat there before."""
        for place in (self._control.heard_at(number), *self._control.lanes_of(number)):
            self._arena.control[place] = 0
        context = self.staff.context
        worker = context.Process(target=worker_main, args=(self._station(number),), daemon=True)
        worker._name = watchful_name(worker.name, os.getpid())
        start_method = context.get_start_method()
        check_descriptors()
        with interrupts_kept(), born_deaf(start_method):
            _start_with_hint(worker, start_method)
        watch_end(worker, start_method)
        return worker

    def _station(self, number: int) -> Station:
        staff, options = self.staff, self.staff.options
        return Station(
            self._arena,
            WorkerSeat(number, staff.processes, staff.base_seed, staff.lanes),
            Descriptor(self._pipes.ticket_readers[number if staff.private else 0]),
            Descriptor(self._pipes.report_writer),
            self.parcel,
            staff.init_fn,
            staff.private,
            staff.coroutines,
            os.getpid(),
            self._states[number],
            watched=options.replaces and not staff.coroutines,
            timed=options.sample_timeout_s is not None,
            max_bytes=options.worker_max_bytes,
            owner_handles_term=self.handles_term,
            epoch=max(1, int(self._arena.control[EPOCH])),
        )


def _start_with_hint(worker: Any, start_method: str) -> None:
    """Start a process; an error of pickling keeps its type and says what to do about it."""
    try:
        worker.start()
    except Exception as error:
        if start_method != "fork" and hasattr(error, "add_note"):
            error.add_note(
                "The dataset, collate_fn and worker_init_fn are pickled to reach a worker that is not forked. Define "
                "them at the top level of a module (no lambdas, no local classes, no open files), or use "
                'multiprocessing_context="fork", or threads: workers=stoker.Workers(processes=0, threads=4).'
            )
        raise
