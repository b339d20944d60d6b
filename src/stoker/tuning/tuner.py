"""Joins aim, space, search and trials; keeps to the time that is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stoker.auto.choice import platform_start_method
from stoker.auto.forecast import Forecast, forecast, sample_s
from stoker.auto.probe import Probe, probe
from stoker.auto.processor import cores
from stoker.bench.isolated import run_isolated
from stoker.bench.rebuild import kind_of
from stoker.bench.settings import GIVEN, Setting
from stoker.bench.sweep import RunTrial, preload
from stoker.bench.targets import Target, judge
from stoker.sources.fetch import fetch_for
from stoker.tuning.aim import Aim, TuneError
from stoker.tuning.found import TriedSetting, Tuning
from stoker.tuning.search import Effort, Search
from stoker.tuning.space import Foreseen, Space, space_for
from stoker.tuning.trials import Teller, Trials

_TRIALS_IN_BUDGET = 30  # a trial is this part of the budget,
_SHORTEST_S, _LONGEST_S = 0.2, 4.0  # within these,
_STEPS_IN_TRIAL = 5  # unless the quickest crew would not get so far,
_LARGE_PART = 1 / 10  # but never a larger part than this
_AS_QUICK = 1.05  # within this, a setting loses nothing
_AS_GOOD = 1.02  # within this, nobody could tell which is better
_BATCH_SIZE = 32


@dataclass(frozen=True)
class Means:
    """What a search measures with: trials, and the look at a few samples before them. Tests bring their own."""

    run_trial: RunTrial = run_isolated
    look: Callable[[Any], Probe] = probe


def tune(
    thing: Any,
    aim: Aim | None = None,
    *,
    name: str = "dataset",
    teller: Teller | None = None,
    means: Means | None = None,
) -> Tuning:
    """Search the best setting for a dataset, or for a loader that can be built again (or a Target of either)."""
    begun_at, aim, means = time.monotonic(), aim or Aim(), means or Means()
    target = thing if isinstance(thing, Target) else judge(name, thing)
    dataset = _dataset_of(target)
    preload()
    measured = _looked_at(dataset, means.look)
    space = space_of(target, aim, dataset)
    trial_s = _trial_s(aim, measured, space)
    trials = Trials(target, aim, trial_s, teller or Teller(), means.run_trial)
    foreseen = Foreseen(space, None if measured is None else partial(_foretold, measured, aim))

    def goes_on(share: float) -> bool:
        return time.monotonic() - begun_at + trial_s < share * aim.budget_s

    search = Search(trials.cost, foreseen.axes, Effort(goes_on=goes_on))
    search.run(foreseen.first())
    tried = sorted(map(trials.tried, search.costs), key=trials.key)
    best = _best(tried, trials)
    tried.sort(key=lambda one: one is not best)
    return Tuning(target.name, aim, best, tuple(tried), time.monotonic() - begun_at, cores())


def space_of(target: Target, aim: Aim, dataset: Any) -> Space:
    """What is worth a look for this target, where the aim does not say what to try."""
    usual = space_for(target.name, cores(), _is_map(dataset), _gives_runs(dataset))
    sizes: tuple[int | None, ...] = aim.batch_sizes or ((None,) if target.is_loader else (_BATCH_SIZE,))
    return Space(
        target.name,
        tuple(sorted(aim.processes)) or usual.processes,
        tuple(sorted(aim.threads)) or usual.lanes,
        aim.prefetch or usual.prefetch,
        aim.start_methods or usual.start_methods,
        sizes,
        usual.shares,
    )


def _dataset_of(target: Target) -> Any:
    if not target.is_loader:
        return target.thing
    if kind_of(target.thing) == GIVEN:
        raise TuneError(
            f"{target.name} is a {type(target.thing).__name__}, which cannot be built again with other settings: tune "
            "its dataset, or torch's DataLoader, or stoker.DataLoader."
        )
    return target.thing.dataset


def _is_map(dataset: Any) -> bool:
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _gives_runs(dataset: Any) -> bool:
    return _is_map(dataset) and fetch_for(dataset).by_runs


def _looked_at(dataset: Any, look: Callable[[Any], Probe]) -> Probe | None:
    """What a sample is like; None if that cannot be known without a trial."""
    if not _is_map(dataset):
        return None
    try:
        return look(dataset)
    except Exception:  # the user's code; a trial will show where
        return None


def _foretold(measured: Probe, aim: Aim, setting: Setting) -> Forecast:
    size = setting.batch_size or _BATCH_SIZE
    model_s = aim.step_s(setting.batch_size) * measured.length / size
    return forecast(measured, setting.crew, cores(), platform_start_method(), model_s)


def _trial_s(aim: Aim, measured: Probe | None, space: Space) -> float:
    seconds = min(_LONGEST_S, max(_SHORTEST_S, aim.budget_s / _TRIALS_IN_BUDGET))
    if measured is None:
        return seconds
    size = space.batch_sizes[0] or _BATCH_SIZE
    step_s = size * min(sample_s(measured, setting.crew, cores()) for setting in space.crews())
    return max(seconds, min(_STEPS_IN_TRIAL * (step_s + aim.step_s(size)), aim.budget_s * _LARGE_PART))


def _best(tried: Sequence[TriedSetting], trials: Trials) -> TriedSetting:
    """By the goal; and where nobody could tell the difference, the one with fewer hands."""
    least = trials.key(tried[0])
    if tried[0].trouble:
        raise TuneError(_nothing_works(tried, trials.aim))
    if trials.aim.goal == "cpu":
        return min((one for one in tried if trials.key(one) <= _AS_QUICK * least), key=lambda one: one.cpu_s)
    return min((one for one in tried if trials.key(one) <= _AS_GOOD * least), key=lambda one: _hands(one.setting))


def _hands(setting: Setting) -> tuple[int, int, int]:
    return int(setting.workers or 0), setting.lanes, setting.prefetch or 0


def _nothing_works(tried: Sequence[TriedSetting], aim: Aim) -> str:
    reasons = dict.fromkeys(one.trouble for one in tried)
    text = f"none of the {len(tried)} settings that were tried works: " + "; ".join(list(reasons)[:3])
    if aim.max_bytes is not None and any(one.peak_bytes > aim.max_bytes for one in tried):
        least = min(one.peak_bytes for one in tried if one.peak_bytes)
        text += f". The smallest needed {least / 1e6:,.0f} MB: allow more, or try smaller batches."
    return text
