"""A trial of a fraction of a second: a loader iterated for a while, and what a whole epoch would take.

A trial sees the beginning of an epoch. What its first part took is believed as it is: starting workers, touching new
memory, filling what is loaded ahead. The rest of the epoch then goes at the pace of the second part.

    first part      start, cold batches         as measured
    second part     the pace                    × the batches that an epoch has left

Where to cut matters. A crew that loads W batches at the same time may finish them at the same time too: nothing for
long, then W at once, and so on. A pace taken from the middle of such a burst would be a fancy. So the cut comes after
a whole number of W batches: those behind it were begun when those before it had been taken, and the wait for them is
counted. The pace is then too slow, if anything. For the same reason a trial takes 2 W batches at least.

An epoch that is shorter than a trial is repeated, whole epochs only, and needs no forecast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stoker.bench.trial import Trial

_LEAST_BATCHES = 4  # two for each part
_PATIENCE = 4  # times the usual length: then half of it is enough, and after as long again, one batch


@dataclass(frozen=True)
class ForAWhile:
    """Iterates a loader for about so many seconds, over again if its epoch is shorter."""

    loader: Iterable[Any]
    seconds: float
    ahead: int = 0  # batches that are under way at the same time
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
        needed = max(_LEAST_BATCHES, 2 * self._awhile.ahead)
        if elapsed >= _PATIENCE * seconds:
            needed = needed // 2 if elapsed < 2 * _PATIENCE * seconds else 1
        return elapsed >= seconds and self._taken >= needed


def epoch_s(trial: Trial, batches: int | None, ahead: int = 0) -> float:
    """What an epoch of so many batches would take; None, and the pace alone counts: a batch's time."""
    steps = [wait + model for wait, model in zip(trial.waits_s, trial.models_s, strict=True)]
    if batches is not None and len(steps) >= batches:
        return trial.seconds * batches / len(steps)
    cut = _cut(len(steps), max(1, ahead))
    pace_s = sum(steps[cut:]) / (len(steps) - cut)
    return pace_s if batches is None else trial.start_s + sum(steps[:cut]) + pace_s * (batches - cut)


def _cut(steps: int, ahead: int) -> int:
    """After a whole number of what is loaded ahead, half of the steps at most; nowhere, if that is too few."""
    return max(steps // 2 // ahead, 1) * ahead if steps > ahead else 0
