"""Trials of settings on one target: each in a process of its own, written down, and turned into a cost.

A cost is seconds, of an epoch, for a sample or for a step. A setting that fails, needs more memory than is allowed, or
is given up because it takes too long, costs infinitely much: it is kept with the reason, and never wins.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stoker.bench.groups import group
from stoker.bench.isolated import Length, Model, Prepare, run_isolated
from stoker.bench.plan import Turn
from stoker.bench.rebuild import rebuild, setup_of
from stoker.bench.runs import TrialRecord
from stoker.bench.settings import STOKER, Setting
from stoker.bench.sweep import Circumstances, RunTrial, facts_now, prepare_loader, pretended_model, record_trial
from stoker.bench.targets import Target
from stoker.sampling.streams import length_or_none
from stoker.tuning.aim import Aim
from stoker.tuning.awhile import ForAWhile, epoch_s
from stoker.tuning.found import TriedSetting

_GIVEN_UP_AFTER = 12  # times a trial's length without an end
_LEAST_TIME_S = 5.0  # but not sooner: importing torch in a spawned worker takes half of it


@dataclass(frozen=True)
class Teller:
    """Whom to tell: `tick` several times a second, `begun` before each trial, `done` after it."""

    tick: Callable[[], object] = lambda: None
    begun: Callable[[Setting], object] = lambda setting: None
    done: Callable[[TrialRecord], object] = lambda record: None


@dataclass
class Trials:
    """Runs trials of `trial_s` seconds, and keeps their records by setting."""

    target: Target
    aim: Aim
    trial_s: float
    teller: Teller = field(default_factory=Teller)
    run_trial: RunTrial = run_isolated
    facts: Circumstances = field(default_factory=facts_now)
    records: dict[Setting, list[TrialRecord]] = field(default_factory=dict)
    _ahead: dict[Setting, int] = field(default_factory=dict)

    def cost(self, setting: Setting) -> float:
        """Run one more trial of the setting; what it costs."""
        self.teller.begun(setting)
        timed = replace(setting, sleep_s=self.aim.step_s(setting.batch_size))
        turn = Turn(timed, len(self.records.get(setting, ())))
        length = Length(timeout_s=max(_LEAST_TIME_S, _GIVEN_UP_AFTER * self.trial_s))
        record = record_trial(
            turn, self._prepare(timed), length, self.facts, tick=self.teller.tick, run_trial=self.run_trial
        )
        self.records.setdefault(setting, []).append(record)
        self.teller.done(record)
        return math.inf if self._trouble(record) else self._cost(*self._times_s(record))

    def tried(self, setting: Setting) -> TriedSetting:
        """What is known of a setting: the quickest of its trials counts, the largest of its memories."""
        records = self.records[setting]
        trouble = next(filter(None, map(self._trouble, records)), "")
        times = [self._times_s(record) for record in records if record.trial is not None]
        sample_s, step_s = min(times, default=(math.inf, math.inf))
        return TriedSetting(replace(group(records)[0], setting=setting), sample_s, step_s, trouble)

    def key(self, tried: TriedSetting) -> float:
        """What is to be least."""
        return math.inf if tried.trouble else self._cost(tried.sample_s, tried.step_s)

    def _cost(self, sample_s: float, step_s: float) -> float:
        return step_s if self.aim.goal == "step" else sample_s

    def _times_s(self, record: TrialRecord) -> tuple[float, float]:
        """Of an epoch: the time for a sample, and for a step."""
        trial = record.measured
        batches = batches_in_epoch(self.target, record.setting.batch_size)
        step_s = epoch_s(trial, batches, self._batches_ahead(record.setting)) / (batches or 1)
        return step_s * trial.batches / max(1, trial.samples), step_s

    def _prepare(self, setting: Setting) -> Prepare:
        return partial(prepare_for_a_while, self.target, setting, self.aim.shuffle, self.trial_s)

    def _batches_ahead(self, setting: Setting) -> int:
        """How many batches a loader of this setting has under way; asked of one that is built and not iterated."""
        if setting not in self._ahead:
            with warnings.catch_warnings():  # torch's of more workers than cores, which are tried on purpose
                warnings.filterwarnings("ignore", message="This DataLoader will create")
                awhile: Any = self._prepare(setting)(None)[0]
            self._ahead[setting] = awhile.ahead
        return self._ahead[setting]

    def _trouble(self, record: TrialRecord) -> str:
        if record.failure is not None:
            return str(record.failure)
        if self.aim.max_bytes is not None and record.peak_pss_bytes > self.aim.max_bytes:
            return f"needs {record.peak_pss_bytes / 1e6:,.0f} MB, allowed are {self.aim.max_bytes / 1e6:,.0f} MB"
        return ""


def batches_in_epoch(target: Target, batch_size: int | None) -> int | None:
    """How many batches an epoch has; None if nobody knows."""
    if batch_size is None:
        return length_or_none(target.thing)
    samples = length_or_none(target.thing.dataset if target.is_loader else target.thing)
    return None if samples is None else -(-samples // batch_size)


def prepare_for_a_while(
    target: Target, setting: Setting, shuffle: bool, seconds: float, folder: Path | None
) -> tuple[Iterable[Any], Model | None]:
    """The loader of a setting, to be iterated for so long, and its model."""
    if not target.is_loader:
        loader, model = prepare_loader(target, setting, shuffle, folder)
        return ForAWhile(loader, seconds, batches_ahead(loader)), model
    changes: dict[str, Any] = {"workers": setting.crew}
    if setting.batch_size is not None:
        changes["batch_size"] = setting.batch_size
    if setting.prefetch is not None:
        changes["prefetch_factor"] = setting.prefetch
    rebuilt = rebuild(target.thing, STOKER, **changes)
    return ForAWhile(rebuilt, seconds, batches_ahead(rebuilt)), pretended_model(setting)


def batches_ahead(loader: Any) -> int:
    """How many batches may be under way when one is taken; 0 for a loader that makes them when they are asked for."""
    from stoker.passes.assemble import Assembly

    assembly = Assembly(setup_of(loader))
    return 0 if assembly.is_inline else assembly.window().most
