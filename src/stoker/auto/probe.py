"""What loading one sample of a dataset is like: how long, waiting or computing, holding the GIL or not, how large.

A few samples, spread over the dataset, are loaded twice: by one thread, then by several at once, as many as it takes
for two of them to compute at any time (two, where samples do not wait). What then takes longer was spent holding the
GIL (or the machine has one core). The generators that a sample may draw from are put back as they were, so that probing
does not change a seeded run.
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stoker.nested import size_of

_BUDGET_S = 0.5  # for all of it. A guess: enough for some slow samples, short enough not to be noticed at a start
_ALONE_S = 0.1  # of that, by one thread
_MOST_SAMPLES = 32
_MOST_AT_ONCE = 64  # samples, of all threads together
_MOST_THREADS = 16  # so samples that wait for more than 7/8 of their time may look freer of the GIL than they are
_PICKLE_LIMIT_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Probe:
    """Measured on a few samples of one dataset."""

    samples: int
    seconds: float  # for one sample, by one thread
    waiting: float  # share of that time in which the thread did not compute
    gil_held: float  # share of the computing that a second thread could not overlap with
    sample_bytes: int
    length: int

    @property
    def epoch_s(self) -> float:
        """What a whole epoch would take, loaded by one thread."""
        return self.seconds * self.length


def probe(dataset: Any, clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Load a few samples and measure; stops when its time is up, with one sample if that has taken it all."""
    length, deadline = len(dataset), clock() + _BUDGET_S
    with _generators_kept():
        first, alone = _first(dataset, clock)
        if clock() + alone.each_s <= deadline:  # the first opens files, fills caches, imports: not what others cost
            alone = _alone(dataset, length, clock, min(deadline, clock() + _ALONE_S))
        held = _held(dataset, alone, clock, deadline)
    return Probe(len(alone.indices), alone.each_s, alone.waiting, held, sample_bytes(first), length)


@dataclass(frozen=True)
class _Alone:
    """What loading some samples took, by one thread."""

    indices: list[int]
    seconds: float
    busy_s: float
    waited: bool  # the thread gave its core away, at every other sample at least

    @property
    def each_s(self) -> float:
        return self.seconds / len(self.indices)

    @property
    def waiting(self) -> float:
        # A thread that lost its core to others also does not compute; one that waits has given its core away itself.
        if not self.waited or self.seconds <= 0:
            return 0.0
        return min(1.0, max(0.0, 1.0 - self.busy_s / self.seconds))


def _first(dataset: Any, clock: Callable[[], float]) -> tuple[Any, _Alone]:
    begin, begin_busy, switches = clock(), time.thread_time(), _voluntary_switches()
    sample = dataset[0]
    seconds, busy_s = clock() - begin, time.thread_time() - begin_busy
    return sample, _Alone([0], seconds, busy_s, _voluntary_switches() > switches)


def _alone(dataset: Any, length: int, clock: Callable[[], float], deadline: float) -> _Alone:
    """Load samples, one at least, until the time is up or there are enough."""
    step = max(1, length // _MOST_SAMPLES)
    picked: list[int] = []
    begin, begin_busy, switches = clock(), time.thread_time(), _voluntary_switches()
    for index in range(0, length, step)[:_MOST_SAMPLES]:
        dataset[index]
        picked.append(index)
        now = clock()
        if now + (now - begin) / len(picked) > deadline:  # one more would be late
            break
    waited = _voluntary_switches() - switches >= len(picked) / 2
    return _Alone(picked, clock() - begin, time.thread_time() - begin_busy, waited)


def _held(dataset: Any, alone: _Alone, clock: Callable[[], float], deadline: float) -> float:
    """Which share of the computing holds the GIL; all of it, where there is no time to find out."""
    threads = threads_for_two(alone.waiting)
    most = int(max(0.0, deadline - clock()) / max(2 * alone.each_s, 1e-9))  # with the GIL held it takes twice as long
    picked = alone.indices[: min(most, _MOST_AT_ONCE // threads)]
    if not picked:
        return 1.0
    together = _at_once(threads, dataset, picked, clock)
    # Threads that overlap fully take as long as one for the same number of samples each; with the GIL held, twice.
    return min(2.0, max(1.0, together / max(len(picked) * alone.each_s, 1e-9))) - 1.0


def _voluntary_switches() -> int:
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


def threads_for_two(waiting: float) -> int:
    """How many threads there must be for two of them to compute at any time."""
    return min(_MOST_THREADS, max(2, round(2 / max(1e-9, 1 - waiting))))


def _at_once(count: int, dataset: Any, indices: list[int], clock: Callable[[], float]) -> float:
    def load() -> None:
        for index in indices:
            dataset[index]

    threads = [threading.Thread(target=load, name=f"stoker-probe-{number}", daemon=True) for number in range(count)]
    begin = clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clock() - begin


def sample_bytes(sample: Any) -> int:
    """The bytes of a sample's tensors and arrays; anything else counts as a number."""
    return size_of(sample, other_bytes=8)


def shipping_bytes(dataset: Any) -> int | None:
    """How large the dataset is when pickled for a worker; None when it cannot be pickled."""
    counter = _Counter()
    try:
        pickle.Pickler(counter, protocol=5).dump(dataset)
    except _TooLarge:
        return _PICKLE_LIMIT_BYTES
    except Exception:  # pickling runs user code, which may raise anything
        return None
    return counter.size


class _TooLarge(Exception):
    pass


class _Counter:
    size = 0

    def write(self, data: Any) -> None:
        self.size += len(data)
        if self.size > _PICKLE_LIMIT_BYTES:
            raise _TooLarge


@contextmanager
def _generators_kept() -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
