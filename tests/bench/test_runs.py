"""A trial's line says everything, is read back as it was, and a broken one costs only itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.bench.runs import Run, Span, TrialRecord, Trouble, from_line, load_runs, to_line
from stoker.bench.settings import Setting
from stoker.bench.trial import Trial

SETTING = Setting("photos", "stoker", 16, 2)
TRIAL = Trial(48, 4800, 0.25, (0.5, 0.125, 0.125), (0.25, 0.25, 0.25), 0.0)


def record(repeat: int = 0, trial: Trial | None = TRIAL) -> TrialRecord:
    failure = None if trial is not None else Trouble("KeyError", "'x'", "data.py:3 in __getitem__", "Traceback …")
    costs = {"build_s": 0.5, "peak_pss_bytes": 10**8, "cpu_s": 0.96, "memory_samples": 2} if trial is not None else {}
    facts = {"machine": {"cores": 2}, "versions": {"torch": "2.13.0"}, "measured_at": "2026-01-01T00:00:00+00:00"}
    return TrialRecord(SETTING, repeat, trial=trial, failure=failure, **costs, **facts)  # type: ignore[arg-type]


def test_a_line_is_read_back_as_it_was() -> None:
    noted = TrialRecord(SETTING, 0, "timeline", TRIAL, spans=(Span(41, 0, 0.1, 0.2), Span(42, 1, 0.15, 0.3)))
    for saved in (record(), record(trial=None), noted):
        assert from_line(to_line(saved)) == saved


positive = st.floats(0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20), positive)
def test_what_is_read_back_is_within_five_figures(steps: list[tuple[float, float]], start_s: float) -> None:
    waits, models = zip(*steps, strict=True)
    again = from_line(to_line(record(trial=Trial(1, 1, start_s, waits, models, 0.0)))).measured
    assert again.waits_s == pytest.approx(waits, rel=1e-4, abs=1e-7)
    assert again.models_s == pytest.approx(models, rel=1e-4, abs=3e-6)


def test_a_line_says_what_another_program_would_want_to_know() -> None:
    fields = json.loads(to_line(record()))
    assert fields["seconds"] == 1.75
    assert fields["samples_per_s"] == pytest.approx(48 / 1.75, rel=1e-4)
    assert fields["first_batch_s"] == 0.75
    assert fields["startup_s"] == 0.75
    assert fields["wait_quantiles_s"] == {"0.5": 0.125, "0.9": 0.425, "0.99": 0.4925, "1": 0.5}
    assert fields["cpu_s_per_sample"] == 0.02
    assert fields["peak_pss_bytes"] == 10**8
    assert fields["machine"] == {"cores": 2}
    assert fields["versions"] == {"torch": "2.13.0"}
    assert fields["setting"]["workers"] == 2


def test_a_failure_has_its_error_and_no_result() -> None:
    fields = json.loads(to_line(record(trial=None)))
    assert fields["status"] == "failed"
    assert fields["error"]["place"] == "data.py:3 in __getitem__"
    with pytest.raises(ValueError, match="was not measured"):
        record(trial=None).measured  # noqa: B018


def test_records_are_appended_and_the_later_one_of_a_turn_counts(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for saved in (record(0, None), record(1), record(0)):
        run.append(saved)
    assert run.load() == ([record(1), record(0)], [])


@pytest.mark.parametrize("broken", [b'{"schema":1,"kind":"tri', b"[]", b'{"schema":9}', b"\xff\xfe", b'{"schema":1}'])
def test_a_broken_line_is_left_out_and_named(tmp_path: Path, broken: bytes) -> None:
    run = Run(tmp_path)
    run.append(record(0))
    with run.path.open("ab") as file:
        file.write(broken)
    run.append(record(1))
    records, [problem] = run.load()
    assert [saved.repeat for saved in records] == [0, 1]
    assert f"{run.path}, line 2 was left out" in problem


def test_waits_and_models_that_do_not_belong_together_are_no_record() -> None:
    fields = json.loads(to_line(record())) | {"models_s": [1.0]}
    with pytest.raises(ValueError, match="3 waits but 1 steps"):
        from_line(json.dumps(fields))


def test_several_runs_are_read_together_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for name in ("x", "y"):
        Run(tmp_path / name).append(record())
    assert len(load_runs([tmp_path / "x", tmp_path / "y"])[0]) == 2
    with pytest.raises(FileNotFoundError, match="stoker bench TARGET --run"):
        load_runs([tmp_path / "z"])
