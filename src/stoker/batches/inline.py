"""Batches made in the training process when they are asked for: no tickets, no reports, no errors in envelopes.

The rows are written as a worker would write them. Large batches go into reused slots, so that their memory is touched
once; small ones into ordinary memory, which is quicker to get than a lease. Whatever does not fit is left to the
loader's `collate_fn`, which for torch's default decides strides and dtypes in just torch's way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.batches.careful import Careful
from stoker.batches.gather import gather_small, plain_indices
from stoker.batches.job import Style, collate_run, load_run, plain_keys, run_of
from stoker.batches.layout import Misfit, rebuild
from stoker.batches.row_writer import RowWriter, Written
from stoker.batches.rows import read_columns
from stoker.contracts import Bytes, EpochNote, Failed, Fetch, Randomness, SampleRun
from stoker.nested import size_of
from stoker.options import OnError
from stoker.slots import SlotPool

Replace = Callable[[list[Any], int, int, int, Any], Any]
"""(keys, row, attempt, position, error) of a bad sample to the key of another one, or DROPPED."""
DROPPED = object()
SMALL_BYTES = 32 * 1024
"""Below this a batch gets memory of its own: a copy or an allocation costs less than the bookkeeping of a lease."""


class InlineBatches:
    """Makes batches of one loader, in the thread that asks for them."""

    def __init__(
        self,
        fetch: Fetch,
        style: Style,
        pool: SlotPool,
        randomness: Randomness | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self._fetch, self._style, self._pool, self._randomness = fetch, style, pool, randomness
        self._on_error = on_error or OnError()
        self._raises_at_once = self._on_error.is_default
        self._writer = RowWriter(fetch, in_process=True)
        self.samples = 0  # in the latest batch
        self.size_bytes = 0  # of it
        self.retries = 0  # tries of samples beyond the first, so far
        self._gathers = fetch.arrays is not None and style.as_rows
        # Randomness that belongs to samples is set around each: such a dataset is asked for samples.
        self._reads = style.as_rows and not style.single and randomness is None

    def of_keys(self, keys: Any, position: int, note: EpochNote, replace: Replace) -> Any:
        """The batch of these indices, the first of which stands at `position` in the epoch."""
        if self._gathers:
            try:
                return self._gather(keys)
            except (Misfit, IndexError, RuntimeError):
                pass  # an index that is not a plain one: the dataset itself says what is wrong with it
        if self._reads and self._writer.reads and len(keys):
            try:
                return self._read(keys, position, note)
            except Misfit:
                pass
            except Exception:
                if self._raises_at_once:
                    raise  # else the samples are loaded one by one, which shows whose error it is
        return self._load(keys, position, note, replace)

    def _load(self, keys: Any, position: int, note: EpochNote, replace: Replace) -> Any:
        """The batch of samples that the dataset is asked for."""
        if self._raises_at_once:
            samples = load_run(self._fetch, run_of(keys, position, note), self._randomness)
        else:
            samples = self._carefully(plain_keys(keys), position, note, replace)
            if samples is DROPPED:
                return DROPPED
        run = SampleRun(iter(()), 0, position, note)
        self.samples = len(samples) if type(samples) is list else len(keys)  # `__getitems__` may give anything
        return self.of_item(samples[0], run) if self._style.single else self.of_samples(samples, run)

    def _carefully(self, keys: list[Any], position: int, note: EpochNote, replace: Replace) -> Any:
        """Load samples of which some may fail; `replace` says what to load in their place. DROPPED if none is left."""
        keys = list(keys)
        samples = self._try(keys, position, note)
        if type(samples) is not list or not any(type(sample) is Failed for sample in samples):
            return samples  # `__getitems__` may give anything, also nothing
        for row, sample in enumerate(samples):
            attempt = 0
            while type(sample) is Failed:
                attempt += 1
                key = replace(keys, row, attempt, position + row, sample.error)
                if key is DROPPED:
                    sample = DROPPED
                else:
                    keys[row] = key
                    sample = self._try([key], position + row, note)[0]
            samples[row] = sample
        return [sample for sample in samples if sample is not DROPPED] or DROPPED

    def _try(self, keys: list[Any], position: int, note: EpochNote) -> list[Any]:
        run = run_of(keys, position, note)
        careful = Careful(self._on_error, "in the training process", here=True)
        try:
            return careful.load(self._fetch, run, self._randomness, 0)
        finally:
            self.retries += careful.retries

    def of_item(self, item: Any, run: SampleRun) -> Any:
        """The batch that one item of the dataset is, with `batch_size=None`."""
        return self._collate(item, run)

    def of_samples(self, samples: Any, run: SampleRun) -> Any:
        """The batch of these samples."""
        if self._style.as_rows and type(samples) is list and samples:
            try:
                return self._rows(samples)
            except Misfit:
                pass
        return self._collate(samples, run)

    def _collate(self, samples: Any, run: SampleRun) -> Any:
        batch = collate_run(self._style, samples, run, self._randomness)
        self.size_bytes = size_of(batch)
        return batch

    def _rows(self, samples: list[Any]) -> Any:
        return self._batch_of(self._writer.write(samples, self._memory, 0, len(samples)), len(samples))

    def _read(self, keys: Any, position: int, note: EpochNote) -> Any:
        run = run_of(keys, position, note)
        batch = self._batch_of(self._writer.read(run, self._memory, 0, run.rows), run.rows)
        self.samples = run.rows
        return batch

    def _batch_of(self, written: Written, rows: int) -> Any:
        self.size_bytes = written.layout.row_bytes * rows
        return rebuild(written.layout.tree, read_columns(written.layout, written.memory, rows, written.loose))

    def _gather(self, keys: Any) -> Any:
        layout, rows = self._writer.gather_layout(), len(keys)
        self.samples, self.size_bytes = rows, layout.row_bytes * rows
        if layout.offsets(rows)[-1] <= SMALL_BYTES:
            columns = gather_small(self._fetch.arrays or (), plain_indices(keys))
            return columns[0] if self._fetch.bare else columns
        return self._batch_of(self._writer.gather(keys, self._memory, 0, rows), rows)

    def _memory(self, size: int) -> Bytes:
        if size <= SMALL_BYTES:
            return np.empty(size, np.uint8)
        slot = self._pool.take()
        owner = self._pool.lease(slot, size)
        if owner is None:  # the user keeps many batches
            self._pool.give_back(slot)
            return np.empty(size, np.uint8)
        return owner
