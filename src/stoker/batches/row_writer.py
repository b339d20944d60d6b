"""Samples to rows of some memory, by the quickest way that fits: the one writer of workers and of the training process.

    gather      the dataset is arrays already: one indexing operation a column
    read        the dataset fills rows itself (`read_into`), once a sample has shown how they lie
    write       samples are written as rows, by the layout of those before or by one that is learned from the first

Whatever does not fit is a misfit, and then nothing of what was written counts. A writer belongs to one lane.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.batches.collate import leaf_of
from stoker.batches.gather import gather_layout, gather_rows, plain_indices
from stoker.batches.layout import Column, Layout, Misfit, learn
from stoker.batches.read_into import RowReader
from stoker.batches.rows import write_rows
from stoker.contracts import Bytes, Fetch, MapSlot, SampleRun, during


@dataclass(slots=True)
class Written:
    """Rows that are in their place."""

    layout: Layout
    size_bytes: int  # of the whole batch
    memory: Bytes
    loose: list[Column]


class RowWriter:
    """Writes the samples of one dataset, and remembers how they lie."""

    def __init__(self, fetch: Fetch, in_process: bool) -> None:
        self.layout: Layout | None = None
        self._fetch, self._in_process = fetch, in_process
        self._reader = RowReader(fetch.dataset) if hasattr(fetch.dataset, "read_into") else None

    @property
    def gathers(self) -> bool:
        return self._fetch.arrays is not None

    @property
    def reads(self) -> bool:
        """Whether the dataset can be asked to fill rows now."""
        return self._reader is not None and self.layout is not None and not self.layout.has_loose

    def gather(self, keys: Any, memory_of: MapSlot, start: int, rows: int) -> Written:
        arrays = self._fetch.arrays or ()
        indices = plain_indices(keys)
        layout = self.gather_layout()
        size, memory = _room(layout, memory_of, rows)
        gather_rows(layout, arrays, indices, memory, start, rows)
        return Written(layout, size, memory, [])

    def gather_layout(self) -> Layout:
        """How rows of a dataset that is arrays lie."""
        self.layout = self.layout or gather_layout(self._fetch.arrays or (), self._fetch.bare)
        return self.layout

    def read(
        self, run: SampleRun, memory_of: MapSlot, start: int, rows: int, mark: Callable[[int], None] | None = None
    ) -> Written:
        """Let the dataset fill the rows of a run, which is the current one meanwhile."""
        layout, reader = self.layout, self._reader
        if layout is None or reader is None:
            raise Misfit
        size, memory = _room(layout, memory_of, rows)
        during(run, reader.read, layout, run.keys, memory, start, rows, mark)
        return Written(layout, size, memory, [])

    def write(self, samples: list[Any], memory_of: MapSlot, start: int, rows: int) -> Written:
        if self.layout is not None:
            try:
                return _write(self.layout, samples, memory_of, start, rows)
            except Misfit:
                pass  # samples may have changed shape since the last batch
        layout = self._learn(samples)
        written = _write(layout, samples, memory_of, start, rows)
        self.layout = layout
        return written

    def _learn(self, samples: list[Any]) -> Layout:
        """A layout that was not tried yet."""
        if not samples:
            raise Misfit
        layout = learn(samples[0], functools.partial(leaf_of, contiguous=self._in_process))
        if self.layout is not None and layout.fingerprint == self.layout.fingerprint:
            raise Misfit
        if not self._in_process:
            _check_ships(layout)
        return layout


def _write(layout: Layout, samples: list[Any], memory_of: MapSlot, start: int, rows: int) -> Written:
    size, memory = _room(layout, memory_of, rows)
    return Written(layout, size, memory, write_rows(layout, samples, memory, start, rows))


def _room(layout: Layout, memory_of: MapSlot, rows: int) -> tuple[int, Bytes]:
    size = layout.offsets(rows)[-1]
    return size, memory_of(size)


def _check_ships(layout: Layout) -> None:
    """A layout with a class that cannot be pickled would be announced and never arrive."""
    try:
        pickle.dumps(layout)
    except Exception:  # pickling local classes raises several types
        raise Misfit from None
