"""Runs a plan: every turn that has no good record yet, one after the other, saved as soon as it is measured.

    for turn in plan, not yet done:   trial in a process of its own ──► one line in trials.jsonl

A setting that fails is recorded with its error, and its later repeats are left out: they would fail too. The sweep goes
on. When the same plan is run again, what failed is tried again, and what was measured is not.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stoker.bench.isolated import Length, Model, Outcome, Prepare, run_isolated
from stoker.bench.plan import TIMELINE, Plan, Turn
from stoker.bench.records import load_average, machine_facts, now, version_facts
from stoker.bench.runs import Run, TrialRecord
from stoker.bench.settings import GIVEN, TORCH, Setting
from stoker.bench.targets import Target

Circumstances = Mapping[str, Mapping[str, Any]]
RunTrial = Callable[..., Outcome]
PACKAGES = ("torch", "numpy", "pillow")


@dataclass
class Watcher:
    """Whom to tell: `tick` several times a second, the others around each turn."""

    tick: Callable[[], object] = lambda: None
    begun: Callable[[Turn], object] = lambda turn: None
    done: Callable[[TrialRecord], object] = lambda record: None
    skipped: Callable[[Turn], object] = lambda turn: None


@dataclass
class Remaining:
    """Guesses the time left: a turn takes what the same setting took before, an unknown one the mean of all."""

    taken_s: dict[str, list[float]] = field(default_factory=dict)

    def add(self, record: TrialRecord) -> None:
        """Learn from a turn that was done."""
        self.taken_s.setdefault(record.setting.key, []).append(record.took_s)

    def seconds(self, turns: Collection[Turn]) -> float | None:
        """The time that these turns will take; None before anything is known."""
        if not self.taken_s:
            return None
        means = {key: sum(values) / len(values) for key, values in self.taken_s.items()}
        usual = sum(means.values()) / len(means)
        return sum(means.get(turn.setting.key, usual) for turn in turns)


def turns_left(plan: Plan, given: Collection[str], records: Iterable[TrialRecord]) -> list[Turn]:
    """The turns of the plan without a good record."""
    measured = {record.turn.name for record in records if record.trial is not None}
    return [turn for turn in plan.turns(given) if turn.name not in measured]


def run_sweep(
    plan: Plan,
    run: Run,
    targets: Mapping[str, Target],
    facts: Circumstances,
    watcher: Watcher | None = None,
    *,
    timeout_s: float = 600.0,
    run_trial: RunTrial = run_isolated,
) -> list[TrialRecord]:
    """Measure what is left of the plan; the new records."""
    watcher = watcher or Watcher()
    preload()
    given = {name for name, target in targets.items() if target.is_loader}
    failed: set[str] = set()
    records = []
    for turn in turns_left(plan, given, run.load()[0]):
        if turn.setting.key in failed or _cannot_note(turn, targets):
            watcher.skipped(turn)
            continue
        watcher.begun(turn)
        notes = turn.kind == TIMELINE
        length = Length(plan.timeline if notes else plan.batches, plan.warmup, timeout_s)
        target = targets[turn.setting.dataset]
        prepare = partial(prepare_loader, target, turn.setting, plan.shuffle and not notes)
        record = record_trial(turn, prepare, length, facts, tick=watcher.tick, run_trial=run_trial)
        if record.failure is not None:
            failed.add(turn.setting.key)
        run.append(record)
        records.append(record)
        watcher.done(record)
    return records


def preload() -> None:
    """Import what every trial needs before the first fork: no trial then pays for it, and all share its memory."""
    importlib.import_module("torch.utils.data")
    importlib.import_module("stoker.loader")


def facts_now() -> dict[str, dict[str, Any]]:
    """The machine and the versions that a trial measured now would be measured with."""
    from stoker import __version__

    return {"machine": machine_facts(), "versions": {"stoker": __version__, **version_facts(PACKAGES)}}


def _cannot_note(turn: Turn, targets: Mapping[str, Target]) -> bool:
    """A timeline needs a map-style dataset to note its samples in."""
    return turn.kind == TIMELINE and not targets[turn.setting.dataset].is_map


def record_trial(
    turn: Turn,
    prepare: Prepare,
    length: Length,
    facts: Circumstances,
    *,
    tick: Callable[[], object] | None = None,
    run_trial: RunTrial = run_isolated,
) -> TrialRecord:
    """One turn, run and written down."""
    record = TrialRecord(
        *turn, measured_at=now(), load_before=load_average(), machine=facts["machine"], versions=facts["versions"]
    )
    begun_at = time.monotonic()
    outcome = run_trial(prepare, length, note_spans=turn.kind == TIMELINE, tick=tick)
    return replace(record, took_s=time.monotonic() - begun_at, **vars(outcome))


def prepare_loader(
    target: Target, setting: Setting, shuffle: bool, folder: Path | None
) -> tuple[Iterable[Any], Model | None]:
    """The loader of a setting, built now, and its model."""
    model = pretended_model(setting)
    if setting.loader == GIVEN:
        return target.thing, model
    dataset = target.thing
    if folder is not None:
        from stoker.bench.spans import Noted

        dataset = Noted(dataset, folder, setting.batch_size or 1)
    options: dict[str, Any] = {"batch_size": setting.batch_size, "pin_memory": setting.pin_memory}
    if target.is_map:
        options["shuffle"] = shuffle
    if setting.prefetch is not None:
        options["prefetch_factor"] = setting.prefetch
    return _make(setting, dataset, options), model


def _make(setting: Setting, dataset: Any, options: dict[str, Any]) -> Iterable[Any]:
    if setting.loader == TORCH:
        from torch.utils.data import DataLoader as TorchLoader

        return TorchLoader(dataset, num_workers=int(setting.workers or 0), **options)
    from stoker import DataLoader

    if setting.lanes > 1 or setting.start_method is not None or setting.share is not None:
        return DataLoader(dataset, workers=setting.crew, **options)
    workers: Any = setting.workers
    return DataLoader(dataset, num_workers=workers, **options)


def pretended_model(setting: Setting) -> Model | None:
    """Takes the setting's time for a step, and does nothing; None if that is no time."""
    return (lambda _batch: time.sleep(setting.sleep_s)) if setting.sleep_s else None
