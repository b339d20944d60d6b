"""Repeats of a setting become means and deviations; what is unstable comes with something to try."""

from __future__ import annotations

import pytest

from stoker.bench.groups import METRICS, group, timelines
from stoker.bench.runs import TrialRecord, Trouble
from stoker.bench.settings import Setting
from stoker.bench.trial import Trial

SETTING = Setting("d", "torch", 8, 1)


def record(seconds: float, repeat: int = 0, load: float = 0.0, **options: object) -> TrialRecord:
    trial = Trial(80, 0, 0.0, (seconds / 2, seconds / 2), (0.0, 0.0), 0.0)
    return TrialRecord(
        SETTING,
        repeat,
        trial=trial,
        load_before=load,
        machine={"cores": 2},
        cpu_s=0.8,
        peak_pss_bytes=5 * 10**6,
        **options,
    )  # type: ignore[arg-type]


def test_a_metric_is_the_mean_and_the_deviation_over_the_repeats() -> None:
    [found] = group([record(1.0), record(2.0, 1), record(3.0, 2)])
    assert (found.metric("seconds").mean, found.metric("seconds").deviation) == (2.0, 1.0)
    assert found.metric("cpu_ms").mean == pytest.approx(10.0)
    assert found.metric("memory_mb").mean == 5.0
    assert found.metric("first_batch_ms").mean == 1000.0
    assert found.typical.measured.seconds == 2.0


def test_every_metric_can_be_computed_for_a_pass_of_one_batch() -> None:
    only = TrialRecord(SETTING, 0, trial=Trial(8, 0, 0.5, (1.0,), (0.0,), 0.0))
    [found] = group([only])
    assert {name: found.metric(name).mean for name in METRICS}["step_ms"] == 1500.0


def test_settings_stay_apart_and_timelines_are_not_counted() -> None:
    other = TrialRecord(Setting("d", "stoker", 8, 1), 0, trial=record(1.0).trial)
    noted = record(9.0, kind="timeline")
    groups = group([record(1.0), other, noted])
    assert [len(found.records) for found in groups] == [1, 1]
    assert timelines([record(1.0), noted]) == [noted]


def test_a_failure_is_kept_beside_what_was_measured() -> None:
    failed = TrialRecord(SETTING, 1, failure=Trouble("KeyError", "'x'"))
    [found] = group([record(1.0), failed])
    assert len(found.records) == 1
    assert found.failure == Trouble("KeyError", "'x'")


@pytest.mark.parametrize(
    ("seconds", "load", "advice"),
    [
        ((2.0, 2.1, 2.05), 9.0, ""),
        ((0.2, 0.5, 0.3), 0.0, "a pass took only 0.2 s: more --batches"),
        ((4.0, 2.0, 2.1), 0.0, "the first repeat was the slowest: more --warmup"),
        ((2.0, 4.0, 2.1), 7.5, "up to 7.5 processes wanted 2 cores: a quieter machine"),
        ((2.0, 4.0, 2.1), 0.5, "more --repeats, or a quieter machine"),
    ],
)
def test_advice_fits_what_the_records_know(seconds: tuple[float, ...], load: float, advice: str) -> None:
    [found] = group([record(value, repeat, load) for repeat, value in enumerate(seconds)])
    assert found.advice == advice
    assert found.is_stable == (not advice)
