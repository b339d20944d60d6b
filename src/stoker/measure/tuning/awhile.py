"""A trial of a fraction of a second: a loader iterated for a while, and what a whole epoch would take.

A trial sees the beginning of an epoch. What its first half took is believed as it is: starting workers, touching new
memory, filling what is prefetched. The rest of the epoch then goes at the pace of the second half.

    first half      start, cold batches         as measured
    second half     the pace                    × the batches that an epoch has left

An epoch that is shorter than a trial is repeated, whole epochs only, and needs no forecast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stoker.measure.trial import Trial

_LEAST_BATCHES = 4  # two for each half
_PATIENCE = 3  # times the usual length: then two batches are enough, and after as long again, one


@dataclass(frozen=True)
class ForAWhile:
    """Iterates a loader for about so many seconds, over again if its epoch is shorter."""

    loader: Iterable[Any]
    seconds: float
    clock: Callable[[], float] = time.perf_counter

    def __iter__(self) -> Iterator[Any]:
        return _Pass(self)


class _Pass(Iterator[Any]):
    """A class and no generator, so that asking for an iterator starts the loader: that time is measured."""

    def __init__(self, awhile: ForAWhile) -> None:
        self._awhile = awhile
        self._batches_in_epoch: int | None = None
        self._taken = 0
        self._begun_at = awhile.clock()
        self._batches = iter(awhile.loader)

    def __next__(self) -> Any:
        if self._batches_in_epoch is None and self._is_enough():
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            batch = self._first_of_next_epoch()
        self._taken += 1
        return batch

    def _first_of_next_epoch(self) -> Any:
        self._batches_in_epoch = self._batches_in_epoch or self._taken
        if self._is_enough() or not self._taken:
            raise StopIteration
        self._batches = iter(self._awhile.loader)
        return next(self._batches)

    def _is_enough(self) -> bool:
        elapsed, seconds = self._awhile.clock() - self._begun_at, self._awhile.seconds
        needed = _LEAST_BATCHES if elapsed < _PATIENCE * seconds else 2 if elapsed < 2 * _PATIENCE * seconds else 1
        return elapsed >= seconds and self._taken >= needed


def epoch_s(trial: Trial, batches: int | None) -> float:
    """What an epoch of so many batches would take; None, and the pace alone counts: a batch's time."""
    steps = [wait + model for wait, model in zip(trial.waits_s, trial.models_s, strict=True)]
    half = len(steps) // 2
    pace_s = sum(steps[half:]) / (len(steps) - half)
    if batches is None:
        return pace_s
    if len(steps) >= batches:
        return trial.seconds * batches / len(steps)
    return trial.start_s + sum(steps[:half]) + pace_s * (batches - half)
