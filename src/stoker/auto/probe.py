"""What loading one sample of a dataset is like: how long, waiting or computing, holding the GIL or not, how large;
what collating takes; and whether samples draw from the global generators.

A few samples, spread over the dataset, are loaded twice: by one thread, then by several at once, as many as it takes
for two of them to compute at any time (two, where samples do not wait). What then takes longer was spent holding the
GIL (or the machine has one core). The generators that a sample may draw from are put back as they were, so that probing
does not change a seeded run. Where a whole batch of such samples would be there in a few milliseconds, half of one is
all the time there is: whatever else could be found out would take longer than it could save.
"""

from __future__ import annotations

import pickle
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.nested import size_of
from stoker.sampling.generators import Generators

_BUDGET_S = 0.5  # for all of it. A guess: enough for some slow samples, short enough not to be noticed at a start
_ALONE_S = 0.1  # of that, by one thread
_MOST_SAMPLES = 32
_MOST_AT_ONCE = 64  # samples, of all threads together
_MOST_THREADS = 16  # so samples that wait for more than 7/8 of their time may look freer of the GIL than they are
_PICKLE_LIMIT_BYTES = 64 * 2**20
_CHEAP_BATCH_S, _CHEAP_S = 0.01, 0.0005
_COLLATED = 4
COPIED_PER_S = 4e9  # bytes into a batch; between memory that was never touched (1) and memory that is warm (6)


@dataclass(frozen=True)
class Probe:
    """Measured on a few samples of one dataset."""

    samples: int
    seconds: float  # for one sample, by one thread
    waiting: float  # share of that time in which the thread did not compute
    gil_held: float  # share of the computing that a second thread could not overlap with
    sample_bytes: int
    length: int
    collate_s: float = 0.0  # for one sample's part of a batch, by a collate_fn of the user's own
    draws: bool = False  # samples draw from Python's, NumPy's or torch's global generators

    @property
    def epoch_s(self) -> float:
        """What a whole epoch would take, loaded by one thread."""
        return (self.seconds + self.copy_s) * self.length

    @property
    def copy_s(self) -> float:
        """What a sample takes until it is in its batch, once it is loaded."""
        return self.collate_s or self.sample_bytes / COPIED_PER_S


def probe(
    dataset: Any,
    clock: Callable[[], float] = time.perf_counter,
    collate: Callable[[list[Any]], Any] | None = None,
    rows: int | None = None,
) -> Probe:
    """Load a few samples and measure; stops when its time is up, with one sample if that has taken it all.

    `collate` is a collate_fn of the user's own; `rows` those of a batch, where a cheap one is not worth a further look.
    """
    length, deadline = len(dataset), clock() + _BUDGET_S
    found = Generators.now()
    try:
        first, alone = _first(dataset, clock)
        size, held = sample_bytes(first), 1.0
        collate_s = _collating(collate, first, clock) if collate is not None else 0.0
        whole_s = alone.each_s + (collate_s or size / COPIED_PER_S)
        is_cheap = rows is not None and whole_s * rows < _CHEAP_BATCH_S
        if clock() + alone.each_s <= deadline:  # the first opens files, fills caches, imports: others are cheaper
            alone = _alone(dataset, clock, min(deadline, clock() + (_CHEAP_S if is_cheap else _ALONE_S))) or alone
        if not is_cheap:
            held = _held(dataset, alone, clock, deadline)
        draws = found.have_moved()
    finally:
        found.restore()
    return Probe(len(alone.indices), alone.each_s, alone.waiting, held, size, length, collate_s, draws)


def _collating(collate: Callable[[list[Any]], Any], sample: Any, clock: Callable[[], float]) -> float:
    """What a sample costs in a batch: once for the first call's own sake, once to see."""
    seconds = 0.0
    for _ in range(2):
        begin = clock()
        collate([sample] * _COLLATED)
        seconds = clock() - begin
    return seconds / _COLLATED


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
    """The first sample, or the first that can be loaded of a few: what is wrong with others the user will see."""
    errors: list[Exception] = []
    length = len(dataset)
    for index in sorted({0, min(1, length - 1), length // 3, length - 1}):
        begin, begin_busy, switches = clock(), time.thread_time(), _voluntary_switches()
        try:
            sample = dataset[index]
        except Exception as error:
            errors.append(error)
            continue
        seconds, busy_s = clock() - begin, time.thread_time() - begin_busy
        return sample, _Alone([index], seconds, busy_s, _voluntary_switches() > switches)
    raise errors[0]


def _alone(dataset: Any, clock: Callable[[], float], deadline: float) -> _Alone | None:
    """Load samples until the time is up or there are enough; None if no such sample can be loaded."""
    length = len(dataset)
    step = max(1, length // _MOST_SAMPLES)
    picked: list[int] = []
    begin, begin_busy, switches = clock(), time.thread_time(), _voluntary_switches()
    for index in range(0, length, step)[:_MOST_SAMPLES]:
        try:
            dataset[index]
        except Exception:
            continue
        picked.append(index)
        now = clock()
        if now + (now - begin) / len(picked) > deadline:  # one more would be late
            break
    if not picked:
        return None
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
