"""The batches ahead: a ring of places that a filler works through in the background.

    consumer                         filler (a thread, or a process of its own)
      ticket for a free slot  ────►    next batch of the source, into the slot
      report, oldest first    ◄────    DONE, END, ERROR
      batch: views of the slot, which is asked for again when the last of them has died

A place in the ring is a ticket whose answer was not handed over yet, at most `ahead` of them. Whoever has nothing
to do is blocked: the filler on its tickets, the consumer on reports and on the filler's death, each in one system call.
Nothing ticks. All methods may be called from any thread; two threads that take get different batches, in turn.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import Any

from stoker.batches import Delivery
from stoker.contracts import Answer, Ask, EpochNote, Filled, Report, Ticket
from stoker.errors import RemoteError, WorkerDied
from stoker.prefetching.crew_of_one import interrupt, interrupted, obituary, start, was_closed
from stoker.prefetching.filling import Mark, SourceJob
from stoker.prefetching.lap import LapState
from stoker.prefetching.options import PrefetchOptions
from stoker.prefetching.stats import PrefetchTally
from stoker.sampling.streams import draw_seed
from stoker.slots import PrivateArena, SlotPool
from stoker.workers.processes import arena_for


class Ring:
    """One filler and the batches it has made ahead, for one pass at a time."""

    def __init__(
        self,
        source: Any,
        options: PrefetchOptions,
        state: LapState | None,
        tally: PrefetchTally,
        ahead: int | None = None,
    ) -> None:
        self._options, self._tally = options, tally
        self._pool = SlotPool(arena_for(processes=1, lanes=1) if options.by == "process" else PrivateArena())
        self._delivery = Delivery(self._pool)
        self._sent: dict[int, int] = {}  # order -> its slot, for tickets of this beginning that are not answered
        self._left: dict[int, int] = {}  # the same for tickets of beginnings before this one
        self._made: deque[tuple[Report, int]] = deque()  # answers (with their slots) to hand over, oldest first
        self._orders = 0
        self._taken = 0  # answers handed over since the beginning
        self._ahead = ahead or options.ahead  # places to ask for; `ahead` once a pass has begun
        self._wanted = options.ahead  # places to keep asked for; fewer while the byte budget is used up
        self._state: LapState | RemoteError | None = state  # of what was handed over last
        self._lap = -1  # the filler's lap that the consumer is in
        self._idle_since_ns = 0
        self._is_waiting = False
        self._is_torn = False  # an interrupt came while an answer was between the pipe, the ring and the consumer
        self.is_fresh = True  # nothing was taken of the lap that the ring begins with
        self.is_over = False  # the pass has ended
        self.is_closed = False
        self.lock = threading.RLock()
        self._owner_pid = os.getpid()
        self._job = SourceJob(source, options, state)
        self._crew = start(self._job, options, self._pool.arena)
        self._close = weakref.finalize(self, self._crew.close)
        crew = self._crew
        self._pool.own_workers = lambda: crew.workers
        self._begin_anew()

    def begin(self) -> None:
        """A pass begins: with what lies ready, if that is the beginning of a lap, else anew."""
        with self.lock:
            waits, self._ahead = self._ahead < self._options.ahead, self._options.ahead
            if self._is_torn or not self.is_fresh:
                self._state = None
                self._begin_anew()
            elif waits:  # only the first batch was asked for so far
                self._wanted = self._ahead
                self._top_up()
            self.is_over = False

    def has_first(self) -> bool:
        """Wait for the first batch, which stays in the ring; what the source raises is raised here as well."""
        with self.lock:
            if self._is_torn:
                self._begin_anew()
            self._is_torn = True
            report, _ = self._await()
            self._is_torn = False
            if report.answer is Answer.ERROR:
                raise report.payload.to_exception()
            return report.answer is Answer.DONE

    def take(self) -> Any:
        """The next batch of the pass; the caller holds the lock."""
        if self._is_torn:
            raise interrupted()
        self._is_torn = True
        begun_ns = time.perf_counter_ns()
        self._collect()
        self._tally.visit(len(self._made))
        self._await()
        self._tally.consumer_wait_ns += time.perf_counter_ns() - begun_ns
        batch, error = self._hand_over(*self._made.popleft())
        self._taken += 1
        self._wanted = min(self._wanted + 1, self._options.ahead)
        if self.is_fresh or not self.is_over:  # else nothing comes until the next beginning
            self._top_up()
        self._is_torn = False
        if error is None:
            return batch
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: the two would keep each other, and the ring, alive

    def state(self) -> LapState:
        """Where the source stood after what was handed over last."""
        with self.lock:
            state = self._state if self._state is not None else self._first_state()
        if isinstance(state, RemoteError):
            raise state.to_exception()
        if state is None:
            raise RuntimeError("the source has failed at its first batch: there is no place to save")
        return state

    def _first_state(self) -> LapState | RemoteError | None:
        """Where the source stood before the first batch, which may have to be waited for."""
        self._is_torn, was_torn = True, self._is_torn
        first, _ = self._await()
        self._is_torn = was_torn
        mark: Mark | None = getattr(first.payload, "state", None)
        return mark.before if mark is not None else None

    @property
    def ready(self) -> int:
        """Batches that could be taken at once."""
        if self.is_closed or os.getpid() != self._owner_pid or not self.lock.acquire(blocking=False):
            return 0
        try:
            self._is_torn, was_torn = True, self._is_torn
            self._collect()
            self._is_torn = was_torn
            return sum(report.answer is Answer.DONE for report, _ in self._made)
        finally:
            self.lock.release()

    @property
    def pid(self) -> int | None:
        """The filler's process, if it has one."""
        return next((worker.pid for worker in self._crew.workers), None)

    @property
    def was_interrupted(self) -> bool:
        """Whether the last `take` did not come through, and what it held may be lost."""
        return self._is_torn and not (self.is_over or self.is_closed)

    def check_owner(self) -> None:
        if os.getpid() != self._owner_pid:
            raise RuntimeError(
                f"this iterator's filler belongs to process {self._owner_pid}, from which this one was forked. Make an "
                "iterator of your own here: iter()."
            )

    def close(self, now: bool = False) -> None:
        """Let the filler go. Batches that were handed over stay valid. `now` does not let it finish a batch."""
        if os.getpid() != self._owner_pid:
            return
        self.is_closed = True
        free = self.lock.acquire(blocking=False)
        if now or not free or self._is_waiting:
            interrupt(self._crew)
        if not free:
            self.lock.acquire()
        try:
            self._made.clear()
            self._close()
            self._job.leave()
            self._pool.arena.close()
        finally:
            self.lock.release()

    def _begin_anew(self) -> None:
        """Leave all that is under way, and ask for the beginning of a lap."""
        self._is_torn = True
        self._left.update(self._sent)
        self._sent.clear()
        while self._made:
            self._pool.give_back(self._made.popleft()[1])
        self._taken, self._wanted, self.is_fresh = 0, self._ahead, True
        self._epoch = self._crew.begin_epoch(EpochNote(self._draw_seed(), self._lap))
        self._top_up()
        self._is_torn = False

    def _draw_seed(self) -> int:
        """What the filler's process seeds its generators with; a thread shares those of the consumer."""
        if self._options.by == "thread":
            return 0
        return draw_seed()

    def _top_up(self) -> None:
        """Ask for as many batches as there are free places."""
        if self.is_closed:
            return
        while len(self._sent) + len(self._made) < self._wanted:
            slot = self._pool.take()
            self._sent[self._orders] = slot
            ticket = Ticket(self._orders, Ask.BATCH, slot, 0, 1, 1, self._epoch, self._taken)
            self._orders += 1
            self._crew.submit(ticket, 0)
        self._crew.flush()

    def _await(self) -> tuple[Report, int]:
        """Block until there is something to hand over: the oldest answer, which stays in the ring."""
        while not self._made:
            if not self._sent:
                self._top_up()
            self._is_waiting = True
            try:
                if self.is_closed:
                    raise was_closed()
                reports = self._wait()
            except Exception as error:
                raise self._obituary(error) from None
            finally:
                self._is_waiting = False
            self._note(reports)
        return self._made[0]

    def _wait(self) -> list[Report]:
        return self._crew.wait(0.0 if self._options.spin else None)

    def _collect(self) -> None:
        """Take in what has been made, without waiting."""
        if not self.is_closed:
            self._note(self._crew.collect())

    def _note(self, reports: list[Report]) -> None:
        for report in reports:
            if self._idle_since_ns:
                self._tally.filler_wait_ns += max(0, report.began_ns - self._idle_since_ns)
            self._idle_since_ns = report.began_ns + report.busy_ns
            self._tally.filler_busy_ns += report.busy_ns
            left = self._left.pop(report.number, None)
            if left is not None:
                self._pool.give_back(left)
            elif report.number in self._sent:
                self._note_answer(report, self._sent.pop(report.number))

    def _note_answer(self, report: Report, slot: int) -> None:
        if report.answer is Answer.CANCELLED:  # the byte budget is used up
            self._pool.give_back(slot)
            self._wanted = max(1, len(self._sent) + len(self._made))
        else:
            self._made.append((report, slot))

    def _hand_over(self, report: Report, slot: int) -> tuple[Any, BaseException | None]:
        """What an answer means to the consumer: a batch, or something to raise."""
        self.is_fresh = False
        if report.answer is Answer.ERROR:
            self.is_over = True
            self._pool.give_back(slot)
            return None, report.payload.to_exception()
        mark: Mark = report.payload.state
        self._state, self._lap = mark.after, mark.lap
        if report.answer is Answer.END:
            self.is_over, self.is_fresh = True, mark.follows
            self._pool.give_back(slot)
            self._tally.passes += 1
            return None, StopIteration()
        self._tally.steps += 1
        self._tally.size_bytes += report.size_bytes
        return self._build(Filled(slot, 1, 0, report.size_bytes, [(0, report.payload)], ()))

    def _build(self, filled: Filled) -> tuple[Any, BaseException | None]:
        try:
            return self._delivery.build(filled), None
        except Exception as error:  # what can be pickled there cannot be unpickled here
            self.is_over = True
            return None, error

    def _obituary(self, error: Exception) -> Exception:
        """What to raise when waiting has failed: the filler is dead, or was closed meanwhile."""
        if self.is_closed:
            return was_closed()
        if not isinstance(error, WorkerDied):
            return error
        self.is_over = True
        self.close()
        return obituary(error, self.pid, self._tally.steps)
