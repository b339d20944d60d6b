"""The job of a map-style dataset: turns a ticket into rows of a slot, or into a whole collated batch.

    ROWS    fetch the samples of the run ─► write them as rows ─► report the layout's fingerprint
                                             └─ misfit: report it; the loader asks for the whole batch
    BATCH   fetch all samples ─► rows if they fit, else collate_fn ─► pickle 5, buffers in the slot

The first time a job uses a layout it announces it, as the payload's first half, so that the training process can read
what lies in the slot. User errors never leave `run`: they become reports, because a ticket has to be
answered whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stoker.batches.careful import Careful
from stoker.batches.collate import avoid_shared_memory, collate_plainly
from stoker.batches.layout import Layout, Misfit
from stoker.batches.own_state import Untold, has_state, restore, sealed_state_of, state_of, usable
from stoker.batches.packing import Packed, pack
from stoker.batches.row_writer import RowWriter, Written
from stoker.contracts import (
    CURRENT_RUN,
    Answer,
    Ask,
    EpochNote,
    Failed,
    Fetch,
    Gap,
    MapSlot,
    Randomness,
    Report,
    SampleRun,
    Ticket,
    during,
)
from stoker.errors import RemoteError
from stoker.options import OnError


@dataclass(frozen=True)
class Payload:
    """What a report carries beside the slot: a layout not announced before, loose columns, a packed batch."""

    layout: Layout | None = None
    loose: list[Any] | None = None
    packed: Packed | None = None
    direct: Any = None  # in the training process: the batch itself, nothing packed
    state: Any = None  # what a dataset with a state of its own says of its place
    failed: list[tuple[int, Any]] | None = None  # (row, RemoteError) of samples that could not be loaded
    parts: list[tuple[int, Any]] | None = None  # (row, payload) of the others, where some failed


@dataclass
class EpochBox:
    """Holds the current epoch's note; all lanes of a process look into the same box."""

    note: EpochNote = field(default_factory=EpochNote)
    permits: asyncio.Semaphore | None = None  # samples that may be awaited at the same time


@dataclass
class Style:
    """How samples become batches."""

    collate: Callable[[Any], Any] | None  # None: torch's default, in a worker that may not have imported torch
    as_rows: bool  # collate is torch's default: rows may be written straight into the slot
    single: bool = False  # batch_size=None: a key gives the whole batch, `collate` converts it


@dataclass
class MapJob:
    """Loads samples of a map-style dataset."""

    fetch: Fetch
    style: Style
    in_process: bool = False  # runs in the training process: errors and batches are handed over as they are
    worker: int = 0
    _announced: set[int] = field(default_factory=set)
    randomness: Randomness | None = None
    on_error: OnError = field(default_factory=OnError)
    spread: Callable[[int], int] | None = None  # to positions: of a note that crosses to a worker
    sample_timeout_s: float | None = None  # for samples that are awaited; others are watched from outside
    _mark: Callable[[int], None] | None = None
    _box: EpochBox = field(default_factory=EpochBox)
    _keeps_state: bool = False
    _retries: int = 0  # during the ticket at hand; each lane has a job of its own, and coroutines count by themselves

    def __post_init__(self) -> None:
        self._writer = RowWriter(self.fetch, self.in_process)

    @property
    def dataset(self) -> Any:
        return self.fetch.dataset

    def open(self, worker: int | None, state: Any) -> None:
        self.worker = worker or 0
        if not self.in_process:
            avoid_shared_memory()
        self._keeps_state = has_state(self.dataset)
        state = usable(state)
        if state is not None and not isinstance(state, Untold):
            restore(self.dataset, state)

    def for_lane(self, mark: Callable[[int], None] | None) -> MapJob:
        """The same job for another lane of this process: lanes share the dataset, and announce layouts on their own."""
        return dataclasses.replace(self, _announced=set(), _mark=mark)

    def limit(self, lanes: int) -> None:
        """Await no more than `lanes` samples at the same time."""
        self._box.permits = asyncio.Semaphore(lanes)

    def begin_epoch(self, note: EpochNote) -> None:
        self._box.note = note if self.spread is None else dataclasses.replace(note, spread=self.spread)

    def run(self, ticket: Ticket, slot: MapSlot) -> Report:
        begin = time.perf_counter_ns()
        try:
            report = self._answer(ticket, slot)
        except Misfit:
            report = self._report(ticket, Answer.MISFIT)
        except self._caught as error:
            report = self._failure(ticket, error)
        else:
            self._add_state(report)
        report.retries, self._retries = self._retries, 0
        report.busy_ns = time.perf_counter_ns() - begin
        return report

    async def run_async(self, ticket: Ticket, slot: MapSlot) -> Report:
        begin = time.perf_counter_ns()
        careful = Careful(self.on_error, self._where, here=self.in_process)
        try:
            keys, position = plain_keys(ticket.keys), ticket.position + ticket.start
            samples = await asyncio.gather(*(self._await(key, position + row, careful) for row, key in enumerate(keys)))
            report = self._finish(ticket, slot, list(samples))
            self._add_state(report)
        except Misfit:
            report = self._report(ticket, Answer.MISFIT)
        except self._caught_awaiting as error:
            report = self._failure(ticket, error)
        report.retries = careful.retries
        report.busy_ns = time.perf_counter_ns() - begin
        return report

    def _answer(self, ticket: Ticket, slot: MapSlot) -> Report:
        if ticket.ask is Ask.ROWS:
            return self._rows(ticket, slot)
        if ticket.ask is Ask.BATCH:
            return self._batch(ticket, slot)
        return self._report(ticket, Answer.CANCELLED)

    def _rows(self, ticket: Ticket, slot: MapSlot) -> Report:
        if self._writer.gathers:
            return self._gather(ticket, slot)
        if self._writer.reads and self.randomness is None:
            try:
                return self._read_into(ticket, slot)
            except Exception:
                if self.on_error.is_default:
                    raise  # else the samples are loaded one by one, which shows whose error it is
        return self._finish(ticket, slot, self._load(ticket))

    def _batch(self, ticket: Ticket, slot: MapSlot) -> Report:
        if self.style.as_rows and self._writer.gathers:
            try:
                return self._gather(ticket, slot)
            except Misfit:
                pass
        return self._finish(ticket, slot, self._load(ticket))

    def _finish(self, ticket: Ticket, slot: MapSlot, samples: list[Any]) -> Report:
        """Rows if that is asked for or possible; else collate the whole batch."""
        if type(samples) is not list or len(samples) != ticket.stop - ticket.start:
            return self._odd(ticket, slot, samples)
        failed = [(ticket.start + row, sample.error) for row, sample in enumerate(samples) if type(sample) is Failed]
        if failed:
            return self._partly(ticket, slot, samples, failed)
        if ticket.ask is Ask.ROWS:
            return self._write(ticket, slot, samples)
        if self.style.single:
            return self._pack(ticket, slot, self._collate(ticket, samples[0]))
        if self.style.as_rows:
            try:
                return self._write(ticket, slot, samples)
            except Misfit:
                pass
        return self._pack(ticket, slot, self._collate(ticket, samples))

    def _collate(self, ticket: Ticket, samples: Any) -> Any:
        run = SampleRun(iter(()), 0, ticket.position, self._box.note)
        return collate_run(self.style, samples, run, self.randomness)

    def _odd(self, ticket: Ticket, slot: MapSlot, samples: Any) -> Report:
        """`__getitems__` gave something else than a list, or more or fewer samples than it was asked for."""
        if ticket.ask is Ask.ROWS:
            raise Misfit
        return self._pack(ticket, slot, self._collate(ticket, samples))

    def _partly(self, ticket: Ticket, slot: MapSlot, samples: list[Any], failed: list[tuple[int, Any]]) -> Report:
        """Some samples could not be loaded, or are gaps: make what can be made of the others, and say which failed."""
        if ticket.ask is Ask.ROWS:
            return self._rows_of_the_others(ticket, slot, samples, failed)
        new = [(row, error) for row, error in failed if error is not None]  # gaps are known already
        others = [sample for sample in samples if type(sample) is not Failed]
        if (new and self.on_error.action != "drop") or not others or self.style.single:
            return self._report(ticket, Answer.FAILED, payload=Payload(failed=new))
        report = self._finish(dataclasses.replace(ticket, stop=len(others), rows=len(others)), slot, others)
        report.payload = dataclasses.replace(report.payload or Payload(), failed=new or None)
        return report

    def _rows_of_the_others(
        self, ticket: Ticket, slot: MapSlot, samples: list[Any], failed: list[tuple[int, Any]]
    ) -> Report:
        """Each into its own row: those of the failed ones stay free for others to be written there."""
        report = self._report(ticket, Answer.DONE)
        loose: list[tuple[int, Any]] = []
        for row, sample in enumerate(samples, ticket.start):
            if type(sample) is not Failed:
                part = dataclasses.replace(ticket, start=row, stop=row + 1)
                report = self._write(part, slot, [sample])
                loose.append((row, report.payload))
        report.start, report.stop = ticket.start, ticket.stop
        report.payload = Payload(self._writer.layout if report.layout else None, failed=failed, parts=loose)
        return report

    async def _await(self, key: Any, position: int, careful: Careful) -> Any:
        CURRENT_RUN.set(SampleRun(iter(()), 1, position, self._box.note))  # of this coroutine's own context
        return await careful.load_async(self._await_once, key)

    async def _await_once(self, key: Any) -> Any:
        async with self._box.permits or contextlib.nullcontext():
            return await asyncio.wait_for(self.fetch.one_async(key), self.sample_timeout_s)

    @property
    def _where(self) -> str:
        return "in the training process" if self.in_process else f"in DataLoader worker process {self.worker}"

    def _load(self, ticket: Ticket) -> list[Any]:
        run = run_of(ticket.keys, ticket.position + ticket.start, self._box.note)
        if self._mark is None and self.on_error.is_default:
            return load_run(self.fetch, run, self.randomness)
        singly = ticket.singly or self.sample_timeout_s is not None or _has_gaps(ticket.keys)
        careful = Careful(self.on_error, self._where, self._mark, singly, here=self.in_process)
        try:
            return careful.load(self.fetch, run, self.randomness, ticket.start)
        finally:
            self._retries += careful.retries

    def _add_state(self, report: Report) -> None:
        if report.answer is Answer.DONE and (state := self._state()) is not None:
            report.payload = dataclasses.replace(report.payload or Payload(), state=state)

    def _state(self) -> Any:
        if not self._keeps_state:
            return None
        return state_of(self.dataset) if self.in_process else sealed_state_of(self.dataset)

    def _write(self, ticket: Ticket, slot: MapSlot, samples: list[Any]) -> Report:
        return self._written(ticket, self._writer.write(samples, slot, ticket.start, ticket.rows))

    def _gather(self, ticket: Ticket, slot: MapSlot) -> Report:
        return self._written(ticket, self._writer.gather(ticket.keys, slot, ticket.start, ticket.rows))

    def _read_into(self, ticket: Ticket, slot: MapSlot) -> Report:
        run = run_of(ticket.keys, ticket.position + ticket.start, self._box.note)
        return self._written(ticket, self._writer.read(run, slot, ticket.start, ticket.rows, self._mark))

    def _written(self, ticket: Ticket, written: Written) -> Report:
        layout, loose, payload = written.layout, written.loose, None
        if layout.fingerprint not in self._announced or loose:
            announced = None if layout.fingerprint in self._announced else layout
            self._announced.add(layout.fingerprint)
            payload = Payload(announced, loose or None)
        size = written.size_bytes
        return self._report(ticket, Answer.DONE, size_bytes=size, layout=layout.fingerprint, payload=payload)

    def _pack(self, ticket: Ticket, slot: MapSlot, batch: Any) -> Report:
        if self.in_process:
            return self._report(ticket, Answer.DONE, payload=Payload(direct=batch))
        packed, size = pack(batch, slot)
        return self._report(ticket, Answer.DONE, size_bytes=size, payload=Payload(packed=packed))

    @property
    def _caught(self) -> tuple[type[BaseException], ...]:
        """In the training process a sample that says exit says so to the training loop; a worker process just ends."""
        return (BaseException,) if self.in_process else (Exception,)

    @property
    def _caught_awaiting(self) -> tuple[type[BaseException], ...]:
        return (*self._caught, asyncio.CancelledError)

    def _failure(self, ticket: Ticket, error: BaseException) -> Report:
        if self.in_process:
            return self._report(ticket, Answer.ERROR, payload=error)
        return self._report(ticket, Answer.ERROR, payload=RemoteError.capture(error, self._where))

    def _report(self, ticket: Ticket, answer: Answer, **more: Any) -> Report:
        return Report(ticket.number, answer, ticket.start, ticket.stop, self.worker, **more)


def _has_gaps(keys: Any) -> bool:
    return isinstance(keys, list) and any(key is Gap.GAP for key in keys)


def run_of(keys: Any, position: int, note: EpochNote) -> SampleRun:
    """A run whose samples know where they stand."""
    plain = plain_keys(keys)
    return SampleRun(iter(plain), len(plain), position, note)


def load_run(fetch: Fetch, run: SampleRun, randomness: Randomness | None) -> list[Any]:
    """Load the samples of a run, which is the current one meanwhile."""
    if randomness is None:
        return during(run, fetch.many, run.keys)
    return during(run, randomness.load, fetch.one, run)


def collate_run(style: Style, samples: Any, run: SampleRun, randomness: Randomness | None) -> Any:
    """Collate a whole batch; what that draws is keyed by the batch's first position."""
    collate = style.collate or collate_plainly
    if randomness is None:
        return during(run, collate, samples)
    return during(run, randomness.one, collate, samples, run)


def plain_keys(keys: Any) -> list[Any]:
    """Keys as a user's dataset gets them from torch: Python's own numbers."""
    plain: list[Any] = keys.tolist() if isinstance(keys, np.ndarray) else keys
    return plain
