"""A pass without workers: each batch is made when it is asked for, in the training loop's own thread."""

from __future__ import annotations

from typing import Any

from stoker.batches import has_state
from stoker.loader.passes import BatchIterator


class InlineIterator(BatchIterator):
    """A pass whose batches are made where they are asked for."""

    def _start(self) -> None:
        self._batches = self._assembly.inline(self._pool)
        self._progress.keys = self._keys
        states = self._assembly.states(self._progress.place) or [None]
        if self._assembly.is_iterable:
            self._progress.items = self._items = self._assembly.items(states[0])
        elif has_state(self._assembly.dataset):
            self._progress.dataset = self._assembly.dataset
            if states[0] is not None:
                self._assembly.dataset.load_state_dict(states[0])

    def _next(self) -> Any:
        if self._keys is None:
            return self._next_of_iterable()
        draw = next(self._keys)
        batch = self._batches.of_keys(draw.keys, draw.position, self._epoch_note)
        self._progress.moved_on(draw.end, draw.state)
        return batch

    def _next_of_iterable(self) -> Any:
        samples = self._items.take()
        if samples is None:
            raise StopIteration
        self._progress.moved_on(0, None)
        if self._items.batch_size is None:
            return self._batches.of_item(samples[0])
        return self._batches.of_samples(samples)
