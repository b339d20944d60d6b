"""Walking an iterable dataset, and finding the place again.

Three kinds of datasets can be resumed, in this order of preference:

- the iterator has a state of its own: it is restored into a new iterator;
- the dataset has one: it is restored before the iterator is made, which goes on from there;
- neither: the iterator is walked again from the start, and what was seen before is thrown away.

A dataset that is its own iterator counts as the first. An epoch that had ended when it was saved is restored as well,
for what else the state carries (generators, an epoch number), and then begun anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from stoker.batches.own_state import has_state, restore, state_of

log = logging.getLogger("stoker.resume")
_PATIENCE_S = 5.0
_NOTHING = object()


@dataclass
class Items:
    """The iterator of an iterable dataset, and how far it has come."""

    dataset: Any
    batch_size: int | None
    drop_last: bool
    pending: dict[str, Any] | None = None  # a place to go to, once the iterator is needed
    batches: int = 0
    ended: bool = False
    _iterator: Iterator[Any] | None = None
    _began: bool = False
    _keepers: tuple[Any, Any] | None = None  # the dataset and the iterator, as far as they have a state

    def begin_epoch(self) -> None:
        if self._began:
            self.pending = None  # a place in an epoch that is over, and that was never asked for
        self._began = True
        self._iterator, self.batches, self.ended = None, 0, False

    def take(self) -> list[Any] | None:
        """The samples of the next batch; None at the end."""
        iterator = self._open()
        if self.ended:
            return None
        samples = take_next(iterator, self.batch_size or 1)
        short = len(samples) < (self.batch_size or 1)
        self.ended = short
        if not samples or (short and self.drop_last):
            return None
        self.batches += 1
        return samples

    @property
    def is_own_iterator(self) -> bool:
        """Whether the dataset is what walks it, so that there may be only one walk."""
        return self._iterator is self.dataset

    def state(self) -> dict[str, Any]:
        """The place, to be given to `pending` of another Items over the same dataset."""
        iterator = self._open()
        if self._keepers is None:
            separate = iterator is not self.dataset and has_state(self.dataset)
            self._keepers = self.dataset if separate else None, iterator if has_state(iterator) else None
        dataset, own = (None if keeper is None else state_of(keeper) for keeper in self._keepers)
        return {"batches": self.batches, "ended": self.ended, "dataset": dataset, "iterator": own}

    def _open(self) -> Iterator[Any]:
        if self._iterator is None:
            self._iterator, self._keepers = self._restore() if self.pending is not None else iter(self.dataset), None
        return self._iterator

    def _restore(self) -> Iterator[Any]:
        place, self.pending = self.pending or {}, None
        if place["dataset"] is not None:
            restore(self.dataset, place["dataset"])
        iterator: Any = iter(self.dataset)
        if place["iterator"] is not None:
            restore(iterator, place["iterator"])
        if place.get("finished"):
            iterator = iterator if place["iterator"] is None else iter(self.dataset)
            return cast(Iterator[Any], iterator)
        self.batches, self.ended = place["batches"], place["ended"]
        if place["iterator"] is None and place["dataset"] is None and not self.ended:
            self._walk_again(iterator)
        return cast(Iterator[Any], iterator)

    def _walk_again(self, iterator: Iterator[Any]) -> None:
        size = self.batch_size or 1
        found = -(-walk_again(iterator, self.batches * size, "iterable dataset") // size)
        if found < self.batches:
            told = "resuming: the iterable dataset ended after %d of the %d batches read before"
            log.warning(told, found, self.batches)


def take_next(iterator: Iterator[Any], count: int) -> list[Any]:
    """Up to `count` items. (islice would call iter() on the iterator, which starts some datasets over.)"""
    taken: list[Any] = []
    for _ in range(count):
        try:
            taken.append(next(iterator))
        except StopIteration:
            break
    return taken


def walk_again(iterator: Iterator[Any], count: int, whose: str) -> int:
    """Take items that were taken before, and say how many there still were; a long walk is told of in the log."""
    told = time.monotonic()
    for number in range(count):
        if next(iterator, _NOTHING) is _NOTHING:
            return number
        if time.monotonic() - told > _PATIENCE_S:
            told = time.monotonic()
            log.warning("resuming: the %s has no state_dict, %d of %d items taken again", whose, number + 1, count)
    return count
