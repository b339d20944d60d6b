"""A pass whose hands change while it goes on: none, or any number of processes with any number of lanes.

    made here, when asked for ──── hire ───► made by a crew ──── resize ───► by a larger or smaller one
             ▲                                    │
             └── when all of its batches are out ─┘ let go

What comes next is drawn from one stream, whoever loads it, and handed over in one order: a change of hands is seen in
nothing but time. The course's steering says when; here it is done, and told when it is done, since what was under way
before says nothing of the new hands.

Processes are started when the loop waits anyway, as far as there is such a moment: a fork stops this thread for some
milliseconds. Without workers there is none, so there it costs the batch that is asked for next.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from stoker.auto.size import Size
from stoker.auto.steering import Steering
from stoker.batches import DROPPED, Delivery, InlineBatches
from stoker.contracts import Answer, Crew, Report
from stoker.options import Workers
from stoker.passes.crewed import CrewedPass
from stoker.passes.here import Here
from stoker.slots import PrivateArena, SlotPool
from stoker.workers import NoCrew, ProcessCrew

_QUICK_S = 0.001  # a batch below this is not timed each time, since looking at the clocks would be felt
_TIMED_EVERY = 8


class AdaptivePass(CrewedPass):
    """Begins with what the loader's steering has found so far, and goes on as it says."""

    _maker: InlineBatches | Delivery  # type: ignore[assignment]
    _crew: Crew

    # A pass begins.

    def _start(self) -> None:
        self._under_way = {}
        self._crew = NoCrew()
        self._close = weakref.finalize(self, self._crew.close)
        self._size = self._steering.size
        self._wanted = self._size  # differs while a change is on its way
        self._window = self._assembly.window_of(self._workers_of(self._size), self._size.ahead)
        self._awaited: set[int] = set()  # workers that were started, and have not been heard of yet
        self._is_letting_go = False
        self._is_quick = False  # batches are made here in no time
        if self._size.processes:
            self._hire()
            self._fill()
        else:
            self._make_here_again()
            self._tell_changed()

    def _restart(self) -> None:
        self._begin_here()
        self._set_window()
        super()._restart()
        if self._steering.size != self._size:  # decided in the last epoch's last moments
            self._change_to(self._steering.size)

    @property
    def _steering(self) -> Steering:
        steering = self._course.steering
        assert steering is not None  # what makes a pass one of these
        return steering

    def _workers_of(self, size: Size) -> Workers:
        return self._assembly.workers.fixed_at(size.processes, size.lanes)

    # Batches are taken.

    def _next(self) -> Any:
        is_over = self._exhausted and not self._sequence
        if self._steering.is_due and not is_over:
            self._steer()
        if self._is_letting_go and not self._sequence:
            self._let_go()
        if self._is_crewed:
            return super()._next()
        while True:
            batch = self._next_here()
            if batch is not DROPPED:
                return batch

    def _next_here(self) -> Any:
        draw = None if self._exhausted else self._draw_here()
        if draw is None:
            self._exhausted = True
            raise StopIteration
        number = self._asked_for - 1
        times = _TIMED_EVERY if self._is_quick else 1
        if number % times:
            self._steering.loaded(len(draw.keys), 0.0)
            return self._make_here(self._here, draw, number)
        began_s, began_processor_s = time.perf_counter(), time.thread_time()
        batch = self._make_here(self._here, draw, number)
        took_s, used_s = time.perf_counter() - began_s, time.thread_time() - began_processor_s
        self._is_quick = took_s < _QUICK_S
        self._steering.loaded(len(draw.keys), times * took_s, times * used_s)
        return batch

    def _hear(self, report: Report) -> None:
        super()._hear(report)
        if report.answer is Answer.DONE:
            self._steering.loaded(report.stop - report.start, report.busy_ns / 1e9)
        if report.worker in self._awaited:  # they are there; an idle one may not be heard of for long
            self._awaited.clear()
            self._tell_changed()

    def _take_reports(self) -> None:
        if self._wanted.processes > self._size.processes:
            self._change(self._resize)  # the loop waits anyway
        super()._take_reports()

    def _fill(self) -> None:
        if self._is_crewed and not self._is_letting_go:
            super()._fill()

    # For the watch.

    def gauges(self) -> dict[str, int]:
        return {**super().gauges(), "lanes": self._size.lanes}

    def facts(self) -> dict[str, Any] | None:
        facts, latest = super().facts(), self._steering.latest
        if facts is None:
            return None
        return {**facts, "workers": self._size.processes, "lanes": self._size.lanes, "auto": latest}

    # Hands change.

    @property
    def _is_crewed(self) -> bool:
        return isinstance(self._crew, ProcessCrew)

    def _steer(self) -> None:
        noted = self._steering.look(self._course.watch.tally.total(), self.pids())
        if noted is not None:
            self._watch.decided(str(noted.size), noted.reason)
            self._change_to(noted.size)

    def _change_to(self, size: Size) -> None:
        self._wanted = size
        if not self._is_crewed:
            self._change(self._hire)
        elif not size.processes:
            self._is_letting_go = True
        elif self._is_letting_go or size.processes <= self._size.processes:
            self._change(self._resize)

    def _change(self, how: Callable[[], None]) -> None:
        """Do it, and ask for as many batches as the new hands can have under way."""
        try:
            how()
        except OSError as error:  # no more processes or descriptors to be had: training goes on with those there are
            self._give_up(error)
        self._fill()

    def _give_up(self, error: OSError) -> None:
        self._wanted = self._size
        if isinstance(self._crew, ProcessCrew):
            self._crew.resize(self._size.processes, self._size.lanes)
        self._steering.refused(self._size, str(error))
        self._tell_changed()

    def _tell_changed(self) -> None:
        self._steering.changed(self._course.watch.tally.total(), self.pids())

    def _hire(self) -> None:
        """Start a crew, with slots that it shares."""
        size, pool = self._wanted, self._assembly.pool()
        try:
            crew = self._assembly.growing_crew(pool.arena, self._base_seed or 0, size)
        except BaseException:
            pool.arena.close()
            raise
        self._use(crew, pool, Delivery(pool))
        self._owner_pid = os.getpid()
        self._epoch = crew.begin_epoch(self._epoch_note)
        self._size = size
        self._awaited = set(range(size.processes))
        self._set_window()

    def _resize(self) -> None:
        """Let another number of processes and lanes be at work."""
        before, crew = self._size, self._crew
        assert isinstance(crew, ProcessCrew)
        crew.resize(self._wanted.processes, self._wanted.lanes)
        self._size, self._is_letting_go = self._wanted, False
        self._awaited = set(range(before.processes, self._size.processes))
        self._set_window()
        if not self._awaited:
            self._tell_changed()

    def _set_window(self) -> None:
        workers = self._workers_of(self._size)
        self._sharing.resize(workers)
        self._window = self._window.resized(self._assembly.window_of(workers, self._size.ahead))

    def _let_go(self) -> None:
        """All that the crew was asked for is handed over: it goes. Its batches stay valid."""
        self._close()
        self._pool.arena.close()
        self._under_way.clear()  # of epochs that were left early: nobody will answer any more
        self._size = self._wanted
        self._is_letting_go = False
        self._make_here_again()
        self._tell_changed()

    def _make_here_again(self) -> None:
        """In memory that is this process's own: a child that is forked may go on with this pass by itself."""
        pool = SlotPool(PrivateArena())
        self._made_here = self._assembly.inline(pool)
        self._use(NoCrew(), pool, self._made_here)
        self._begin_here()

    def _begin_here(self) -> None:
        if not self._is_crewed:
            self._here = Here(self._made_here, self._failures, self._reserves, self._epoch_note)

    def _use(self, crew: Crew, pool: SlotPool, maker: InlineBatches | Delivery) -> None:
        self._close()  # of whoever was there before: nobody, or a crew that has been let go
        self._crew, self._pool, self._maker = crew, pool, maker
        self._restarts = 0  # of this crew, as far as they were counted
        self._close = weakref.finalize(self, crew.close)
        self._pool.own_workers = lambda: crew.workers
