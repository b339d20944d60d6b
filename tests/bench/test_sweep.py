"""A sweep runs what is left, saves each trial at once, goes past failures; trials are scripted, no time passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import stoker
from stoker.bench.isolated import Length, Outcome
from stoker.bench.plan import Plan, Turn
from stoker.bench.runs import Run, TrialRecord, Trouble
from stoker.bench.settings import Setting, Sweep
from stoker.bench.sweep import Remaining, Watcher, prepare_loader, run_sweep, turns_left
from stoker.bench.targets import Target
from stoker.bench.trial import Trial

FACTS: dict[str, dict[str, Any]] = {"machine": {"cores": 2}, "versions": {}}
PLAN = Plan(Sweep(("d",), workers=(0, 1)), repeats=2, batches=3)
TARGETS = {"d": Target("d", list(range(64)), is_map=True)}


@dataclass
class Script:
    """Gives trials without running any; fails for these (loader, workers)."""

    failing: set[tuple[str, Any]] = field(default_factory=set)
    stop_after: int = 10**6
    ran: list[tuple[Setting, Length, bool]] = field(default_factory=list)

    def __call__(self, prepare: Any, length: Length, *, note_spans: bool, tick: Callable[[], object] | None) -> Outcome:
        if len(self.ran) == self.stop_after:
            raise KeyboardInterrupt
        setting = prepare.args[1]
        self.ran.append((setting, length, note_spans))
        if (setting.loader, setting.workers) in self.failing:
            return Outcome(failure=Trouble("KeyError", "'x'"))
        return Outcome(trial=Trial(1, 1, 0.0, (1.0,), (0.0,), 0.0), cpu_s=2.0)


def test_every_turn_is_run_once_and_saved(tmp_path: Path) -> None:
    run, script = Run(tmp_path), Script()
    made = run_sweep(PLAN, run, TARGETS, FACTS, run_trial=script)
    assert [record.turn for record in made] == PLAN.turns()
    loaded = run.load()[0]
    assert [record.turn for record in loaded] == PLAN.turns()
    assert all(record.cpu_s == 2.0 and record.machine == {"cores": 2} for record in loaded)
    assert {length for _, length, _ in script.ran} == {Length(3, 2, 600.0)}


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(PLAN, run, TARGETS, FACTS, run_trial=Script(stop_after=3))
    later = Script()
    run_sweep(PLAN, run, TARGETS, FACTS, run_trial=later)
    assert len(later.ran) == len(PLAN.turns()) - 3
    assert [record.turn for record in run.load()[0]] == PLAN.turns()


def test_a_failing_setting_is_recorded_and_the_sweep_goes_on(tmp_path: Path) -> None:
    run, skipped = Run(tmp_path), []
    script = Script(failing={("torch", 1)})
    run_sweep(PLAN, run, TARGETS, FACTS, Watcher(skipped=skipped.append), run_trial=script)
    records = run.load()[0]
    failed = [record for record in records if record.failure is not None]
    assert [(record.setting.loader, record.setting.workers, record.repeat) for record in failed] == [("torch", 1, 0)]
    assert len(records) == 7
    assert [(turn.setting.loader, turn.repeat) for turn in skipped] == [("torch", 1)]


def test_what_failed_is_tried_again_when_the_run_is_continued(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run_sweep(PLAN, run, TARGETS, FACTS, run_trial=Script(failing={("torch", 1)}))
    again = Script()
    run_sweep(PLAN, run, TARGETS, FACTS, run_trial=again)
    assert [(setting.loader, setting.workers) for setting, _, _ in again.ran] == [("torch", 1), ("torch", 1)]
    assert turns_left(PLAN, (), run.load()[0]) == []


def test_timelines_come_last_and_only_for_datasets_with_indices(tmp_path: Path) -> None:
    plan = Plan(Sweep(("d", "given"), workers=(0,)), repeats=1, timeline=4)
    script = Script()
    targets = {**TARGETS, "given": Target("given", [torch.zeros(2)], is_loader=True)}
    run_sweep(plan, Run(tmp_path), targets, FACTS, run_trial=script)
    assert [(setting.dataset, length.batches, noted) for setting, length, noted in script.ran] == [
        ("d", 100, False),
        ("d", 100, False),
        ("given", 100, False),
        ("d", 4, True),
        ("d", 4, True),
    ]


def test_the_time_left_is_what_the_same_settings_took() -> None:
    fast, slow, new = (Setting("d", "torch", workers=count) for count in (0, 1, 2))
    remaining = Remaining()
    assert remaining.seconds([Turn(fast, 0)]) is None
    for setting, took_s in ((fast, 1.0), (fast, 3.0), (slow, 10.0)):
        remaining.add(TrialRecord(setting, 0, took_s=took_s))
    assert remaining.seconds([Turn(fast, 1), Turn(slow, 1)]) == 12.0
    assert remaining.seconds([Turn(new, 0)]) == 6.0


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        (Setting("d", "torch", 8, 2, prefetch=3, pin_memory=True), torch.utils.data.DataLoader),
        (Setting("d", "stoker", 8, 2, prefetch=3, pin_memory=True), stoker.DataLoader),
    ],
)
def test_a_loader_is_built_as_the_setting_says(setting: Setting, kind: type) -> None:
    loader, model = prepare_loader(TARGETS["d"], setting, True, None)
    assert type(loader) is kind
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor, loader.pin_memory) == (8, 2, 3, True)  # type: ignore[attr-defined]
    assert isinstance(loader.sampler, torch.utils.data.RandomSampler)  # type: ignore[attr-defined]
    assert model is None


def test_lanes_and_auto_are_stokers(tmp_path: Path) -> None:
    loader = prepare_loader(TARGETS["d"], Setting("d", "stoker", 8, 1, lanes=3), False, None)[0]
    assert (loader.workers.processes, loader.workers.lanes) == (1, 3)  # type: ignore[attr-defined]
    assert prepare_loader(TARGETS["d"], Setting("d", "stoker", 8, "auto"), False, None)[0] is not None


def test_a_ready_made_loader_is_taken_as_it_is() -> None:
    given = [torch.zeros(2)]
    target = Target("m:f", given, is_loader=True)
    loader, model = prepare_loader(target, Setting("m:f", "given", sleep_s=0.001), True, None)
    assert loader is given
    assert model is not None


def test_a_real_sweep_of_both_loaders_measures_and_notes(tmp_path: Path) -> None:
    plan = Plan(Sweep(("d",), batch_sizes=(4,), workers=(0, 2)), repeats=1, batches=6, timeline=6)
    run_sweep(plan, Run(tmp_path), {"d": Target("d", list(range(64)), is_map=True)}, FACTS)
    records = Run(tmp_path).load()[0]
    assert [record.failure for record in records] == [None] * 8
    assert {record.measured.samples for record in records} == {24}
    for record in records:
        workers = {span.worker for span in record.spans}
        assert len(workers) == (max(1, int(record.setting.workers or 0)) if record.kind == "timeline" else 0)
