"""The seats of a crew: a process in each, started, seen to end, and another started in its place."""

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
from stoker.workers.ends import end_now, has_ended, watch_end
from stoker.workers.main import Descriptor, Station, worker_main
from stoker.workers.parcel import Parcel
from stoker.workers.pipes import Pipes, check_descriptors


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

    def fill(self) -> None:
        """Start everybody."""
        for number in range(self.staff.processes):
            self.workers.append(self._start(number))
        if not self.staff.options.replaces:
            self.parcel.close()
        self._poll = self._make_poll()

    def replace(self, number: int) -> None:
        """Start another in the place of one that is gone, with an empty outbox."""
        self._arena.control[self._control.heard_at(number)] = 0
        self.workers[number] = self._start(number)
        self.restarts += 1
        self._poll = self._make_poll()

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
        return [number for number, worker in enumerate(self.workers) if has_ended(worker)]

    def end(self, number: int) -> None:
        """End a worker that does not answer."""
        end_now(self.workers[number])

    def _make_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._pipes.report_reader, select.POLLIN)
        for worker in self.workers:
            poll.register(worker.end, select.POLLIN)
        return poll

    def _start(self, number: int) -> Any:
        """Start the worker in a seat."""
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
