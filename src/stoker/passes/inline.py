"""A pass without workers: each batch is made when it is asked for, in the training loop's own thread."""

from __future__ import annotations

import functools
from typing import Any

from stoker.batches import DROPPED, InlineBatches, has_state, restore
from stoker.contracts import SampleRun
from stoker.passes.batch_pass import BatchPass
from stoker.passes.here import Here


class InlinePass(BatchPass):
    """A pass whose batches are made where they are asked for."""

    def _start(self) -> None:
        self._maker: InlineBatches = self._assembly.inline(self._pool)
        self._here = Here(self._maker, self._failures, self._reserves, self._epoch_note)
        self._cursor.keys = self._keys
        states = self._assembly.states(self._cursor.place) or [None]
        if self._assembly.is_iterable:
            self._cursor.items = self._items = self._assembly.items(states[0])
        elif has_state(self._assembly.dataset):
            self._cursor.dataset = self._assembly.dataset
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
            draw = self._draw_here()
            if draw is None:
                raise StopIteration
            batch = self._make_here(self._here, draw, self._asked_for - 1)
            if batch is not DROPPED:
                return batch

    def _next_of_iterable(self) -> Any:
        try:
            samples = self._items.take()
            if samples is None:
                raise StopIteration
            return self._made_of(samples)
        except Exception:  # as with torch's loader, and as far as the user's iterator can go on
            self._may_go_on = True
            raise

    def _made_of(self, samples: list[Any]) -> Any:
        if self._steps is not None:
            self._steps.told(self._cursor.place.batches + len(self._behind), len(samples), None)
        self._behind.append(functools.partial(self._cursor.moved_on, 0, None))
        self._maker.samples = len(samples)
        run = SampleRun(iter(()), 0, 0, self._epoch_note)
        if self._items.batch_size is None:
            return self._maker.of_item(samples[0], run)
        return self._maker.of_samples(samples, run)
