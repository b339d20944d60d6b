"""A look into a loader: what one sample costs, what collating costs, and what handing over costs.

    dataset[i]     a few samples in the loader's own order, by one thread: waiting, computing, bytes that came from a
                   disk (`cost`)
    two threads    the same samples at once: what they wait more than one alone does holds the GIL
    collate_fn     on these samples
    handing over   the same loader, same workers, over samples that lie in memory: what is left is collating, shared
                   memory, pickling, queues

A loader keeps these to itself, so they are measured one by one, in a process of their own (`aside`): a cache that the
dataset fills, or a file that it opens, stays there. Whatever cannot be seen is left out and named in `trouble`; a
diagnosis then knows less, but is not wrong.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from stoker.measure.diagnosis.aside import aside
from stoker.measure.diagnosis.cost import Cost, crowding, timed
from stoker.measure.diagnosis.facts import Given, Inside, Pace, Sample
from stoker.measure.diagnosis.pace import pace_of
from stoker.measure.rebuild import close, rebuild
from stoker.measure.runs import Failure
from stoker.measure.statistics import mean, median

_MOST_SAMPLES = 32
_FEWEST_SAMPLES = 2
_TOGETHER_S = 0.15  # how long two threads load at once: several times the interpreter's switching interval
_WORTH_SHARING_S = 50e-6  # a sample that computes less is not asked whether it holds the GIL
_TIMEOUT_S = 120.0
_PLENTY = 1 << 20  # samples of the loader that only hands over: more than any pass takes


def look_inside(loader: Any, given: Given, seconds: float) -> Inside:
    """Look for about so long."""
    found = aside(lambda: _look(loader, given, seconds), _TIMEOUT_S)
    if isinstance(found, Failure):
        place = f" at {found.place}" if found.place else ""
        return Inside(trouble=f"{found.type}{place}: {found.message}")
    return found


def _look(loader: Any, given: Given, seconds: float) -> Inside:
    if given.dataset == "arrays":  # gathered with one indexing operation: there are no samples to look at
        return Inside()
    taken = _take_samples(loader, given, 0.35 * seconds)
    samples = [samples for samples, _ in taken]
    sample = _sample_of(loader, given, [cost for _, cost in taken], samples[-1])
    collate_s, fits = _collating(loader, given, samples, 0.2 * seconds)
    return Inside(sample, collate_s, _handing_over(loader, given, samples, 0.3 * seconds), fits)


def _take_samples(loader: Any, given: Given, seconds: float) -> list[tuple[Any, Cost]]:
    """A few samples, and what each took; the first opens files and fills caches, and is not counted."""
    calls = _calls(loader, given)
    taken: list[tuple[Any, Cost]] = []
    next(calls)()
    begun_at = time.perf_counter()
    for call in islice(calls, _MOST_SAMPLES):
        taken.append(timed(call))
        if len(taken) >= _FEWEST_SAMPLES and time.perf_counter() - begun_at > seconds:
            break
    return taken


def _calls(loader: Any, given: Given) -> Iterator[Callable[[], Any]]:
    """One call a sample, as the loader would make it."""
    if given.dataset == "iterable":
        items = iter(loader.dataset)
        while True:
            yield lambda: next(items)
    one = _one(loader, given)
    for key in _keys(loader):
        yield lambda key=key: one(key)  # type: ignore[misc]


def _one(loader: Any, given: Given) -> Callable[[Any], Any]:
    from stoker.sources.fetch import fetch_for, has_own_getitem

    fetch = fetch_for(loader.dataset, loader._auto_collation)
    if given.dataset == "awaited" and not has_own_getitem(loader.dataset):
        return lambda key: asyncio.run(fetch.one_async(key))
    return fetch.one


def _keys(loader: Any) -> Iterator[Any]:
    """The keys of an epoch, over again; of large batches only a few of each, spread over it."""
    while True:
        before = True
        for keys in loader._index_sampler if loader._auto_collation else ([key] for key in loader.sampler):
            before = False
            keys = list(keys)
            yield from keys[:: -(-len(keys) // _MOST_SAMPLES)]
        if before:
            raise ValueError("the sampler gave no index: is the dataset empty?")


def _sample_of(loader: Any, given: Given, costs: list[Cost], sample: Any) -> Sample:
    from stoker.loader.probe import sample_bytes

    # Other programs take time from samples by chance, from a quick one seldom but then much: so computing counts as
    # what it would take on the whole, not as what it took in these few samples.
    waiting_s = mean([cost.waiting_s for cost in costs])
    computing_s = mean([cost.computing_s for cost in costs]) * crowding()
    return Sample(
        count=len(costs),
        seconds=waiting_s + computing_s,
        waiting=waiting_s / max(waiting_s + computing_s, 1e-12),
        gil_held=_gil_held(loader, given, computing_s, waiting_s) if computing_s > _WORTH_SHARING_S else 0.0,
        median_s=median([cost.own_s for cost in costs]),
        longest_s=max(cost.own_s for cost in costs),
        size_bytes=sample_bytes(sample),
        read_bytes=mean([cost.read_bytes for cost in costs]),
    )


def _gil_held(loader: Any, given: Given, computing_s: float, waiting_s: float) -> float:
    """The share of computing that two threads cannot do at once; 0 where samples come from one iterator.

    As many threads load as it takes for two of them to compute at any time. A thread that wants the GIL waits, one that
    wants a core queues, so a busy machine does not look like a held GIL.
    """
    from stoker.loader.probe import threads_for_two

    if given.dataset == "iterable":
        return 0.0
    one = _one(loader, given)
    keys = list(islice(_keys(loader), max(1, min(_MOST_SAMPLES, round(_TOGETHER_S / (computing_s + waiting_s))))))
    count = threads_for_two(waiting_s / max(1e-12, computing_s + waiting_s))
    together = threading.Barrier(count)

    def load_together() -> None:
        together.wait()
        for key in keys:
            one(key)

    def load() -> Cost:
        return timed(load_together)[1]  # from before the meeting: who is let in last waits from its very first line on

    with ThreadPoolExecutor(count, "stoker-look") as threads:
        costs = [future.result() for future in [threads.submit(load) for _ in range(count)]]
    # The later of two short runs waits for all of the other, which waits for nothing.
    return max(
        min(1.0, max(0.0, cost.waiting_s - len(keys) * waiting_s) / max(1e-9, cost.computing_s + cost.queued_s))
        for cost in costs
    )


def _collating(loader: Any, given: Given, samples: list[Any], seconds: float) -> tuple[float | None, bool]:
    """What the collate_fn takes for a batch, and whether torch's default one would make the same."""
    if not loader._auto_collation:
        return None, False
    rows = loader.batch_size or len(next(iter(loader.batch_sampler)))
    batch = [samples[row % len(samples)] for row in range(rows)]
    took_s: list[float] = []
    begun_at = time.perf_counter()
    while len(took_s) < 2 or (time.perf_counter() - begun_at < seconds and len(took_s) < 100):
        asked_at = time.perf_counter()
        collated = loader.collate_fn(batch)
        took_s.append(time.perf_counter() - asked_at)
    return median(took_s), given.own_collate and _default_gives(batch, collated)


def _default_gives(batch: list[Any], collated: Any) -> bool:
    from torch.utils.data import default_collate

    from stoker.testing.difference import difference

    try:
        return difference(collated, default_collate(batch)) is None
    except Exception:  # samples of any kind, which torch may refuse in any way
        return False


def _handing_over(loader: Any, given: Given, samples: list[Any], seconds: float) -> float | None:
    """A step of the same loader over samples in memory."""
    if given.is_inline:
        return None
    from stoker.measure.diagnosis.canned import Canned, CannedItems

    length = _PLENTY if given.dataset == "iterable" else _length(loader.dataset)
    canned = CannedItems(samples, length) if given.dataset == "iterable" else Canned(samples, length)
    twin = rebuild(loader, dataset=canned)
    try:
        pace: Pace = pace_of(twin, given, seconds)
        return pace.step_s
    finally:
        close(twin)


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):  # a sampler knows it
        return _PLENTY
