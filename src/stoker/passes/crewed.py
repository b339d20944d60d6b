"""A pass by a crew: tickets go out, reports come in, batches are handed over in order.

    keys ─► a batch in the making (slot, tickets) ─► crew ─► reports ─► complete ─► batch
              ▲                                                           │
              └──────────────── one more for each handed over ───────────┘       at most `window` are under way

A batch that is answered with a misfit, or whose runs disagree about the layout, is asked for again as a whole; after a
few of those, batches are asked for whole from the start. An epoch that is left early leaves batches behind: their
tickets are cancelled, and their slots come back as the answers trickle in.

Everything here happens in the caller's thread, inside `iter()` and `next()`.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from stoker.batches import Delivery
from stoker.contracts import Answer, Ask, Report
from stoker.errors import PassInterrupted, RemoteError, TooManyFailures, WorkerDied, WorkerTimeout
from stoker.passes.assemble import Assembly
from stoker.passes.batch_pass import BatchPass
from stoker.passes.course import Course
from stoker.passes.making import Making, Verdict
from stoker.passes.mending import Mending, Remake
from stoker.passes.rounds import Rounds
from stoker.passes.sharing import Deal, Sharing
from stoker.sampling.streams import Draw

_KEYLESS = Draw(cast(Any, None), 0, 0)
_MISFITS_UNTIL_WHOLE = 3  # a guess: one odd batch is luck, three are a habit of the dataset


class CrewedPass(BatchPass):
    """A pass whose batches are made ahead by threads or processes."""

    def __init__(self, assembly: Assembly, course: Course) -> None:
        self._timeout_s = assembly.setup.timeout or None
        self._made = 0  # batches asked for so far, over all epochs
        super().__init__(assembly, course)

    def close(self) -> None:
        """Let the workers go. Batches that were handed over stay valid."""
        super().close()
        self._sequence.clear()
        self._exhausted = True
        self._close()
        self._pool.arena.close()

    def leave(self) -> None:
        self._is_left = True
        self._crew.wake()

    @property
    def _workers(self) -> Sequence[Any]:
        return self._crew.workers

    # A pass begins, and ends.

    def _start(self) -> None:
        """Start whoever loads, with slots of their own."""
        self._maker: Delivery = Delivery(self._pool)
        self._under_way: dict[int, Making] = {}  # by number
        self._window = self._assembly.window()
        self._crew = self._assembly.crew(self._pool.arena, self._base_seed or 0, self._cursor.place)
        self._restarts = 0  # of this crew, as far as they were counted
        self._close = weakref.finalize(self, self._crew.close)
        crew = self._crew
        self._pool.own_workers = lambda: crew.workers
        self._epoch = self._crew.begin_epoch(self._epoch_note)
        self._fill()

    def _restart(self) -> None:
        is_own = os.getpid() == self._owner_pid
        if self._broken is not None or not self._close.alive or not is_own:  # or after `close`, or in a forked child
            self._pool, self._owner_pid = self._assembly.first_pool(), os.getpid()
            self._start()
            return
        for making in list(self._under_way.values()):
            making.is_ended = True
            if making.is_complete:
                self._drop(making)
        self._epoch = self._crew.begin_epoch(self._epoch_note)
        self._fill()

    def _begin(self) -> None:
        super()._begin()
        self._sequence: deque[int] = deque()  # batches of this epoch that were not handed over yet
        self._exhausted = False
        self._draw_error: Exception | None = None  # why there are no more keys
        self._is_left = False
        self._misfits = 0
        workers, place = self._assembly.workers, self._cursor.place
        self._sharing = Sharing(workers, self._assembly.share)
        self._rounds = Rounds(max(1, workers.processes), self._assembly.in_order, self._assembly.prefetch_factor)
        self._rounds.resume(place.workers)
        self._mending = Mending(self._failures, self._reserves, self._epoch_note, workers.processes > 0)
        self._cursor.keys = self._keys

    def _over(self) -> None:
        if not self._assembly.keeps_workers:
            self.close()

    # Batches are taken.

    def _next(self) -> Any:
        if os.getpid() != self._owner_pid:
            self._may_go_on = True  # in the process that it belongs to
            raise RuntimeError(
                f"this iterator's workers belong to process {self._owner_pid}, from which this one was forked. Make an "
                "iterator of your own here: iter(loader)."
            )
        return self._hand_over(self._await_batch())

    def _await_batch(self) -> Making:
        if self._sequence:
            self._look()
        while True:
            making = self._pop_complete()
            if making is not None:
                return making
            if not self._sequence:
                raise StopIteration if self._draw_error is None else self._draw_error
            self._take_reports()

    def _look(self) -> None:
        """Take in what has been finished since the last batch; if that is everything, there is room to look further."""
        for report in self._crew.collect():
            self._hear(report)
        ready = sum([self._under_way[number].is_complete for number in self._sequence])
        self._watch.ready(ready)
        if ready == len(self._sequence):
            self._window.all_were_ready()

    def _pop_complete(self) -> Making | None:
        """The next batch to hand over, if it is complete; those of workers that have ended are skipped."""
        while self._sequence:
            number = self._sequence[0] if self._assembly.in_order else self._first_complete()
            making = self._under_way[number] if number is not None else None
            if making is None or not making.is_complete:
                return None
            self._sequence.remove(making.number)
            if not making.is_ended:
                return self._under_way.pop(making.number)
            if making.is_empty:
                self._mending.record(making)
            past = self._cursor.handed_over if making.is_empty else self._cursor.passed_over
            self._behind.append(functools.partial(past, making.handed()))
            self._drop(making)
            self._fill()
        return None

    def _first_complete(self) -> int | None:
        return next((number for number in self._sequence if self._under_way[number].is_complete), None)

    def _hand_over(self, making: Making) -> Any:
        self._watch.taken(making.number, making.slot, making.batch, making.rows)
        try:
            self._mending.record(making)
        except TooManyFailures:
            self._pool.give_back(making.slot)
            raise
        self._behind.append(functools.partial(self._cursor.handed_over, making.handed()))
        if making.error is not None:
            self._pool.give_back(making.slot)
            self._fill()
            cause = making.error[1]
            self._may_go_on = True  # as with torch's loader, after a sample's error
            raise cause.to_exception() if isinstance(cause, RemoteError) else cause
        if self._steps is not None:
            self._steps.told(making.batch, making.asked_rows, making.worker, making.gaps)
        try:
            return self._maker.build(making.filled())
        except Exception:  # the user's own class, which could be pickled there and cannot be unpickled here
            self._may_go_on = True
            raise
        finally:
            self._failures.seen += making.asked_rows
            self._window.measured(making.size_bytes)
            self._fill()

    # Reports are taken in.

    def _take_reports(self) -> None:
        try:
            reports = self._crew.wait(self._timeout_s)
        except WorkerDied:
            self._count_restarts()
            self.close()
            raise
        except BaseException:  # a signal handler's
            self._may_go_on, self._crew.is_at_rest = self._crew.is_at_rest, False
            raise
        self._count_restarts()
        if self._is_left:
            raise PassInterrupted("this pass was left while another thread was asking for its next batch")
        if not reports:
            self._may_go_on = True
            raise WorkerTimeout(
                f"DataLoader timed out after {self._timeout_s} seconds: {len(self._sequence)} batches are under way "
                "and none was finished. Raise timeout, or find out what the workers wait for.",
                timeout_s=self._timeout_s,
            )
        for report in reports:
            self._hear(report)

    def _count_restarts(self) -> None:
        restarts = self._crew.restarts
        if restarts != self._restarts:
            self._watch.restarted(restarts - self._restarts)
            self._restarts = restarts

    def _hear(self, report: Report) -> None:
        self._maker.note(report.payload)
        making = self._under_way.get(report.number)
        pid = self._crew.pid_of(report.worker)
        self._watch.heard(report, pid, making.batch if making is not None else None)
        if making is None:
            return
        making.fold(report)
        if report.answer is Answer.DONE:
            self._sharing.learn(report.stop - report.start, report.busy_ns)
        elif report.answer is Answer.END and making.epoch == self._epoch:  # an old epoch's says nothing of this one
            self._rounds.end(report.worker)
        if making.is_complete:
            self._completed(making)

    def _completed(self, making: Making) -> None:
        if making.worker is not None and making.epoch == self._epoch:
            self._rounds.answered(making.worker)
        if making.number not in self._sequence:  # of an epoch that was left early
            self._drop(making)
            return
        verdict = making.verdict
        if verdict is Verdict.ENDED:
            if making.worker is not None and self._assembly.is_iterable:
                self._end_all_of(making.worker)
            self._fill()
        elif verdict is Verdict.FAILED:
            self._mend(making)
        elif verdict is Verdict.MISFIT:
            self._ask_whole(making)

    def _end_all_of(self, worker: int) -> None:
        """Whatever else was asked of a worker whose iterable has ended will be answered with END as well."""
        for number in self._sequence:
            making = self._under_way[number]
            if making.worker == worker and not making.is_complete:
                making.is_ended = True

    def _mend(self, making: Making) -> None:
        remake, rows = self._mending.mend(making)
        if remake is Remake.ROWS:
            making.rows_left = len(rows)
            for row in rows:
                self._submit(self._sharing.deal_row(making, row))
            self._crew.flush()
        elif remake is Remake.BATCH:
            making.begin_again()
            if self._assembly.private:
                making.worker = self._rounds.take_again(making.worker)
            self._send(making)
            self._crew.flush()
        elif remake is Remake.WHOLE:
            self._ask_whole(making)

    def _ask_whole(self, making: Making) -> None:
        self._misfits += 1
        making.begin_whole()
        if self._assembly.private:
            making.worker = self._rounds.take()
        self._send(making)
        self._crew.flush()

    # Batches are asked for.

    def _fill(self) -> None:
        """Ask for batches until `window` are under way."""
        while not self._exhausted and len(self._sequence) < self._window.size:
            if not self._ask_next():
                break
        self._crew.flush()

    def _ask_next(self) -> bool:
        is_whole = not self._assembly.as_rows or self._misfits >= _MISFITS_UNTIL_WHOLE
        if is_whole and self._assembly.private and not self._rounds.can_take():
            self._exhausted = self._assembly.is_iterable and self._assembly.in_order
            return False
        draw = self._draw_or_note()
        if draw is None:
            self._exhausted = True
            return False
        self._begin_making(draw, is_whole)
        return True

    def _begin_making(self, draw: Draw, is_whole: bool) -> None:
        rows = len(draw.keys) if draw.keys is not None else self._assembly.batch_rows
        ask = Ask.BATCH if is_whole or rows == 0 else Ask.ROWS
        worker = self._rounds.take() if ask is Ask.BATCH and self._assembly.private else None
        making = Making(self._made, self._asked_for - 1, self._epoch, self._pool.take(), draw, rows, ask, worker)
        self._made += 1
        self._under_way[making.number] = making
        self._sequence.append(making.number)
        self._send(making)

    def _draw_or_note(self) -> Draw | None:
        """The next draw; an error of the user's sampler is raised when the batches before it were handed over."""
        try:
            if self._keys is not None:
                return self._draw()
            self._asked_for += 1
            return _KEYLESS
        except Exception as error:
            if not self._sequence:
                raise
            self._draw_error = error
            return None

    def _send(self, making: Making) -> None:
        making.rows_left = max(1, making.rows)
        self._submit(self._sharing.deal(making))

    def _submit(self, deal: Deal) -> None:
        for ticket, worker in deal:
            self._crew.submit(ticket, worker)

    def _drop(self, making: Making) -> None:
        self._under_way.pop(making.number, None)
        self._pool.give_back(making.slot)
