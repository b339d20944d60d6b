"""A look into a loader: what one sample costs, what drawing, collating and handing over cost.

    sampler        the indices of some batches: what drawing them takes, before any sample is asked for
    dataset[i]     samples in the loader's own order, by one thread: waiting, computing, bytes that came from a disk
                   (`cost`); as many as there is time for, since slow ones may be rare
    again          the first of them once more: who is much quicker now was remembered by somebody
    two threads    the same samples at once: what they wait more than one alone does holds the GIL
    streams        of an IterableDataset: whether two workers give the same samples, or only one gives any (`streams`)
    collate_fn     on these samples
    handing over   the same loader, same workers, over samples that lie in memory and indices that cost nothing: what
                   is left is collating, shared memory, pickling, queues

A loader keeps these to itself, so they are measured one by one, in a process of their own (`aside`): a cache that the
dataset fills, or a file that it opens, stays there. What was seen is noted as it goes along, so that a look that takes
too long still gives its beginning. Whatever cannot be seen is left out and named in `trouble`; a diagnosis then knows
less, but is not wrong.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from stoker.bench.blame import trouble_of
from stoker.bench.rebuild import close, rebuild
from stoker.bench.runs import Trouble
from stoker.bench.statistics import mean, median
from stoker.diagnosis.aside import aside
from stoker.diagnosis.bound import Alarm, OutOfTime
from stoker.diagnosis.cost import Cost, crowding, timed
from stoker.diagnosis.facts import GivenLoader, Inside, Pace, Sample, spread_of
from stoker.diagnosis.pace import Bounds, pace_of

_MOST_SAMPLES = 1000
_KEPT_SAMPLES = 32
_TOGETHER_S = 0.15  # how long two threads load at once: several times the interpreter's switching interval
_MOST_THREADS = 16  # that may load at once
_WORTH_SHARING_S = 50e-6  # a sample that computes less is not asked whether it holds the GIL
_PATIENCE = 2.0  # the look is ended after so many times its time
_PLENTY = 1 << 40  # samples of the loader that only hands over: more than any pass takes
_GRACE_S = 1.0
_OVER = object()  # instead of a sample: there are no more

Keep = Callable[[Inside], None]


@dataclass
class _View:
    """What is looked at."""

    loader: Any
    given: GivenLoader
    seconds: float
    drawn: list[Any]  # the indices of some batches
    samples: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int | None:
        """Samples of a batch; None where samples are not batched."""
        return (self.loader.batch_size or len(list(self.drawn[0]))) if self.loader._auto_collation else None


def look_inside(loader: Any, given: GivenLoader, seconds: float, limit_s: float | None = None) -> Inside:
    """Look for about so long, and not longer than the limit."""
    limit_s = limit_s if limit_s is not None else max(10.0, _PATIENCE * seconds)
    found = aside(lambda send: _look_until(loader, given, seconds, limit_s, send), limit_s + _GRACE_S)
    if isinstance(found, Trouble):
        return Inside(trouble=str(found))
    return found


def _look_until(loader: Any, given: GivenLoader, seconds: float, limit_s: float, send: Keep) -> Inside:
    """Look, and be interrupted rather than killed: who is killed does not let go of a lock that others need."""
    kept = [Inside(trouble=f"TooLong: not finished after {limit_s:.3g} s")]

    def keep(found: Inside) -> None:
        kept[0] = found
        send(found)

    with Alarm(limit_s) as alarm:
        alarm.waiting = True
        try:
            return _look(loader, given, seconds, keep)
        except OutOfTime:
            return kept[0]
        except Exception as error:  # the user's dataset, which may raise anything
            return replace(kept[0], trouble=str(trouble_of(error)))
        finally:
            alarm.waiting = False


def _look(loader: Any, given: GivenLoader, seconds: float, keep: Keep) -> Inside:
    if given.dataset == "arrays":  # gathered with one indexing operation: there are no samples to look at
        return Inside()
    drawn_s, order_s, drawn = _drawing(loader, given, 0.15 * seconds)
    seen = Inside(drawn_s=drawn_s, order_s=order_s)
    keep(seen)
    view = _View(loader, given, seconds, drawn)
    costs = _take_samples(view, 0.35 * seconds)
    seen = replace(seen, sample=_sample_of(costs, view.samples[-1]))
    keep(seen)
    for stage in (_collating, _handing_over, _again, _sharing, _streams):
        try:
            seen = stage(view, seen)
        except Exception as error:  # the user's collate_fn, say; what was seen before stays
            seen = replace(seen, trouble=str(trouble_of(error)))
        keep(seen)
    return seen


def _drawing(loader: Any, given: GivenLoader, seconds: float) -> tuple[float, float, list[Any]]:
    """Seconds to draw a batch's indices, and the first of an epoch; and the indices of the batches drawn."""
    if given.dataset == "iterable":
        return 0.0, 0.0, []
    begun_at = time.perf_counter()
    order = iter(loader._index_sampler)
    drawn = list(islice(order, 1))
    first_s = time.perf_counter() - begun_at
    if not drawn:
        raise ValueError("the sampler gave no index: is the dataset empty?")
    keys = 0
    begun_at = time.perf_counter()
    for batch in order:
        drawn.append(batch)
        keys += min(_KEPT_SAMPLES, len(batch)) if loader._auto_collation else 1
        if keys > _MOST_SAMPLES or time.perf_counter() - begun_at > seconds:
            break
    drawn_s = (time.perf_counter() - begun_at) / (len(drawn) - 1) if len(drawn) > 1 else first_s
    return drawn_s, max(0.0, first_s - drawn_s), drawn


def _take_samples(view: _View, seconds: float) -> list[Cost]:
    """What samples cost, and a few of them kept; the first opens files and fills caches, and is not counted."""
    costs: list[Cost] = []
    begun_at = time.perf_counter()
    for number, call in enumerate(islice(_calls(view), _MOST_SAMPLES)):
        samples, cost = timed(call)
        if samples is _OVER:
            break
        if number == 1:
            costs.clear()
            view.samples.clear()
        costs.append(cost.divided(len(samples)))
        view.samples += samples[: _KEPT_SAMPLES - len(view.samples)]
        if time.perf_counter() - begun_at > seconds:
            break
    if not costs:
        raise ValueError("the dataset gave no sample: is it empty?")
    return costs


def _calls(view: _View) -> Iterator[Callable[[], Any]]:
    """The calls of the dataset that a loader would make, each of which gives a list of samples, mostly of one."""
    dataset = view.loader.dataset
    if view.given.dataset == "iterable":
        items = iter(dataset)
        while True:
            yield lambda: [sample] if (sample := next(items, _OVER)) is not _OVER else _OVER
    if view.loader._auto_collation and getattr(dataset, "__getitems__", None):
        for batch in view.drawn:
            yield lambda batch=batch: list(dataset.__getitems__(list(batch)))  # type: ignore[misc]
        return
    one = _one(view.loader, view.given)
    for key in _keys(view):
        yield lambda key=key: [one(key)]  # type: ignore[misc]


def _one(loader: Any, given: GivenLoader) -> Callable[[Any], Any]:
    from stoker.sources.fetch import fetch_for, has_own_getitem

    fetch = fetch_for(loader.dataset, loader._auto_collation)
    if given.dataset == "awaited" and not has_own_getitem(loader.dataset):
        return lambda key: asyncio.run(fetch.one_async(key))
    return fetch.one


def _keys(view: _View) -> Iterator[Any]:
    """The keys of the batches that were drawn; of large ones only some, other places in every batch."""
    for number, batch in enumerate(view.drawn):
        keys = list(batch) if view.loader._auto_collation else [batch]
        stride = max(1, -(-len(keys) // _KEPT_SAMPLES))
        yield from keys[number % stride :: stride]


def _sample_of(costs: list[Cost], sample: Any) -> Sample:
    from stoker.auto.probe import sample_bytes

    # Other programs take time from samples by chance, from a quick one seldom but then much: so computing counts as
    # what it would take on the whole, not as what it took in these few samples.
    waiting_s = mean([cost.waiting_s for cost in costs])
    computing_s = mean([cost.computing_s for cost in costs]) * crowding()
    spread = spread_of([cost.own_s for cost in costs])
    return Sample(
        seconds=waiting_s + computing_s,
        waiting=waiting_s / max(waiting_s + computing_s, 1e-12),
        gil_held=0.0,
        size_bytes=sample_bytes(sample),
        read_bytes=mean([cost.read_bytes for cost in costs]),
        once_s=spread["median_s"],
        **spread,
    )


def _again(view: _View, seen: Inside) -> Inside:
    """The first samples once more."""
    sample = seen.sample
    assert sample is not None
    if view.given.dataset == "iterable":
        return seen
    took_s: list[float] = []
    begun_at = time.perf_counter()
    for call in islice(_calls(view), 1, min(16, sample.count)):
        samples, cost = timed(call)
        took_s.append(cost.divided(len(samples)).own_s)
        if time.perf_counter() - begun_at > 0.1 * view.seconds:
            break
    return replace(seen, sample=replace(sample, again_s=median(took_s))) if took_s else seen


def _sharing(view: _View, seen: Inside) -> Inside:
    """The share of computing that holds the GIL, where it is worth asking."""
    sample = seen.sample
    assert sample is not None
    if sample.computing_s <= _WORTH_SHARING_S or _MOST_THREADS * sample.seconds > 0.5 * view.seconds:
        return seen  # should samples take turns at a lock, so many threads would take that long
    held = _gil_held(view, sample.computing_s, sample.waiting_s)
    return replace(seen, sample=replace(sample, gil_held=held))


def _gil_held(view: _View, computing_s: float, waiting_s: float) -> float:
    """The share of computing that two threads cannot do at once; 0 where samples come from one iterator.

    As many threads load as it takes for two of them to compute at any time. A thread that wants the GIL waits, one that
    wants a core queues, so a busy machine does not look like a held GIL.
    """
    from stoker.auto.probe import threads_for_two

    if view.given.dataset == "iterable":
        return 0.0
    one = _one(view.loader, view.given)
    sample_s = max(1e-9, computing_s + waiting_s)
    count = threads_for_two(waiting_s / sample_s)
    most = min(_KEPT_SAMPLES, round(_TOGETHER_S / sample_s), int(0.5 * view.seconds / (count * sample_s)))
    keys = list(islice(_keys(view), max(1, most)))
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
        min(1.0, max(0.0, cost.waiting_s - len(keys) * waiting_s) / max(1e-9, cost.computing_s)) for cost in costs
    )


def _streams(view: _View, seen: Inside) -> Inside:
    """What workers make of an IterableDataset."""
    if view.given.dataset != "iterable":
        return seen
    from stoker.diagnosis.streams import streams_of

    return replace(seen, streams=streams_of(view.loader, view.given, 0.2 * view.seconds))


def _collating(view: _View, seen: Inside) -> Inside:
    """What the collate_fn takes for a batch, and whether torch's default one would make the same."""
    loader, samples = view.loader, view.samples
    if not loader._auto_collation:
        return seen
    batch = [samples[row % len(samples)] for row in range(view.rows or 1)]
    took_s: list[float] = []
    begun_at = time.perf_counter()
    while not took_s or (time.perf_counter() - begun_at < 0.15 * view.seconds and len(took_s) < 100):
        asked_at = time.perf_counter()
        collated = loader.collate_fn(batch)
        took_s.append(time.perf_counter() - asked_at)
    fits = view.given.own_collate and _default_gives(batch, collated)
    return replace(seen, collate_s=median(took_s), default_collate_fits=fits)


def _default_gives(batch: list[Any], collated: Any) -> bool:
    from torch.utils.data import default_collate

    from stoker.testing.difference import difference

    try:
        return difference(collated, default_collate(batch)) is None
    except Exception:  # samples of any kind, which torch may refuse in any way
        return False


def _handing_over(view: _View, seen: Inside) -> Inside:
    """A step of the same loader over samples in memory."""
    loader, given = view.loader, view.given
    if given.is_inline:
        return seen
    from stoker.diagnosis.canned import Canned, CannedItems

    if given.dataset == "iterable":
        twin = rebuild(loader, dataset=CannedItems(view.samples, _PLENTY))
    else:
        twin = rebuild(loader, dataset=Canned(view.samples, _PLENTY), keys={"batch_size": view.rows})
    try:
        pace: Pace = pace_of(twin, given, Bounds(0.25 * view.seconds, limit_s=max(1.5, 0.75 * view.seconds)))
        return replace(seen, handed_s=pace.step_s)
    finally:
        close(twin)
