"""Which changes are worth a trial, given what is suspected.

Every cause has its usual cures. The list is short, since each trial takes time from the others; a trial decides, never
this list, which only says what is asked. Changes that would change which samples a training sees are left out however
fast they may be: a larger batch, or more workers for an IterableDataset, whose author alone knows how it is split over
workers. One worker instead of none is always the same data. Nor is anybody told to start more processes than there are
cores, of which torch warns at every start: more waiting at a time is what lanes are for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from stoker.bench.settings import GIVEN, STOKER, TORCH
from stoker.diagnosis.facts import Cause, Change, Facts, GivenLoader
from stoker.diagnosis.judge import judge, without_crowd
from stoker.diagnosis.parts import parts_of
from stoker.options import Workers

_MOST = 4
_MANY_WORKERS = 8
_MOST_WORKERS = 16
_LANES = (16, 32)
_FAR_AHEAD = 16


def suspects(facts: Facts) -> list[Change]:
    """Changes to try, the likeliest first."""
    if facts.given.kind == GIVEN:
        return []
    cures = _CURES[judge(facts)]
    found = {str(change): change for change in cures(facts) if _keeps_the_data(change, facts.given)}
    return list(islice(found.values(), _MOST))


def _keeps_the_data(change: Change, given: GivenLoader) -> bool:
    """Whether an IterableDataset would give the same samples."""
    if given.dataset != "iterable":
        return True
    number = change.arguments.get("num_workers", given.processes)
    workers: Workers = change.arguments.get("workers", Workers(processes=number))
    return workers.lanes == 1 and (workers.processes == given.processes or max(workers.processes, given.processes) <= 1)


def _nothing(facts: Facts) -> Iterator[Change]:
    return iter(())


def _storage(facts: Facts) -> Iterator[Change]:
    given = facts.given
    for lanes in _LANES:
        if lanes > given.lanes:
            yield _stoker(given, Workers(processes=max(1, _fitting(given)), threads=lanes))
    if given.processes < min(_MANY_WORKERS, given.cores):
        yield _with(given, min(_MANY_WORKERS, given.cores))
    if given.processes == 0:
        yield _stoker(given, Workers(processes=0, threads=_LANES[0]))
        yield _with(given, 1)
    yield from _move(given)


def _decoding(facts: Facts) -> Iterator[Change]:
    given = facts.given
    if given.processes != given.cores:
        yield _with(given, given.cores)
    yield from _move(given)


def _gil(facts: Facts) -> Iterator[Change]:
    yield _stoker(facts.given, Workers(processes=_all_cores(facts.given)))
    yield _with(facts.given, _all_cores(facts.given))


def _too_few(facts: Facts) -> Iterator[Change]:
    given = facts.given
    parts = parts_of(facts)
    if given.is_inline:
        yield _with(given, 1)
    for processes in sorted({_enough(facts), _all_cores(given)}):
        if processes > given.processes:
            yield _with(given, processes)
    if given.is_inline and given.kind == TORCH:
        yield _stoker(given, Workers(processes=_all_cores(given)))
        yield from _move(given, num_workers=1)
    if parts is not None and parts.leading == "waiting":
        yield _stoker(given, Workers(processes=1, threads=_LANES[0]))


def _too_many(facts: Facts) -> Iterator[Change]:
    given = facts.given
    if given.processes > 0:
        yield _with(given, 1 if given.processes > 1 else 0)
    if given.processes > _all_cores(given):
        yield _with(given, _all_cores(given))
    elif given.processes > 2:
        yield _with(given, given.processes // 2)
    yield from _CURES[without_crowd(facts)](facts)  # fewer may turn out not to be better
    yield from _rows(given)


def _stragglers(facts: Facts) -> Iterator[Change]:
    given = facts.given
    yield from _rows(given)
    parts = parts_of(facts)
    if parts is not None and parts.leading == "waiting":
        lanes = _stoker(given, Workers(processes=max(1, _fitting(given)), threads=_LANES[0]))
        # Many hands help only as far as batches may be under way behind the one that is held up.
        yield dataclasses.replace(lanes, arguments={**lanes.arguments, "prefetch_factor": _FAR_AHEAD})
        yield lanes
    if given.processes > 0:
        yield Change({"prefetch_factor": 4 * max(2, given.prefetch or 2)})
    if given.processes > 2:
        yield _with(given, given.processes // 2)
    if given.processes == 0:
        yield _with(given, _all_cores(given))
    yield from _move(given)


def _as_it_was(facts: Facts) -> Iterator[Change]:
    return _move(facts.given)


def _collating(facts: Facts) -> Iterator[Change]:
    given = facts.given
    if facts.inside.default_collate_fits:
        yield Change({"collate_fn": None})
        yield from _move(given, collate_fn=None)
    if given.processes < _all_cores(given):
        yield _with(given, _all_cores(given))
    yield from _move(given)


def _moving(facts: Facts) -> Iterator[Change]:
    given = facts.given
    if facts.inside.default_collate_fits:
        yield Change({"collate_fn": None})
    yield from _move(given)
    yield _stoker(given, Workers()) if given.lanes > 1 else Change({"num_workers": 0})
    yield from _move(given, num_workers=0)
    if given.processes > 1:
        yield _with(given, 1)


def _start(facts: Facts) -> Iterator[Change]:
    given = facts.given
    if given.processes > 0 and not given.keeps_workers:
        yield Change({"persistent_workers": True})
        yield from _move(given, persistent_workers=True)
        yield _with(given, 0)
    if given.processes > 1:
        yield _with(given, 1)


def _prefetch(facts: Facts) -> Iterator[Change]:
    given = facts.given
    yield Change({"prefetch_factor": 4 * max(2, given.prefetch or 2)})
    if given.processes < _all_cores(given):
        yield _with(given, _all_cores(given))
    yield from _move(given)


def _copying(facts: Facts) -> Iterator[Change]:
    if facts.given.can_pin and not facts.given.pins:
        yield Change({"pin_memory": True})


_CURES: dict[Cause, Callable[[Facts], Iterator[Change]]] = {
    Cause.MODEL: _nothing,
    Cause.STORAGE: _storage,
    Cause.DECODING: _decoding,
    Cause.GIL: _gil,
    Cause.COLLATING: _collating,
    Cause.MOVING: _moving,
    Cause.COPYING: _copying,
    Cause.TOO_FEW_WORKERS: _too_few,
    Cause.TOO_MANY_WORKERS: _too_many,
    Cause.EPOCH_START: _start,
    Cause.PREFETCH: _prefetch,
    Cause.STRAGGLERS: _stragglers,
    Cause.SAMPLER: _nothing,  # whoever draws, the indices are the same: only the sampler can be changed
    Cause.ONE_STREAM: _as_it_was,
}


def _move(given: GivenLoader, **arguments: Any) -> Iterator[Change]:
    """The same arguments but for these, given to Stoker."""
    if given.kind == TORCH:
        yield Change(arguments, STOKER)


def _rows(given: GivenLoader) -> Iterator[Change]:
    """Whoever is free takes the next rows."""
    if given.dataset in ("map", "awaited") and not given.own_collate and not given.shares_rows:
        processes = max(1, _fitting(given))
        lanes = -(-max(1, given.processes) * given.lanes // processes)  # as many hands as there were
        yield _stoker(given, Workers.with_lanes(processes, lanes, share="rows"))


def _fitting(given: GivenLoader) -> int:
    """The processes there are, as far as there are cores for them."""
    return min(given.processes, given.cores)


def _all_cores(given: GivenLoader) -> int:
    """A process a core, as far as a loader can keep many busy."""
    return min(given.cores, _MOST_WORKERS)


def _enough(facts: Facts) -> int:
    """So many processes that the loader would keep up with the model, if each did as much as now."""
    given = facts.given
    wanted = max(1, given.processes) * facts.alone.step_s / max(1e-9, facts.needed_s)
    return max(1, min(_all_cores(given), math.ceil(1.2 * wanted)))


def _with(given: GivenLoader, processes: int) -> Change:
    """Another number of processes, and the same lanes."""
    if given.lanes > 1:
        return Change({"workers": Workers.with_lanes(processes, given.lanes)})
    return Change({"num_workers": processes})


def _stoker(given: GivenLoader, workers: Workers) -> Change:
    return Change({"workers": workers}, "" if given.kind == STOKER else STOKER)


def applied(change: Change, own: Any) -> Change:
    """The change with whatever the loader's own `Workers` says beside processes, lanes and share."""
    wanted = change.arguments.get("workers")
    if not isinstance(wanted, Workers) or not isinstance(own, Workers):
        return change
    share = own.share if wanted.share == "auto" else wanted.share
    kept = dataclasses.replace(own, processes=wanted.processes, threads=wanted.threads, share=share)
    return dataclasses.replace(change, arguments={**change.arguments, "workers": kept})
