"""One pass over a loader: orders go out, reports come in, batches are handed over in order.

    keys ─► order (slot, tickets) ─► crew ─► reports ─► order complete ─► batch
              ▲                                             │
              └──────── one more for each handed over ──────┘         at most `window` orders are under way

An order that is answered with a misfit, or whose runs disagree about the layout, is asked for again as a whole batch;
after a few of those, batches are asked for whole from the start. An epoch that is left early leaves orders behind:
their tickets are cancelled, and their slots come back as the answers trickle in.

Everything here happens inside `next()`, in the caller's thread.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stoker.batches import Delivery, Payload
from stoker.contracts import Answer, Ask, Gap, Order, Report
from stoker.errors import PassInterrupted, RemoteError, TooManyFailures, WorkerDied, WorkerTimeout
from stoker.passes.batch_pass import BatchIterator
from stoker.passes.rounds import Rounds
from stoker.passes.sharing import Sharing
from stoker.sampling.reserves import Starved
from stoker.sampling.streams import Draw, Vacancy

if TYPE_CHECKING:
    from stoker.loader.dataloader import DataLoader

_KEYLESS = Draw(cast(Any, None), 0, 0)
_MISFITS_UNTIL_WHOLE = 3  # a guess: one odd batch is luck, three are a habit of the dataset


class CrewedIterator(BatchIterator):
    """A pass whose batches are made ahead by threads or processes."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._timeout_s = loader.timeout or None
        self._made = 0  # orders so far, over all epochs
        super().__init__(loader)

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

    def _start(self) -> None:
        """Start whoever loads, with slots of their own."""
        self._maker: Delivery = Delivery(self._pool)
        self._orders: dict[int, Order] = {}
        self._window = self._assembly.window()
        self._crew = self._assembly.crew(self._pool.arena, self._base_seed or 0, self._progress.place)
        self._restarts = 0  # of this crew, as far as they were counted
        self._close = weakref.finalize(self, self._crew.close)
        crew = self._crew
        self._pool.own_workers = lambda: crew.workers
        self._epoch = self._crew.begin_epoch(self._epoch_note)
        self._fill()

    def _restart(self) -> None:
        is_own = os.getpid() == self._owner_pid
        if self._broken is not None or not self._close.alive or not is_own:  # or after `close`, or in a forked child
            self._pool, self._owner_pid = self._assembly.pool(), os.getpid()
            self._start()
            return
        for order in list(self._orders.values()):
            order.cancelled = True
            if order.complete:
                self._drop(order)
        self._epoch = self._crew.begin_epoch(self._epoch_note)
        self._fill()

    def _begin(self, loader: DataLoader[Any]) -> None:
        super()._begin(loader)
        self._sequence: deque[int] = deque()  # orders of this epoch that were not handed over yet
        self._exhausted = False
        self._draw_error: Exception | None = None  # why there are no more keys
        self._is_left = False
        self._misfits = 0
        workers = self._assembly.workers
        self._sharing = Sharing(workers, self._assembly.share)
        self._rounds = Rounds(max(1, workers.processes), self._assembly.in_order, self._assembly.prefetch_factor)
        self._rounds.resume(self._progress.place.workers)
        self._progress.keys = self._keys
        self._drawn = self._progress.place.batches  # batches of this epoch that were asked for so far
        self._ahead = set(self._progress.place.ahead)

    def _over(self) -> None:
        if not self._assembly.keeps_workers:
            self.close()

    def _next(self) -> Any:
        if os.getpid() != self._owner_pid:
            self._may_go_on = True  # in the process that it belongs to
            raise RuntimeError(
                f"this iterator's workers belong to process {self._owner_pid}, from which this one was forked. Make an "
                "iterator of your own here: iter(loader)."
            )
        return self._hand_over(self._await_order())

    def _await_order(self) -> Order:
        if self._sequence:
            self._look()
        while True:
            order = self._pop_complete()
            if order is not None:
                return order
            if not self._sequence:
                raise StopIteration if self._draw_error is None else self._draw_error
            self._take_reports()

    def _look(self) -> None:
        """Take in what has been finished since the last batch; if that is everything, there is room to look further."""
        for report in self._crew.collect():
            self._note(report)
        self._count.ready = sum([self._orders[number].complete for number in self._sequence])
        if self._trace is not None:
            self._trace.ready(self._count.asked_ns, self._count.ready)
        if self._count.ready == len(self._sequence):
            self._window.all_were_ready()

    def _pop_complete(self) -> Order | None:
        """The next order to hand over, if it is complete; orders of workers that have ended are skipped."""
        while self._sequence:
            number = self._sequence[0] if self._assembly.in_order else self._first_complete()
            order = self._orders[number] if number is not None else None
            if order is None or not order.complete:
                return None
            self._sequence.remove(order.number)
            if not order.cancelled:
                return self._orders.pop(order.number)
            if order.empty:
                self._record(order)
            past = self._progress.handed_over if order.empty else self._progress.passed_over
            self._behind.append(functools.partial(past, order))
            self._drop(order)
            self._fill()
        return None

    def _first_complete(self) -> int | None:
        return next((number for number in self._sequence if self._orders[number].complete), None)

    def _take_reports(self) -> None:
        try:
            reports = self._crew.wait(self._timeout_s)
        except WorkerDied:
            self._note_restarts()
            self.close()
            raise
        except BaseException:  # a signal handler's
            self._may_go_on, self._crew.is_at_rest = self._crew.is_at_rest, False
            raise
        self._note_restarts()
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
            self._note(report)

    def _note_restarts(self) -> None:
        restarts = self._crew.restarts
        if restarts != self._restarts:
            self._count.restarts += restarts - self._restarts
            if self._trace is not None:
                self._trace.restarted(self._clock(), restarts - self._restarts)
            self._restarts = restarts

    def _note(self, report: Report) -> None:
        self._count.heard(report)
        self._maker.note(report.payload)
        order = self._orders.get(report.order)
        if self._trace is not None:
            pid = self._workers[report.worker].pid if self._workers else None
            self._trace.load(report, pid, order.batch if order is not None else None)
        if order is None:
            return
        order.rows_left -= report.stop - report.start if order.ask is Ask.ROWS else order.rows_left
        if report.answer is Answer.DONE:
            self._note_done(order, report)
        elif report.answer is Answer.FAILED:
            order.failed += [(row, report.worker, error) for row, error in report.payload.failed]
        elif report.answer is Answer.ERROR:
            if order.error is None or report.start < order.error[0]:
                order.error = (report.start, report.payload)
        elif report.answer is Answer.END:
            if order.epoch == self._epoch:  # an old epoch's end says nothing of this one
                self._rounds.end(report.worker)
            order.cancelled = True
            order.worker_state = report.payload.state
        order.misfit |= report.answer is Answer.MISFIT
        order.cancelled |= report.answer is Answer.CANCELLED
        if order.complete:
            self._completed(order)

    def _note_done(self, order: Order, report: Report) -> None:
        payload = report.payload
        if isinstance(payload, Payload) and payload.failed is not None:
            order.failed += [(row, report.worker, error) for row, error in payload.failed]
        if report.layout or not (isinstance(payload, Payload) and payload.failed):
            order.misfit |= order.layout not in (0, report.layout)
            order.layout = report.layout
        order.size_bytes = max(order.size_bytes, report.size_bytes)
        if order.ask is Ask.BATCH:  # an iterable's last batch is short; __getitems__ may give more or fewer
            order.rows = report.stop
        if payload is not None:
            parts = payload.parts if isinstance(payload, Payload) else None
            order.payloads += [(report.start, payload)] if parts is None else [part for part in parts if part[1]]
            if isinstance(payload, Payload) and payload.state is not None:
                order.worker_state = payload.state
        self._sharing.learn(report.stop - report.start, report.busy_ns)

    def _completed(self, order: Order) -> None:
        if order.worker is not None and order.epoch == self._epoch:
            self._rounds.answered(order.worker)
        if order.number not in self._sequence:  # of an epoch that was left early
            self._drop(order)
        elif order.cancelled:
            if order.worker is not None and self._assembly.is_iterable:
                self._cancel_orders_of(order.worker)
            self._fill()
        elif order.failed and order.error is None:
            self._mend(order)
        elif order.misfit and order.error is None and order.ask is Ask.ROWS:
            self._ask_whole(order)

    def _mend(self, order: Order) -> None:
        """Samples of a batch could not be loaded: do what the policy says."""
        failed, order.failed = sorted(order.failed, key=lambda entry: entry[0]), []
        action = self._failures.policy.action
        order.recorded += [
            (_key(order, row), self._position(order, row), worker if self._workers else None, error)
            for row, worker, error in failed
        ]
        if action == "raise":
            order.error = (failed[0][0], failed[0][2])
        else:
            self._go_on_without(order, [row for row, _, _ in failed])

    def _go_on_without(self, order: Order, rows: list[int]) -> None:
        """Ask for other samples in the place of these rows, and leave out those that have none."""
        try:
            filled = self._refill(order, rows)
        except Starved as why:
            order.error = (rows[0], why)
            return
        order.empty = len(_gaps(order)) == len(order.keys)
        order.cancelled |= order.empty
        if order.empty:
            return
        if order.ask is Ask.ROWS:
            order.dropped = set(_gaps(order))  # the others are in the slot
            if filled:
                self._send_rows(order, filled)
            elif order.misfit:
                self._ask_whole(order)
        elif filled or not order.payloads:  # the worker could not make the batch with them
            self._send_again(order)

    def _refill(self, order: Order, rows: list[int]) -> list[int]:
        """Put other keys in the place of these rows', or gaps; gives the rows that have a key again."""
        # Python's own numbers, as a dataset gets them from torch.
        order.keys, filled = order.keys.tolist() if isinstance(order.keys, np.ndarray) else list(order.keys), []
        for row in rows:
            attempt = order.attempts[row] = order.attempts.get(row, 0) + 1
            vacancy = Vacancy(self._position(order, row), order.asked, row)
            key = self._reserves.fill(vacancy, attempt, len(_gaps(order)))
            order.keys[row] = Gap.GAP if key is None else key
            if key is not None:
                filled.append(row)
        return filled

    def _send_rows(self, order: Order, rows: list[int]) -> None:
        order.rows_left = len(rows)
        for row in rows:
            for ticket, worker in self._sharing.deal_row(order, self._epoch, row):
                self._crew.submit(ticket, worker)
        self._crew.flush()

    def _position(self, order: Order, row: int) -> int:
        return self._epoch_note.position(order.position + row)

    def _send_again(self, order: Order) -> None:
        order.rows = len(order.keys)  # it may have come back shorter
        order.layout, order.size_bytes, order.misfit = 0, 0, False
        order.payloads.clear()
        if order.ask is Ask.BATCH and self._assembly.private:
            order.worker = self._rounds.take_again(order.worker)
        self._send(order)
        self._crew.flush()

    def _cancel_orders_of(self, worker: int) -> None:
        """Whatever else was asked of a worker whose iterable has ended will be answered with END as well."""
        for number in self._sequence:
            order = self._orders[number]
            if order.worker == worker and not order.complete:
                order.cancelled = True

    def _ask_whole(self, order: Order) -> None:
        self._misfits += 1
        order.ask, order.misfit, order.layout = Ask.BATCH, False, 0
        order.dropped = set()  # who makes the whole batch leaves them out
        order.payloads.clear()
        if self._assembly.private:
            order.worker = self._rounds.take()
        self._send(order)

    def _record(self, order: Order) -> None:
        """Failures count when it is their batch's turn: in order, and only those that the training loop came to."""
        for key, position, worker, error in sorted(order.recorded, key=lambda entry: entry[1]):
            self._failures.record(key, self._epoch_note.epoch, position, error, worker)

    def _hand_over(self, order: Order) -> Any:
        if self._trace is not None:
            self._trace.taken(order, self._clock())
        try:
            self._record(order)
            if order.error is not None and isinstance(order.error[1], Starved):
                raise self._failures.starved(order.error[1])
        except TooManyFailures:
            self._pool.give_back(order.slot)
            raise
        self._behind.append(functools.partial(self._progress.handed_over, order))
        if order.error is not None:
            self._pool.give_back(order.slot)
            self._fill()
            cause = order.error[1]
            self._may_go_on = True  # as with torch's loader, after a sample's error
            raise cause.to_exception() if isinstance(cause, RemoteError) else cause
        if self._steps is not None:
            self._steps.told(order.batch, _asked_rows(order), order.worker, _gaps(order))
        try:
            batch = self._maker.build(order)
        except Exception:  # the user's own class, which could be pickled there and cannot be unpickled here
            self._may_go_on = True
            raise
        finally:
            self._failures.seen += _asked_rows(order)
            self._window.measured(order.size_bytes)
            self._fill()
        return batch

    def _fill(self) -> None:
        """Ask for batches until `window` are under way."""
        while not self._exhausted and len(self._sequence) < self._window.size:
            if not self._order_next():
                break
        self._crew.flush()

    def _order_next(self) -> bool:
        whole = not self._assembly.as_rows or self._misfits >= _MISFITS_UNTIL_WHOLE
        if whole and self._assembly.private and not self._rounds.can_take():
            self._exhausted = self._assembly.is_iterable and self._assembly.in_order
            return False
        try:
            draw = self._draw()
        except Exception as error:  # of the user's sampler: raised when the batches before it were handed over
            if not self._sequence:
                raise
            self._draw_error, draw = error, None
        if draw is None:
            self._exhausted = True
            return False
        rows = len(draw.keys) if draw.keys is not None else self._assembly.batch_rows
        ask = Ask.BATCH if whole or rows == 0 else Ask.ROWS
        worker = self._rounds.take() if ask is Ask.BATCH and self._assembly.private else None
        order = Order(self._made, self._pool.take(), rows, draw.keys, ask, worker, draw.position)
        order.asked = draw.keys
        order.epoch, order.batch, order.end, order.sampler_state = self._epoch, self._drawn - 1, draw.end, draw.state
        self._made += 1
        self._orders[order.number] = order
        self._sequence.append(order.number)
        self._send(order)
        return True

    def _draw(self) -> Draw | None:
        """The keys of the next batch that was not handed over before; iterable datasets have none."""
        while True:
            self._drawn += 1
            if self._keys is None:
                return _KEYLESS
            draw = next(self._keys, None)
            if draw is None or self._drawn - 1 not in self._ahead:
                return draw
            self._progress.handed_over_before(self._drawn - 1, draw.end, draw.state)

    def _send(self, order: Order) -> None:
        order.rows_left = max(1, order.rows)
        for ticket, worker in self._sharing.deal(order, self._epoch):
            self._crew.submit(ticket, worker)

    def _drop(self, order: Order) -> None:
        self._orders.pop(order.number, None)
        self._pool.give_back(order.slot)


def _gaps(order: Order) -> list[int]:
    """The rows that are left out."""
    return [row for row, key in enumerate(order.keys) if key is Gap.GAP] if order.attempts else []


def _asked_rows(order: Order) -> int:
    return order.rows if order.asked is None else len(order.asked)


def _key(order: Order, row: int) -> Any:
    key = None if order.keys is None else order.keys[row]
    return key.item() if isinstance(key, np.generic) else key
