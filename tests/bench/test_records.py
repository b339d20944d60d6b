"""Records survive the disk unchanged, and never mix machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.bench.records import (
    CaseRecord,
    Finding,
    Record,
    load_record,
    machine_facts,
    save_record,
    version_facts,
)

FASTER = Finding("faster", "at least", 8, 9.5, "× torch", "Stoker 9.5, torch 1.0")
CASE = CaseRecord("Is it faster?", "2 workers", (FASTER,), {"stoker": (9.4, 9.5, 9.6)}, "2026-01-01", 3.5, 0.2)


def test_a_record_read_back_is_the_record_saved(tmp_path: Path) -> None:
    record = Record({"cores": 2}, {"python": "3.11"}, {"speed": CASE})
    save_record(record, tmp_path / "new" / "engine.json")
    assert load_record(tmp_path / "new" / "engine.json") == record
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["engine.json"]


def test_a_save_that_fails_leaves_the_old_record(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    save_record(Record({}, {}, {"speed": CASE}), path)
    with pytest.raises(TypeError):
        save_record(Record({"cores": object()}, {}), path)
    assert load_record(path).cases == {"speed": CASE}


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"schema": 99}), encoding="utf-8")
    with pytest.raises(ValueError, match="schema 99"):
        load_record(path)


@pytest.mark.parametrize(
    ("sense", "measured", "passed"),
    [("at least", 8.0, True), ("at least", 7.99, False), ("at most", 8.0, True), ("at most", 8.01, False)],
)
def test_a_finding_passes_on_its_side_of_the_bound(sense, measured: float, passed: bool) -> None:  # type: ignore[no-untyped-def]
    assert Finding("claim", sense, 8.0, measured, "s").passed is passed


def test_a_record_continues_only_on_the_same_machine_with_the_same_versions() -> None:
    record = Record({"cores": 2}, {"torch": "2.13"})
    assert record.continues({"cores": 2}, {"torch": "2.13"})
    assert not record.continues({"cores": 4}, {"torch": "2.13"})
    assert not record.continues({"cores": 2}, {"torch": "2.14"})


def test_facts_can_be_saved_and_are_the_same_when_asked_twice() -> None:
    assert json.loads(json.dumps(machine_facts())) == machine_facts()
    assert machine_facts()["cores"] >= 1
    assert version_facts(["numpy", "no-such-package"])["no-such-package"] == "not installed"
