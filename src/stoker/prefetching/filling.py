"""What the filler does: walk the source, lap after lap, and answer each ticket with the next batch.

    ticket ─► next batch of this lap ─► DONE   the batch, in the slot (process) or as it is (thread)
              └─ the lap is over ─────► END    the next ticket begins the next lap, if laps follow by themselves
              └─ the source raised ───► ERROR  the lap is over, and nothing follows until the consumer begins anew
              └─ over the byte budget ► CANCELLED  nothing was done; the consumer asks again when it has taken one

The filler is a crew of one (`stoker.workers`): it blocks on its tickets, and a ticket is a free place in the ring, so a
full ring costs nothing. Tickets carry the number of the consumer's current beginning (`epoch`): one with a new number
starts the source over. Each answer says where the source stood after it, because the consumer's state is that of what
it was handed, not of what lies ahead in the ring.

In a process of its own Python's, NumPy's and torch's generators are seeded anew for each lap, from a draw that the
consumer made at its last beginning: what a lap draws does not depend on how far the filler had run ahead before.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from stoker.batches import Payload
from stoker.batches.packing import pack
from stoker.contracts import Answer, EpochNote, MapSlot, Report, Ticket
from stoker.errors import RemoteError
from stoker.nested import size_of
from stoker.order.mixer import as_word
from stoker.prefetching.lap import THE_END, Lap, LapState
from stoker.prefetching.options import PrefetchOptions
from stoker.prefetching.rebatch import Combined
from stoker.prefetching.source_error import SourceError
from stoker.workers.identity import numpy_seed

_KEPT_ENDS = 64  # a guess: laps that a filler may be ahead of its consumer and still go back to the end of


@dataclass(frozen=True)
class Mark:
    """Where the source stood: after a batch, and before it if it is the first of its lap."""

    lap: int
    after: LapState | RemoteError
    before: LapState | RemoteError | None = None
    follows: bool = False  # at an END: the next lap comes by itself


@dataclass
class SourceJob:
    """Walks one source for one consumer."""

    source: Any  # walkable
    options: PrefetchOptions
    state: LapState | None = None  # where the first lap begins
    _lap: Lap | None = None
    _number: int = -1  # of the lap
    _epoch: int = -1  # the consumer's beginning that is being served
    _note: EpochNote = field(default_factory=EpochNote)
    _laps_since: int = 0  # laps of this beginning
    _parked: bool = False  # nothing more until the consumer begins anew
    _has_given: bool = False
    _answered: int = 0  # tickets of this beginning that were answered with something
    _in_ring: deque[int] = field(default_factory=deque)  # bytes of what was not handed over yet
    _ends: dict[int, LapState | RemoteError] = field(default_factory=dict)  # where laps that are over left the source

    @property
    def dataset(self) -> Any:
        return self.source

    @property
    def same_process(self) -> bool:
        return self.options.by == "thread"

    def open(self, worker: int | None, state: Any) -> None:
        if worker is None:
            return
        # The source may be a loader with workers of its own, which a daemon may not have; the filler still goes with
        # its parent. And to datasets it is no worker, so that they do not take part of the data for the whole.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        from torch.utils.data._utils import worker as torch_worker

        torch_worker._worker_info = None

    def for_lane(self, mark: Callable[[int], None] | None) -> SourceJob:
        return self

    def limit(self, lanes: int) -> None:
        """Nothing is awaited."""

    def begin_epoch(self, note: EpochNote) -> None:
        self._note = note  # looked at when the first ticket of the new beginning comes

    def leave(self) -> None:
        """The filler has ended: let go of the source's iterator, which may have workers."""
        self._lap = None

    async def run_async(self, ticket: Ticket, slot: MapSlot) -> Report:
        return self.run(ticket, slot)

    def run(self, ticket: Ticket, slot: MapSlot) -> Report:
        begun_ns = time.perf_counter_ns()
        try:
            report = self._answer(ticket, slot)
            report.busy_ns = time.perf_counter_ns() - begun_ns
            return report
        except BaseException as error:
            if not self.same_process and not isinstance(error, Exception):
                raise  # a source that says exit ends the filler's process, which the consumer notices
            return self._fail(ticket, error)  # no name for it here: the error's traceback would hold it in a circle

    def _answer(self, ticket: Ticket, slot: MapSlot) -> Report:
        if ticket.epoch != self._epoch:
            self._begin_anew(ticket)
        if self._is_over_budget(ticket.position):
            return _report(ticket, Answer.CANCELLED)
        self._answered += 1
        self._in_ring.append(0)
        if self._parked:
            return _report(ticket, Answer.END)
        before = self._begin_lap() if self._lap is None else None
        assert self._lap is not None  # just begun, if it was not there
        batch = self._lap.next(slot)
        if batch is THE_END:
            return self._end_lap(ticket, before)
        self._has_given = True
        report = self._deliver(ticket, slot, batch, Mark(self._number, self._lap.state(), before))
        self._in_ring[-1] = report.size_bytes
        return report

    def _begin_anew(self, ticket: Ticket) -> None:
        """The consumer begins: leave what is under way, and go back if it never came to the laps that followed."""
        self._epoch, self._parked, self._laps_since, self._answered = ticket.epoch, False, 0, 0
        self._in_ring.clear()
        self._lap = None
        end = self._ends.get(self._note.epoch)
        if self._number > self._note.epoch and isinstance(end, dict):
            self.state, self._number = end, self._note.epoch

    def _begin_lap(self) -> LapState | RemoteError:
        if not self.same_process:
            seed_generators(self._note.seed + self._laps_since)
        self._laps_since += 1
        self._number += 1
        self._lap = Lap(self.source, self.options.batch_size, self.options.drop_last, self.state)
        self.state = None
        return self._lap.state()

    def _end_lap(self, ticket: Ticket, before: Any) -> Report:
        lap, self._lap = self._lap, None
        assert lap is not None
        self._refuse_if_used_up(lap)
        self._ends[self._number] = end = lap.end()
        self._ends.pop(self._number - _KEPT_ENDS, None)
        follows = self.options.across_epochs and lap.given > 0
        self._parked = not follows
        return _report(ticket, Answer.END, payload=Payload(state=Mark(self._number, end, before, follows)))

    def _refuse_if_used_up(self, lap: Lap) -> None:
        if self._has_given and lap.is_used_up:
            raise RuntimeError(
                f"the source of stoker.prefetch is an iterator ({type(self.source).__name__}) and was used up by the "
                "first pass. Give a function that makes a new one for each pass: stoker.prefetch(lambda: …)."
            )

    def _deliver(self, ticket: Ticket, slot: MapSlot, batch: Any, mark: Mark) -> Report:
        if isinstance(batch, Combined):
            packed, size = pack(batch.batch(), slot, batch.memory)
            return _report(ticket, Answer.DONE, size_bytes=size, payload=Payload(packed=packed, state=mark))
        if self.same_process:
            payload = Payload(direct=batch, state=mark)
            return _report(ticket, Answer.DONE, size_bytes=size_of(batch), payload=payload)
        packed, size = pack(batch, slot)
        return _report(ticket, Answer.DONE, size_bytes=size, payload=Payload(packed=packed, state=mark))

    def _fail(self, ticket: Ticket, error: BaseException) -> Report:
        self._lap, self._parked = None, True
        return _report(ticket, Answer.ERROR, payload=SourceError.of(error, self.same_process))

    def _is_over_budget(self, taken: int) -> bool:
        """Whether one more batch like the last would be too much; `taken` were handed over when the ticket was made."""
        while len(self._in_ring) > self._answered - taken:
            self._in_ring.popleft()
        limit = self.options.max_bytes
        return limit is not None and bool(self._in_ring) and sum(self._in_ring) + max(self._in_ring) > limit


def seed_generators(seed: int) -> None:
    """Python's, NumPy's and torch's global generators, from one number."""
    random.seed(seed)
    np.random.seed(numpy_seed(as_word(seed), 0))
    torch.manual_seed(seed & (2**63 - 1))


def _report(ticket: Ticket, answer: Answer, size_bytes: int = 0, payload: Any = None) -> Report:
    return Report(ticket.number, answer, ticket.start, ticket.stop, 0, size_bytes, payload=payload)
