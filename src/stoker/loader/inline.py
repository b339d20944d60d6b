"""A pass without workers: each batch is made when it is asked for, in the training loop's own thread."""

from __future__ import annotations

from typing import Any

from stoker.batches import DROPPED, InlineBatches, has_state, restore
from stoker.contracts import Run
from stoker.loader.failures import MOST_RESERVES
from stoker.loader.passes import BatchIterator
from stoker.order import sample_key


class InlineIterator(BatchIterator):
    """A pass whose batches are made where they are asked for."""

    def _start(self) -> None:
        self._maker: InlineBatches = self._assembly.inline(self._pool)
        self._progress.keys = self._keys
        states = self._assembly.states(self._progress.place) or [None]
        if self._assembly.is_iterable:
            self._progress.items = self._items = self._assembly.items(states[0])
        elif has_state(self._assembly.dataset):
            self._progress.dataset = self._assembly.dataset
            if states[0] is not None:
                restore(self._assembly.dataset, states[0])

    def _restart(self) -> None:
        self._start()

    @property
    def wants_callers_thread(self) -> bool:
        return self._assembly.sets_generators  # the training loop draws from them too

    def _next(self) -> Any:
        if self._keys is None:
            return self._next_of_iterable()
        while True:
            draw = next(self._keys)
            self._asked = draw.keys
            try:
                batch = self._maker.of_keys(draw.keys, draw.position, self._epoch_note, self._replace)
            finally:
                if self._maker.retries:
                    self._note_retries()
            self._progress.moved_on(draw.end, draw.state)
            if batch is not DROPPED:
                if self._steps is not None:
                    self._steps.told(self._progress.place.batches - 1, len(draw.keys), None)
                self._failures.seen += len(draw.keys)
                return batch

    def _note_retries(self) -> None:
        self._count.retries += self._maker.retries
        self._maker.retries = 0

    def _replace(self, keys: list[Any], row: int, attempt: int, position: int, error: Any) -> Any:
        """What to load in the place of a bad sample; DROPPED for nothing."""
        note, policy = self._epoch_note, self._failures.policy
        position = note.position(position)
        self._failures.record(keys[row], note.epoch, position, error, None)
        if policy.action == "raise":
            raise error.to_exception()
        if policy.action == "drop" or self._keys is None or attempt > MOST_RESERVES:
            return DROPPED
        chance = sample_key(note.seed & (2**64 - 1), note.epoch, position) ^ sample_key(0, attempt, row)
        key = self._keys.reserve(chance, self._asked)
        return DROPPED if key is None else key

    def _next_of_iterable(self) -> Any:
        samples = self._items.take()
        if samples is None:
            raise StopIteration
        self._progress.moved_on(0, None)
        if self._steps is not None:
            self._steps.told(self._progress.place.batches - 1, len(samples), None)
        self._maker.samples = len(samples)
        run = Run(iter(()), 0, 0, self._epoch_note)
        if self._items.batch_size is None:
            return self._maker.of_item(samples[0], run)
        return self._maker.of_samples(samples, run)
