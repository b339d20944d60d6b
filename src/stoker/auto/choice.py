"""`num_workers="auto"`: from what was measured to who loads, with the reason in one line.

The rules, first match wins (a sample costs t; an epoch loaded by one thread costs T):

    iterable dataset                          inline: only its author knows how it is split over workers
    arrays, gathered in one operation         inline: nothing to share
    t tiny, or T not worth starting anybody   inline: a process would cost more than it brings
    mostly waiting                            processes × lanes, as many as the waiting takes
    computing                                 processes (threads, if it cannot be shipped and lets the GIL go)

How many is what `stoker.auto.forecast` expects to be the quickest epoch, its start included. Workers are started when
they promise a fifth less time for the first epoch already, or when starting them is a twentieth of it at most: then
whatever the model does meanwhile is gained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.multiprocessing
from torch.utils.data import IterableDataset

from stoker.auto.forecast import INLINE, Forecast, crews, forecast, ranked
from stoker.auto.probe import Probe, cores, probe, shipping_bytes
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
_MOST_LANES = 32
_LANES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Choice:
    """Who loads, and why."""

    workers: Workers
    reason: str


def decide(dataset: Any, context: Any = None) -> Workers:
    """Measure the dataset, pick, and say so; `context` is the loader's multiprocessing_context."""
    method = context if context is None or isinstance(context, str) else context.get_start_method()
    choice = choose(dataset, method or platform_start_method())
    workers = choice.workers
    log.info("num_workers='auto' chose processes=%d, threads=%d: %s", workers.processes, workers.threads, choice.reason)
    return workers


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
    return from_probe(measured, cores(), start_method, lambda: shipping_bytes(dataset))


def _without_measuring(dataset: Any) -> Choice | None:
    if isinstance(dataset, IterableDataset):
        return _inline("an iterable dataset is split over workers by its author, not by the loader")
    if is_async(dataset):
        lanes = _MOST_LANES
        return Choice(Workers(processes=0, threads=lanes), f"samples are awaited, {lanes} at a time")
    if fetch_for(dataset).arrays is not None:
        return _inline("a batch is gathered from arrays in one operation")
    if not has_own_getitem(dataset) or not hasattr(dataset, "__len__"):
        return _inline("it cannot be probed without __getitem__ and __len__")
    return _inline("it is empty") if len(dataset) == 0 else None


def from_probe(measured: Probe, core_count: int, start_method: str, shipping: Callable[[], int | None]) -> Choice:
    """The choice for what was measured; pure, so that every rule can be tested."""
    facts = f"a sample takes {duration(measured.seconds)}, {measured.waiting:.0%} of it waiting"
    if measured.seconds < _TINY_S:
        return _inline(f"{facts}; handing it to a worker would cost as much")
    inline = forecast(measured, INLINE, core_count, start_method)
    if not _pays(_quickest(measured, core_count, start_method, in_processes=True), inline):
        return _inline(f"{facts}, an epoch {duration(measured.epoch_s)}; starting workers would not pay")
    shippable = start_method == "fork" or shipping() is not None
    if not shippable and measured.waiting <= _MOSTLY and measured.gil_held >= _MOSTLY:
        return _inline(f"{facts}; it cannot be pickled for a worker, and holds the GIL")
    best = _quickest(measured, core_count, start_method, in_processes=shippable)
    if not _pays(best, inline):
        return _inline(f"{facts}; it cannot be pickled for a worker, and there is one core for threads")
    return Choice(best.workers, f"{facts}; {_gain(measured, best.workers, shippable)}")


def _quickest(measured: Probe, core_count: int, start_method: str, in_processes: bool) -> Forecast:
    """The best crew. Only what mostly waits gets lanes in processes: not every dataset may be used by two threads."""
    lanes = _LANES if measured.waiting > _MOSTLY else (1,) if in_processes else (core_count,)
    possible = list(crews(core_count, lanes, in_processes, _MOST_LANES)) or [INLINE]
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
