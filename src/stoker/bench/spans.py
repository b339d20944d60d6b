"""Who loaded which batch, and when: the notes behind a timeline.

    Noted(dataset)[index]     times the sample, and appends 24 bytes to a file named after the process
    read_spans(folder)        all files together, samples of one batch in one process joined to one span

It works for any loader, because it sits in the dataset; the price is that the dataset's own shortcuts (gathering,
reading into place) go unused, so a timeline is a trial of its own that no statistics use. Clocks of processes agree,
because `perf_counter` is the system's monotonic clock. Samples must come in the dataset's order: then a sample's
batch is its index divided by the batch size.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.bench.runs import Span

_NOTE = struct.Struct("<ddq")  # begun, done (seconds of perf_counter), batch


class Noted:
    """A map-style dataset that notes when each sample was loaded, and by which process."""

    def __init__(self, dataset: Any, folder: Path, batch_size: int) -> None:
        self._dataset, self._folder, self._batch_size = dataset, folder, batch_size
        self._file: tuple[int, int] = (0, -1)  # the process it was opened by, the descriptor

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        begun_at = time.perf_counter()
        sample = self._dataset[index]
        # One write a note: lanes of a process share the descriptor, and appending keeps notes whole.
        os.write(self._descriptor(), _NOTE.pack(begun_at, time.perf_counter(), index // self._batch_size))
        return sample

    def close(self) -> None:
        """Close this process's file; worker processes take theirs with them."""
        if self._file[0] == os.getpid():
            os.close(self._file[1])
        self._file = (0, -1)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": (0, -1)}

    def _descriptor(self) -> int:
        pid, descriptor = self._file
        if pid != os.getpid():
            descriptor = os.open(self._folder / f"{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._file = (os.getpid(), descriptor)
        return descriptor


def read_spans(folder: Path, since_s: float) -> tuple[Span, ...]:
    """The spans of all processes, times counted from `since_s`, in the order in which they began."""
    spans = [span for file in folder.iterdir() for span in _joined(int(file.name), file.read_bytes(), since_s)]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def _joined(worker: int, notes: bytes, since_s: float) -> Iterator[Span]:
    spans: dict[int, tuple[float, float]] = {}
    for begun, done, batch in _NOTE.iter_unpack(notes[: len(notes) // _NOTE.size * _NOTE.size]):
        first, last = spans.get(batch, (begun, done))
        spans[batch] = (min(first, begun), max(last, done))
    for batch, (begun, done) in spans.items():
        yield Span(worker, batch, begun - since_s, done - since_s)
