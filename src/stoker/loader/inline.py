"""A pass without workers: each batch is made when it is asked for, in the training loop's own thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from stoker.loader.passes import BatchIterator


class InlineIterator(BatchIterator):
    """A pass whose batches are made where they are asked for."""

    def _start(self) -> None:
        self._batches = self._assembly.inline(self._pool)
        self._items: Iterator[Any] | None = iter(self._assembly.dataset) if self._assembly.is_iterable else None
        self._ended = False

    def _next(self) -> Any:
        if self._items is not None:
            return self._next_of_iterable(self._items)
        return self._batches.of_keys(next(self._keys))

    def _next_of_iterable(self, items: Iterator[Any]) -> Any:
        size = self._assembly.batch_size
        if self._ended:
            raise StopIteration
        if size is None:
            return self._batches.of_item(next(items))
        samples = list(islice(items, size))
        self._ended = len(samples) < size
        if not samples or (self._ended and self._assembly.drop_last):
            raise StopIteration
        return self._batches.of_samples(samples)
