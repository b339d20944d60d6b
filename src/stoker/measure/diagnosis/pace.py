"""Short passes over a loader, and what they say of a long one.

A pass is cut when its time is up. What an epoch would take follows from two numbers: the time to the first batch, and
the mean time of a later step. Workers that make a batch each hand over in bursts, and so do lanes that wait together; a
mean over just any number of steps would flatter them. So steps are counted from one burst's end to another's.

    arrivals   │││││        │││││        │││││      burst of 5
                   └── 10 steps ─────────────┘

An epoch that is shorter than the time is passed through again and again, and its real duration counts. Of a loader that
keeps its workers the first epoch is left out, since only the first of a training is like it; where one is so long that
no second was timed, starting is taken to cost nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stoker.measure.diagnosis.cost import timed
from stoker.measure.diagnosis.facts import Given, Pace
from stoker.measure.statistics import mean
from stoker.measure.trial import Clock, Trial, measure
from stoker.measure.watch import Watch

_MOST_EPOCHS = 200
_PATIENCE = 4.0  # a pass may take so many times its time, to have enough steps: a guess


class NoBatch(ValueError):
    """A loader that is empty."""


@dataclass(frozen=True)
class _Timed:
    trial: Trial
    whole: bool  # the epoch was not cut

    @property
    def seconds(self) -> float:
        """The pass without letting go of the workers of one that was cut."""
        return self.trial.seconds - (0.0 if self.whole else self.trial.end_s)


def pace_of(
    loader: Iterable[Any],
    given: Given,
    seconds: float,
    model: Callable[[Any], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Pace:
    """Pass over the loader for about so long; NoBatch if it gives none."""
    watch = Watch(os.getpid())
    before_s = watch.cpu_s()
    passes, cost = timed(lambda: list(_passes(loader, given, seconds, model, clock)))
    busy_cores = (watch.cpu_s() - before_s + cost.queued_s) / max(1e-9, cost.seconds)
    if not passes[0].trial.batches:
        raise NoBatch("the loader gave no batch at all: is the dataset empty?")
    return _summed(passes, given, busy_cores)


def _passes(
    loader: Iterable[Any], given: Given, seconds: float, model: Callable[[Any], object] | None, clock: Clock
) -> Iterator[_Timed]:
    begun_at = clock()
    for _ in range(_MOST_EPOCHS):
        left_s = seconds - (clock() - begun_at)
        cut = _Cut(loader, max(left_s, 0.0), 2 * given.burst + 2, clock)
        yield _Timed(measure(cut, model=model, clock=clock), cut.whole)
        if not cut.whole or clock() - begun_at >= seconds:
            return


class _Cut:
    """A loader that ends when its time is up and it has given enough batches, two at least."""

    def __init__(self, loader: Iterable[Any], seconds: float, least: int, clock: Clock) -> None:
        self._loader, self._seconds, self._least, self._clock = loader, seconds, least, clock
        self.whole = False

    def __iter__(self) -> Iterator[Any]:
        begun_at = None  # when the first batch was there: starting is not what the time is for
        for number, batch in enumerate(self._loader, start=1):
            begun_at = self._clock() if begun_at is None else begun_at
            yield batch
            taken_s = self._clock() - begun_at
            enough = number >= self._least or taken_s >= _PATIENCE * self._seconds
            if number > 1 and taken_s >= self._seconds and enough:
                return
        self.whole = True


def _summed(passes: list[_Timed], given: Given, busy_cores: float) -> Pace:
    usual = passes[1:] if given.keeps_workers and len(passes) > 1 else passes
    full = [one for one in usual if one.whole]
    batches = sum(one.trial.batches for one in usual)
    longest = max(usual, key=lambda one: one.trial.batches)
    step_s = step_of(longest.trial, given.burst)
    first_s = mean([one.trial.first_batch_s for one in usual if one.trial.batches])
    knows_start = not given.keeps_workers or len(passes) > 1
    return Pace(
        first_s=first_s if knows_start else step_s,
        step_s=step_s,
        model_s=mean([model_s for one in usual for model_s in one.trial.models_s]),
        rows=given.batch_size or sum(one.trial.samples for one in usual) / batches,
        batches=batches,
        epoch_s=mean([one.seconds for one in full]) if full and knows_start else None,
        epoch_batches=full[0].trial.batches if full and knows_start else 0,
        busy_cores=busy_cores,
    )


def step_of(trial: Trial, burst: int) -> float:
    """The mean time of a later step, counted from the end of a burst to the end of another."""
    arrivals = list(_arrivals(trial))
    if len(arrivals) == 1:
        return trial.waits_s[0] + trial.models_s[0]
    if len(arrivals) < 2 * burst:  # too few for two bursts: what is there
        burst = 1
    steps = (len(arrivals) - burst) // burst * burst
    last = burst - 1 + steps
    return (arrivals[last] - arrivals[burst - 1]) / steps


def _arrivals(trial: Trial) -> Iterator[float]:
    now_s = trial.start_s
    for wait_s, model_s in zip(trial.waits_s, trial.models_s, strict=True):
        now_s += wait_s
        yield now_s
        now_s += model_s
