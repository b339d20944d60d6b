"""The job of an iterable dataset: each worker walks its own iterator and makes whole batches from it.

As torch's loader does, a worker's last batch may be short (or is dropped with `drop_last`), and END is reported when
nothing is left. Batches are written as rows where they fit, like those of map-style datasets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker.batches.items import Items
from stoker.batches.job import MapJob, Payload
from stoker.batches.own_state import check_told, sealed, usable
from stoker.contracts import Answer, EpochNote, MapSlot, Report, Ticket


@dataclass
class IterableJob(MapJob):
    """Makes batches of `batch_size` from the dataset's iterator; None hands single items on."""

    batch_size: int | None = None
    drop_last: bool = False
    _items: Items | None = None

    def open(self, worker: int | None, state: Any) -> None:
        super().open(worker, None)
        check_told(state)  # without its place it would begin anew, and repeat what was given already
        self._items = Items(self.dataset, self.batch_size, self.drop_last, pending=usable(state))

    def begin_epoch(self, note: EpochNote) -> None:
        super().begin_epoch(note)
        self.items.begin_epoch()

    @property
    def items(self) -> Items:
        if self._items is None:
            raise RuntimeError("the job was not opened")
        return self._items

    def _batch(self, ticket: Ticket, slot: MapSlot) -> Report:
        samples = self.items.take()
        if samples is None:
            return self._report(ticket, Answer.END, payload=Payload(state=self._state()))
        if self.style.single:
            return self._pack(ticket, slot, self._collate(ticket, samples[0]))
        ticket.rows = ticket.stop = len(samples)
        return self._finish(ticket, slot, samples)

    def _state(self) -> Any:
        state = self.items.state()
        return state if self.in_process else sealed(state, self.dataset)
