"""The job of an iterable dataset: each worker walks its own iterator and makes whole batches from it.

As torch's loader does, a worker's last batch may be short (or is dropped with `drop_last`), and END is reported when
nothing is left. Batches are written as rows where they fit, like those of map-style datasets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stoker.batches.job import MapJob
from stoker.contracts import Answer, MapSlot, Report, Ticket


@dataclass
class IterableJob(MapJob):
    """Makes batches of `batch_size` from the dataset's iterator; None hands single items on."""

    batch_size: int | None = None
    drop_last: bool = False
    _items: Iterator[Any] | None = None
    _ended: bool = False

    def begin_epoch(self, note: Any) -> None:
        self._items, self._ended = None, False

    def run(self, ticket: Ticket, slot: MapSlot) -> Report:
        begin = time.perf_counter_ns()
        try:
            report = self._next(ticket, slot)
        except Exception as error:
            report = self._failure(ticket, error)
        report.busy_ns = time.perf_counter_ns() - begin
        return report

    def _next(self, ticket: Ticket, slot: MapSlot) -> Report:
        if self._items is None:
            self._items = iter(self.dataset)
        if self._ended:
            return self._report(ticket, Answer.END)
        if self.style.single:
            return self._next_single(ticket, slot, self._items)
        samples = list(islice(self._items, self.batch_size))
        short = len(samples) < (self.batch_size or 1)
        if not samples or (short and self.drop_last):
            self._ended = True
            return self._report(ticket, Answer.END)
        self._ended = short
        ticket.rows = ticket.stop = len(samples)
        return self._finish(ticket, slot, samples)

    def _next_single(self, ticket: Ticket, slot: MapSlot, items: Iterator[Any]) -> Report:
        try:
            item = next(items)
        except StopIteration:
            self._ended = True
            return self._report(ticket, Answer.END)
        return self._pack(ticket, slot, self.style.collate(item))
