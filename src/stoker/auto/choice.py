"""`num_workers="auto"`: from what was measured to who loads at first, with the reason in one line.

The rules, first match wins (a sample costs t until it is in its batch; an epoch loaded by one thread costs T):

    in a process that is a worker itself      inline: it may not start others
    iterable dataset                          inline: only its author knows how it is split over workers
    awaited samples                           many at a time, in the training process
    arrays, gathered in one operation         inline: nothing to share
    no __getitem__ or no __len__, or empty    inline: it cannot be looked at
    samples that cannot be loaded             inline: their error is the user's to see
    t tiny, or T not worth starting anybody   inline: a process would cost more than it brings
    mostly waiting                            processes × lanes, as many as the waiting takes
    computing                                 processes (threads, if it cannot be shipped and lets the GIL go)

Where samples were looked at and can be loaded by processes, this is a first guess, and the loader goes on from there
(`controller`). Samples that draw from the global generators get one lane a process, and the generators are seeded for
each of them: then it does not matter who loads what.

How many is what `stoker.auto.forecast` expects to be the quickest epoch, its start included. Workers are started when
they promise a fifth less time for the first epoch already, or when starting them is a twentieth of it at most: then
whatever the model does meanwhile is gained.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch.multiprocessing
from torch.utils.data import IterableDataset

from stoker.auto.forecast import INLINE, Forecast, crews, forecast, ranked
from stoker.auto.probe import Probe, probe, shipping_bytes
from stoker.auto.processor import core_share
from stoker.auto.size import MOST_LANES, Limits, Size
from stoker.options import Workers
from stoker.sources.fetch import fetch_for, has_own_getitem, is_async
from stoker.watch.stats import duration

log = logging.getLogger("stoker.auto")

# Below this a sample costs less than handing it to another process and back (measured: benchmarks/engine.py, the fixed
# cost of a batch and of a row).
_TINY_S = 30e-6
_MOSTLY = 0.5
# A wrong guess should cost little: workers have to promise a fifth, or their start has to be a trifle of the epoch.
_CLEAR_GAIN = 0.8
_WORTH_IT = 20
_LANES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Choice:
    """Who loads, and why."""

    workers: Workers
    reason: str
    may_change: bool = False  # it is a guess, and processes may be added and taken away
    draws: bool = False  # samples draw from the global generators


@dataclass(frozen=True)
class Chosen:
    """What follows for a loader."""

    workers: Workers  # who loads at first
    limits: Limits | None = None  # None: and from then on
    draws: bool = False


@dataclass(frozen=True)
class Wanted:
    """What a loader was asked for, as far as it matters here."""

    dataset: Any
    options: Workers | None = None
    is_most: bool = True  # plain numbers in the options are the most there may be
    context: Any = None
    collate: Callable[[list[Any]], Any] | None = None  # of the user's own
    rows: int | None = None  # of a batch
    one_lane: bool = False  # whatever the samples are like
    keeps_state: bool = False  # in each worker, so that their number must not change
    needs_process: bool = False  # what was asked for cannot be had in the training process

    @property
    def start_method(self) -> str:
        told: str | None = self.options.start_method if self.options is not None else None
        given = self.context
        named = given if given is None or isinstance(given, str) else given.get_start_method()
        return told or named or platform_start_method()


def decide(wanted: Wanted) -> Chosen:
    """Measure the dataset, pick, and say so."""

    def measure(dataset: Any) -> Probe:
        return probe(dataset, collate=wanted.collate, rows=wanted.rows)

    core_count = round(core_share())
    choice = choose(wanted.dataset, wanted.start_method, measure)
    options, limits = wanted.options or Workers(), Limits.of(wanted.options, wanted.is_most, core_count)
    if wanted.needs_process and _without_measuring(wanted.dataset) is None:
        limits = replace(limits, least_processes=max(1, limits.least_processes))
        choice = replace(choice, may_change=True)
    if choice.draws or wanted.one_lane:
        limits = replace(limits, least_lanes=1, most_lanes=1)
    if choice.workers.are_threads:
        workers = replace(options.fixed_at(0, 1), threads=choice.workers.threads)
    else:
        size = limits.holds(Size(choice.workers.processes, choice.workers.lanes))
        workers = options.fixed_at(size.processes, size.lanes)
    log.info("num_workers='auto' chose processes=%d, threads=%d: %s", workers.processes, workers.threads, choice.reason)
    return Chosen(workers, limits if choice.may_change and not wanted.keeps_state else None, choice.draws)


def platform_start_method() -> str:
    """How workers start if nobody says otherwise; asking does not settle it."""
    method = torch.multiprocessing.get_start_method(allow_none=True)
    return method or torch.multiprocessing.get_all_start_methods()[0]  # the first is the platform's


def choose(dataset: Any, start_method: str, measure: Callable[[Any], Probe] = probe) -> Choice:
    """The choice for this dataset."""
    plain = _without_measuring(dataset)
    if plain is not None:
        return plain
    try:
        measured = measure(dataset)
    except Exception as error:  # the user's code; it will raise again where the user sees it
        return _inline(f"its first samples could not be loaded ({type(error).__name__}: {error})")
    return from_probe(measured, round(core_share()), start_method, lambda: shipping_bytes(dataset))


def _without_measuring(dataset: Any) -> Choice | None:
    if multiprocessing.current_process().daemon:
        return _inline("this process is a worker itself (a daemon), and may not start others")
    if isinstance(dataset, IterableDataset):
        return _inline("an iterable dataset is split over workers by its author, not by the loader")
    if is_async(dataset):
        lanes = MOST_LANES
        return Choice(Workers(processes=0, threads=lanes), f"samples are awaited, {lanes} at a time")
    if fetch_for(dataset).arrays is not None:
        return _inline("a batch is gathered from arrays in one operation")
    if not has_own_getitem(dataset) or not hasattr(dataset, "__len__"):
        return _inline("it cannot be probed without __getitem__ and __len__")
    return _inline("it is empty") if len(dataset) == 0 else None


def from_probe(measured: Probe, core_count: int, start_method: str, shipping: Callable[[], int | None]) -> Choice:
    """The choice for what was measured; pure, so that every rule can be tested."""
    facts = f"a sample takes {duration(measured.seconds)}, {measured.waiting:.0%} of it waiting"
    shippable = start_method == "fork" or shipping() is not None
    later: dict[str, Any] = {"may_change": shippable, "draws": measured.draws}
    if measured.seconds + measured.copy_s < _TINY_S:
        return replace(_inline(f"{facts}; handing it to a worker would cost as much"), **later)
    inline = forecast(measured, INLINE, core_count, start_method)
    if not _pays(_quickest(measured, core_count, start_method, in_processes=True), inline):
        reason = f"{facts}, an epoch {duration(measured.epoch_s)}; starting workers would not pay"
        return replace(_inline(reason), **later)
    if not shippable and measured.waiting <= _MOSTLY and measured.gil_held >= _MOSTLY:
        return _inline(f"{facts}; it cannot be pickled for a worker, and holds the GIL")
    best = _quickest(measured, core_count, start_method, in_processes=shippable)
    if not _pays(best, inline):
        return _inline(f"{facts}; it cannot be pickled for a worker, and there is one core for threads")
    return Choice(best.workers, f"{facts}; {_gain(measured, best.workers, shippable)}", **later)


def _quickest(measured: Probe, core_count: int, start_method: str, in_processes: bool) -> Forecast:
    """The best crew. Only what mostly waits gets lanes in processes: not every dataset may be used by two threads."""
    lanes = _LANES if measured.waiting > _MOSTLY else (1,) if in_processes else (core_count,)
    lanes = (1,) if measured.draws and in_processes else lanes
    possible = list(crews(core_count, lanes, in_processes, MOST_LANES)) or [INLINE]
    return ranked(forecast(measured, crew, core_count, start_method) for crew in possible)[0]


def _pays(best: Forecast, inline: Forecast) -> bool:
    """A clear gain in the first epoch already; or none to speak of but for the model, which then overlaps."""
    if best.workers == INLINE:
        return False
    return best.epoch_s <= _CLEAR_GAIN * inline.epoch_s or _WORTH_IT * best.start_s <= inline.epoch_s


def _gain(measured: Probe, workers: Workers, shippable: bool) -> str:
    if measured.waiting > _MOSTLY:
        return f"{workers.total_lanes} samples wait at the same time"
    if not shippable:
        return "it cannot be pickled, and lets the GIL go"
    return (
        "one process loads while the model computes"
        if workers.processes == 1
        else (f"{workers.processes} processes can compute at the same time")
    )


def _inline(reason: str) -> Choice:
    return Choice(Workers(), reason)
