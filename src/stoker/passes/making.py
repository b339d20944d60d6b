"""A batch in the making: asked for, folded together from reports, and then ready, or a case for mending.

    asked for ──► reports are folded in ──► complete ──► READY       handed over when it is its turn
                                                    ├──► ENDED       nothing: its worker's iterable, or its epoch, ended
                                                    ├──► FAILED      samples of it could not be loaded: `mending`
                                                    └──► MISFIT      no rows of one layout: ask for the whole batch

An error of the user's code is no case of its own: the batch is ready, and the error is what is handed over.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stoker.batches import Payload
from stoker.contracts import Answer, Ask, Filled, Gap, Report
from stoker.resume.cursor import HandedBatch
from stoker.sampling.streams import Draw


class Verdict(enum.Enum):
    """What a complete batch is."""

    READY = 0
    ENDED = 1
    FAILED = 2
    MISFIT = 3


@dataclass(frozen=True)
class BadSample:
    """A sample of a batch that could not be loaded; counted when it is the batch's turn."""

    key: Any
    position: int  # in the epoch
    worker: int | None
    error: Any  # a RemoteError


@dataclass
class Making:
    """One batch on its way: what was asked, what has come, and what is still missing."""

    number: int  # over all epochs of a crew
    batch: int  # its number in the epoch
    epoch: int  # of its tickets
    slot: int
    draw: Draw  # its keys as they were drawn, and where the stream stood afterwards
    rows: int
    ask: Ask
    worker: int | None = None  # who makes all of it; None: whoever has tickets for it
    keys: Any = None  # the draw's, until bad samples are replaced by others or by gaps
    rows_left: int = 0
    layout: int = 0
    size_bytes: int = 0
    payloads: list[tuple[int, Any]] = field(default_factory=list)  # (first row, payload) of each run
    error: tuple[int, Any] | None = None  # (row, what to raise): that of the first row
    failed: list[tuple[int, int, Any]] = field(default_factory=list)  # (row, worker, RemoteError), not mended yet
    bad: list[BadSample] = field(default_factory=list)  # all that failed, mended or not
    attempts: dict[int, int] = field(default_factory=dict)  # how many others were tried for a row
    dropped: set[int] = field(default_factory=set)  # rows in the slot that are left out
    is_ended: bool = False
    is_misfit: bool = False
    is_empty: bool = False  # all its rows were left out
    worker_state: Any = None  # where the worker's dataset stood after this batch, if it can say

    def __post_init__(self) -> None:
        self.keys = self.draw.keys

    @property
    def is_complete(self) -> bool:
        return self.rows_left == 0

    @property
    def verdict(self) -> Verdict:
        """What a complete batch is; a bad sample or a misfit beside the user's error does not matter any more."""
        if self.is_ended:
            return Verdict.ENDED
        if self.failed and self.error is None:
            return Verdict.FAILED
        if self.is_misfit and self.error is None and self.ask is Ask.ROWS:
            return Verdict.MISFIT
        return Verdict.READY

    @property
    def asked_rows(self) -> int:
        """Rows as they were drawn, before any was left out."""
        return self.rows if self.draw.keys is None else len(self.draw.keys)

    @property
    def gaps(self) -> list[int]:
        """The rows that are left out."""
        return [row for row, key in enumerate(self.keys) if key is Gap.GAP] if self.attempts else []

    def key(self, row: int) -> Any:
        key = None if self.keys is None else self.keys[row]
        return key.item() if isinstance(key, np.generic) else key

    def fold(self, report: Report) -> None:
        """Take in what became of one of its tickets."""
        self.rows_left -= report.stop - report.start if self.ask is Ask.ROWS else self.rows_left
        if report.answer is Answer.DONE:
            self._fold_rows(report)
        elif report.answer is Answer.FAILED:
            self._note_failed(report)
        elif report.answer is Answer.ERROR:
            if self.error is None or report.start < self.error[0]:
                self.error = (report.start, report.payload)
        elif report.answer is Answer.END:
            self.worker_state = report.payload.state
        self.is_ended |= report.answer in (Answer.END, Answer.CANCELLED)
        self.is_misfit |= report.answer is Answer.MISFIT

    def _fold_rows(self, report: Report) -> None:
        payload = report.payload if isinstance(report.payload, Payload) else None
        has_failed = payload is not None and bool(payload.failed)
        if has_failed:
            self._note_failed(report)
        if report.layout or not has_failed:
            self.is_misfit |= self.layout not in (0, report.layout)
            self.layout = report.layout
        self.size_bytes = max(self.size_bytes, report.size_bytes)
        if self.ask is Ask.BATCH:  # an iterable's last batch is short; __getitems__ may give more or fewer
            self.rows = report.stop
        self._keep_payload(report, payload)

    def _keep_payload(self, report: Report, payload: Payload | None) -> None:
        if report.payload is not None:
            parts = None if payload is None else payload.parts
            self.payloads += [(report.start, report.payload)] if parts is None else [part for part in parts if part[1]]
        if payload is not None and payload.state is not None:
            self.worker_state = payload.state

    def _note_failed(self, report: Report) -> None:
        self.failed += [(row, report.worker, error) for row, error in report.payload.failed]

    def take_failed(self) -> list[tuple[int, int, Any]]:
        """What has failed since the last time, in the order of rows."""
        failed, self.failed = sorted(self.failed, key=lambda entry: entry[0]), []
        return failed

    def begin_again(self) -> None:
        """It is made anew, with other keys."""
        self.rows = len(self.keys)  # it may have come back shorter
        self.layout, self.size_bytes, self.is_misfit = 0, 0, False
        self.payloads.clear()

    def begin_whole(self) -> None:
        """It is made anew, all of it by one worker."""
        self.ask, self.is_misfit, self.layout, self.size_bytes = Ask.BATCH, False, 0, 0
        self.dropped = set()  # who makes the whole batch leaves them out
        self.payloads.clear()

    def filled(self) -> Filled:
        """What lies in the slot, for whoever makes the batch of it."""
        return Filled(self.slot, self.rows, self.layout, self.size_bytes, self.payloads, self.dropped)

    def handed(self) -> HandedBatch:
        """What the place in the data is moved on by."""
        is_keyed = self.draw.keys is not None
        return HandedBatch(
            self.batch, self.draw.end, self.draw.state, self.rows, is_keyed, self.worker, self.worker_state
        )
