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

_BUDGET_S = 0.3  # a guess: long enough for a few slow samples, short enough not to be noticed at the start of a run
_MOST_SAMPLES = 32
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
    """Load a few samples and measure."""
    length = len(dataset)
    with _generators_kept():
        dataset[0]  # opens files, fills caches, imports: not what a sample usually costs
        switches = _voluntary_switches()
        picked, seconds, busy = _alone(dataset, length, clock)
        waited = _voluntary_switches() - switches >= len(picked) / 2
        # A thread that lost its core to others also does not compute; one that waits has given its core away itself.
        waiting = min(1.0, max(0.0, 1.0 - busy / seconds)) if seconds > 0 and waited else 0.0
        together = _at_once(threads_for_two(waiting), dataset, picked, clock)
        size = sample_bytes(dataset[0])
    # Threads that overlap fully take as long as one for the same number of samples each; with the GIL held, twice.
    overlap = min(2.0, max(1.0, together / max(seconds, 1e-9)))
    return Probe(len(picked), seconds / len(picked), waiting, overlap - 1.0, size, length)


def _alone(dataset: Any, length: int, clock: Callable[[], float]) -> tuple[list[int], float, float]:
    """Load as many samples as the budget takes; gives their indices, the seconds and the computing seconds."""
    step = max(1, length // _MOST_SAMPLES)
    picked: list[int] = []
    begin, begin_busy = clock(), time.thread_time()
    for index in range(0, length, step)[:_MOST_SAMPLES]:
        dataset[index]
        picked.append(index)
        if clock() - begin > _BUDGET_S:
            break
    return picked, clock() - begin, time.thread_time() - begin_busy


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
    if isinstance(sample, torch.Tensor):
        return sample.numel() * sample.element_size()
    if isinstance(sample, np.ndarray):
        return sample.nbytes
    if isinstance(sample, dict):
        return sum(map(sample_bytes, sample.values()))
    if isinstance(sample, tuple | list):
        return sum(map(sample_bytes, sample))
    return 8


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
