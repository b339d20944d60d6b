"""Who loaded which batch, and when: the notes behind a timeline.

    Noted(dataset)[index]     times the sample, and appends 24 bytes to a file named after the process
    read_spans(folder)        all files together, samples of one batch in one process joined to one span

It works for any loader, because it sits in the dataset; the price is that the dataset's own shortcuts (gathering,
reading into place) go unused, so a timeline is a trial of its own that no statistics use. Clocks of processes agree,
because `perf_counter` is the system's monotonic clock. Samples must come in the dataset's order: then a sample's
batch is its index divided by the batch size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.bench.notes import Notes
from stoker.bench.runs import Span

_NOTE = "<ddq"  # begun, done (seconds of perf_counter), batch


class Noted:
    """A map-style dataset that notes when each sample was loaded, and by which process."""

    def __init__(self, dataset: Any, folder: Path, batch_size: int) -> None:
        self._dataset, self._notes, self._batch_size = dataset, Notes(folder, _NOTE), batch_size

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        begun_at = time.perf_counter()
        sample = self._dataset[index]
        self._notes.add(begun_at, time.perf_counter(), index // self._batch_size)
        return sample


def read_spans(folder: Path, since_s: float) -> tuple[Span, ...]:
    """The spans of all processes, times counted from `since_s`, in the order in which they began."""
    spans = [span for worker, notes in Notes(folder, _NOTE).read() for span in _joined(worker, notes, since_s)]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def _joined(worker: int, notes: list[tuple[float, float, int]], since_s: float) -> Iterator[Span]:
    spans: dict[int, tuple[float, float]] = {}
    for begun, done, batch in notes:
        first, last = spans.get(batch, (begun, done))
        spans[batch] = (min(first, begun), max(last, done))
    for batch, (begun, done) in spans.items():
        yield Span(worker, batch, begun - since_s, done - since_s)
