"""From what lies in a slot to the batch the user gets.

Large batches are views of their slot, which stays leased until the last view dies. Small ones are copied out and the
slot is free at once: below some ten kilobytes a copy costs less than the bookkeeping of a lease. So are batches of
users who keep many of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.batches.inline import SMALL_BYTES
from stoker.batches.job import Payload
from stoker.batches.layout import Layout, rebuild
from stoker.batches.packing import unpack
from stoker.batches.rows import read_columns
from stoker.contracts import Bytes, Filled
from stoker.nested import size_of
from stoker.slots import SlotPool


class Delivery:
    """Knows every layout that was announced, and the pool whose slots the batches lie in."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._layouts: dict[int, Layout] = {}
        self.samples = 0  # in the latest batch
        self.size_bytes = 0  # of it

    def note(self, payload: Any) -> None:
        """Remember a layout that a report announces."""
        if isinstance(payload, Payload) and payload.layout is not None:
            self._layouts[payload.layout.fingerprint] = payload.layout

    def build(self, filled: Filled) -> Any:
        """The batch; its slot is leased, or free again."""
        self.samples = filled.rows - len(filled.dropped)
        first = filled.payloads[0][1] if filled.payloads else None
        if isinstance(first, Payload) and filled.layout == 0:
            return self._unpack(filled, first)
        layout = self._layouts[filled.layout]
        self.size_bytes = layout.row_bytes * self.samples
        memory = self._memory(filled)
        columns = read_columns(layout, memory, filled.rows, _loose(layout, filled))
        if filled.dropped:
            kept = [row for row in range(filled.rows) if row not in filled.dropped]
            columns = [column if isinstance(column, list) else column[kept] for column in columns]
        return rebuild(layout.tree, columns)

    def _unpack(self, filled: Filled, payload: Payload) -> Any:
        if payload.packed is None:
            self._pool.give_back(filled.slot)
            self.size_bytes = size_of(payload.direct)
            return payload.direct
        self.size_bytes = sum(size for _, size in payload.packed.places)
        return unpack(payload.packed, self._memory(filled))

    def _memory(self, filled: Filled) -> Bytes:
        size = filled.size_bytes
        owner = self._pool.lease(filled.slot, size) if size > SMALL_BYTES else None
        if owner is not None:
            return owner
        copy: Bytes = self._pool.arena.rows(filled.slot, size).copy() if size else np.empty(0, np.uint8)
        self._pool.give_back(filled.slot)
        return copy


def _loose(layout: Layout, filled: Filled) -> list[list[Any]]:
    """The loose columns of all runs, joined in the order of their rows."""
    if not layout.has_loose:
        return []
    runs = [payload.loose for _, payload in sorted(filled.payloads, key=lambda run: run[0])]
    return [[value for column in parts for value in column] for parts in zip(*runs, strict=True)]
