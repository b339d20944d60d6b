"""Short passes over a loader, and what they say of a long one.

A pass is cut when its time is up. What an epoch would take follows from two numbers: the time to the first batch, and
the mean time of a later step. Workers that make a batch each hand over in bursts, and so do lanes that wait together; a
mean over just any number of steps would flatter them. So steps are counted from one burst's end to another's.

    arrivals   │││││        │││││        │││││      burst of 5
                   └── 10 steps ─────────────┘

An epoch that is shorter than the time is passed through again and again, and its real duration counts. Of a loader that
keeps its workers the first pass is left out, since only the first of a training is like it: it is made short
(`ground`), so that there is a second one, whose start is like that of every later epoch. Where there was none, the
start is not known, and is said not to be.

Two times bound a pass: `seconds` is how long it should be, `limit_s` is when it is over even if it has no batch yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stoker.bench.process_tree import ProcessTree
from stoker.bench.statistics import mean, median
from stoker.bench.trial import Clock, Trial, measure
from stoker.diagnosis.bound import Alarm, OutOfTime
from stoker.diagnosis.cost import timed
from stoker.diagnosis.facts import GivenLoader, Pace

_MOST_EPOCHS = 200
_PATIENCE = 4.0  # a pass may take so many times its time, to have enough steps: a guess


WHOLE, ELSEWHERE, SHORT = "whole", "elsewhere", "short"
"""What a loader's first pass is: an epoch, the rest of one, or the few batches before the pass that is measured."""


class NoBatch(ValueError):
    """A loader that is empty."""


class TooSlow(ValueError):
    """A loader that gave no batch in its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the loader gave no batch within {seconds:.1f} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Bounds:
    """How long passes may be, and what their first one is."""

    seconds: float
    limit_s: float | None = None  # when to stop waiting, whatever there is; None: never
    most: int | None = None  # batches in all: not more than there are samples that nobody has read yet
    first: str = WHOLE


@dataclass(frozen=True)
class _Timed:
    trial: Trial
    whole: bool  # the epoch was not cut
    broken_off_s: float = 0.0

    @property
    def first_s(self) -> float:
        """The time to the first batch; of one that did not come in time, how long it was waited for; 0: empty."""
        return self.trial.first_batch_s if self.trial.batches else self.broken_off_s

    @property
    def seconds(self) -> float:
        """The pass without letting go of the workers of one that was cut."""
        return self.trial.seconds - (0.0 if self.whole else self.trial.end_s)


def pace_of(
    loader: Iterable[Any],
    given: GivenLoader,
    bounds: Bounds | float,
    model: Callable[[Any], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Pace:
    """Pass over the loader for about so long; NoBatch if it gives none, TooSlow if none in time."""
    if not isinstance(bounds, Bounds):
        bounds = Bounds(bounds)
    tree = ProcessTree(os.getpid())
    before_s = tree.cpu_s()
    with Alarm(bounds.limit_s) as alarm:
        passes, cost = timed(lambda: list(_passes(loader, given, bounds, model, clock, alarm)))
    busy_cores = (tree.cpu_s() - before_s + cost.queued_s) / max(1e-9, cost.seconds)
    if not any(one.trial.batches for one in passes):
        if alarm.is_up:
            raise TooSlow(cost.seconds)
        raise NoBatch("the loader gave no batch at all: is the dataset empty?")
    return _summed(passes, given, bounds, busy_cores, cost.seconds)


def _passes(
    loader: Iterable[Any],
    given: GivenLoader,
    bounds: Bounds,
    model: Callable[[Any], object] | None,
    clock: Clock,
    alarm: Alarm,
) -> Iterator[_Timed]:
    begun_at, left, what = clock(), bounds.most, bounds.first
    for _ in range(_MOST_EPOCHS):
        left_s = bounds.seconds - (clock() - begun_at)
        cut = _Cut(loader, max(left_s, 0.0), 2 * given.burst + 2, clock, alarm, left)
        trial = measure(cut, model=model, clock=clock)
        yield _Timed(trial, cut.ended and what == WHOLE, cut.broken_off_s)
        left = None if left is None else left - trial.batches
        if what == SHORT:
            begun_at = clock()  # it was there to have a second one, which has the time
        elif clock() - begun_at >= bounds.seconds:
            return
        if not cut.ended or alarm.is_up or (left is not None and left < 1):
            return
        what = WHOLE


class _Cut:
    """A loader that ends when its time is up and it has given enough batches, two at least."""

    def __init__(
        self, loader: Iterable[Any], seconds: float, least: int, clock: Clock, alarm: Alarm, most: int | None
    ) -> None:
        self._loader, self._seconds, self._least, self._clock = loader, seconds, least, clock
        self._alarm, self._most = alarm, most
        self.ended = False  # by itself
        self.broken_off_s = 0.0  # how long the batch was waited for that did not come in time

    def __iter__(self) -> Iterator[Any]:
        begun_at = None  # when the first batch was there: starting is not what the time is for
        batches, number = None, 0
        alarm, clock = self._alarm, self._clock
        while True:
            asked_at = clock()
            alarm.waiting = True
            try:
                if batches is None:
                    batches = iter(self._loader)
                batch = next(batches)
            except StopIteration:
                self.ended = True
                return
            except OutOfTime:
                self.broken_off_s = clock() - asked_at
                return
            finally:
                alarm.waiting = False
            number += 1
            begun_at = clock() if begun_at is None else begun_at
            yield batch
            if self._is_enough(number, clock() - begun_at):
                return

    def _is_enough(self, number: int, taken_s: float) -> bool:
        if self._alarm.is_up or (self._most is not None and number >= self._most):
            return True
        enough = number >= self._least or taken_s >= _PATIENCE * self._seconds
        return number > 1 and taken_s >= self._seconds and enough


def _summed(passes: list[_Timed], given: GivenLoader, bounds: Bounds, busy_cores: float, took_s: float) -> Pace:
    again = passes[1:] if given.keeps_workers else passes
    firsts = [one.first_s for one in again if one.first_s > 0.0]
    passes = [one for one in passes if one.trial.batches]
    usual = passes[1:] if given.keeps_workers and len(passes) > 1 else passes
    full = [one for one in usual if one.whole]
    batches = sum(one.trial.batches for one in usual)
    longest = max(usual, key=lambda one: one.trial.batches)
    step_s = _with_broken_off(step_of(longest.trial, given.burst), longest)
    knows_start = bool(firsts)
    rounds = rounds_of(longest.trial, given.burst)
    return Pace(
        first_s=mean(firsts) if knows_start else step_s,
        step_s=step_s,
        model_s=mean([model_s for one in usual for model_s in one.trial.models_s]),
        rows=given.batch_size or sum(one.trial.samples for one in usual) / batches,
        batches=batches,
        epoch_s=mean([one.seconds for one in full]) if full and knows_start else None,
        epoch_batches=full[0].trial.batches if full and knows_start else 0,
        busy_cores=busy_cores,
        start_known=knows_start,
        round=given.burst,
        middle_s=median(rounds) if rounds else 0.0,
        longest_s=max([*rounds, longest.broken_off_s]),
        took_s=took_s,
    )


def _with_broken_off(step_s: float, one: _Timed) -> float:
    """A batch that was waited for longer than any, in vain, is a step too: it takes that, at least."""
    steps = one.trial.batches - 1
    if one.broken_off_s <= step_s or steps < 1:
        return max(step_s, one.broken_off_s)
    return (steps * step_s + one.broken_off_s) / (steps + 1)


def rounds_of(trial: Trial, burst: int) -> list[float]:
    """What each round of as many batches as may arrive at once took, without the first."""
    ends = list(_arrivals(trial))[burst - 1 :: burst]
    return [later - earlier for earlier, later in pairwise(ends)]


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
