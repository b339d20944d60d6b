"""`num_workers="auto"`: from what was measured to who loads, with the reason in one line.

The rules, first match wins (a sample costs t; an epoch loaded by one thread costs T):

    iterable dataset                          inline: only its author knows how it is split over workers
    arrays, gathered in one operation         inline: nothing to share
    t tiny, or T not worth starting anybody   inline: a process would cost more than it brings
    mostly waiting                            lanes: as many as fit into the waiting, in one process of their own
    computing                                 a process per core (threads, if it cannot be shipped and lets the GIL go)

The thresholds are set so that a wrong guess costs little: what starts is only started when an epoch lasts at least
twenty times as long as starting it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.multiprocessing
from torch.utils.data import IterableDataset

from stoker.contracts import Workers
from stoker.loader.probe import Probe, cores, probe, shipping_bytes
from stoker.loader.stats import duration
from stoker.sources.fetch import fetch_for, has_own_getitem, is_async

log = logging.getLogger("stoker.auto")

# Below this a sample costs less than handing it to another process and back (measured: benchmarks/engine.py, the fixed
# cost of a batch and of a row).
_TINY_S = 30e-6
_FORK_S = 0.03  # starting a forked worker; measured here, torch imported
_SPAWN_S = 2.5  # starting one that imports torch anew
_WORTH_IT = 20
_MOST_LANES = 32
_MOST_PROCESSES = 16


@dataclass(frozen=True)
class Choice:
    """Who loads, and why."""

    workers: Workers
    reason: str


def decide(dataset: Any, start_method: str | None = None) -> Workers:
    """Measure the dataset, pick, and say so."""
    choice = choose(dataset, start_method or torch.multiprocessing.get_start_method(allow_none=True) or "fork")
    workers = choice.workers
    log.info("num_workers='auto' chose processes=%d, lanes=%d: %s", workers.processes, workers.lanes, choice.reason)
    return workers


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
        return Choice(Workers(processes=0, lanes=lanes), f"samples are awaited, {lanes} at a time")
    if fetch_for(dataset).arrays is not None:
        return _inline("a batch is gathered from arrays in one operation")
    if not has_own_getitem(dataset) or not hasattr(dataset, "__len__"):
        return _inline("it cannot be probed without __getitem__ and __len__")
    return _inline("it is empty") if len(dataset) == 0 else None


def from_probe(measured: Probe, core_count: int, start_method: str, shipping: Callable[[], int | None]) -> Choice:
    """The choice for what was measured; pure, so that every rule can be tested."""
    facts = f"a sample takes {duration(measured.seconds)}, {measured.waiting:.0%} of it waiting"
    start_s = _FORK_S if start_method == "fork" else _SPAWN_S
    if measured.seconds < _TINY_S:
        return _inline(f"{facts}; handing it to a worker would cost as much")
    if measured.epoch_s < _WORTH_IT * start_s:
        return _inline(f"{facts}, an epoch {duration(measured.epoch_s)}; starting workers would not pay")
    shippable = start_method == "fork" or shipping() is not None
    if measured.waiting > 0.5:
        return _lanes_for_waiting(measured, core_count, shippable, facts)
    if not shippable:
        return _threads_if_gil_free(measured, core_count, facts)
    processes = min(core_count, _MOST_PROCESSES)
    return Choice(Workers(processes=processes), f"{facts}; {processes} cores can compute at the same time")


def _lanes_for_waiting(measured: Probe, core_count: int, shippable: bool, facts: str) -> Choice:
    lanes = max(2, min(_MOST_LANES, round(1 / max(1e-3, 1 - measured.waiting))))
    computing_s = measured.seconds * (1 - measured.waiting)
    processes = 0 if not shippable else 1 if computing_s * lanes <= measured.seconds else min(core_count, 2)
    return Choice(Workers(processes=processes, lanes=lanes), f"{facts}; {lanes} lanes wait at the same time")


def _threads_if_gil_free(measured: Probe, core_count: int, facts: str) -> Choice:
    if measured.gil_held < 0.5 and core_count > 1:
        return Choice(Workers(processes=0, lanes=core_count), f"{facts}; it cannot be pickled, and lets the GIL go")
    return _inline(f"{facts}; it cannot be pickled for a worker, and holds the GIL")


def _inline(reason: str) -> Choice:
    return Choice(Workers(processes=0, lanes=1), reason)
