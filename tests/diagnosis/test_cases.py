"""Thirty training loops with one thing wrong: each cause is named, from what a real run has measured, or anew.

The quick tests judge the saved facts of benchmarks/diagnose.py again; no clock is looked at. The slow one measures.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from stoker.diagnosis import Cause, Diagnosis, diagnosis_from_json
from stoker.diagnosis.judge import judge
from stoker.diagnosis.suspects import suspects
from stoker.diagnosis.words import numbers, verdict

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAVED = {case["case"]: case for case in json.loads((BENCHMARKS / "results" / "diagnose.json").read_text())["cases"]}


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # where the cases' datasets can be imported from, by workers too
    import diagnose

    return diagnose


def saved(name: str) -> tuple[Cause, Diagnosis]:
    return Cause[SAVED[name]["expected"]], diagnosis_from_json(json.dumps(SAVED[name]["diagnosis"]))


@pytest.mark.parametrize("name", SAVED)
def test_the_cause_follows_from_the_facts(name: str) -> None:
    expected, found = saved(name)
    assert judge(found.facts, found.tried) is expected


@pytest.mark.parametrize("name", SAVED)
def test_what_was_tried_is_what_the_facts_suggest(name: str) -> None:
    _, found = saved(name)
    tried = [str(tried.change) for tried in found.tried]
    assert tried == [str(change) for change in suspects(found.facts)][: len(tried)]
    assert tried or not suspects(found.facts) or "There was no time to try" in found.advice


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_diagnosis_says_the_same_again(name: str) -> None:
    _, found = saved(name)
    assert verdict(found.facts, found.cause) == found.verdict
    assert numbers(found.facts) == found.numbers
    assert json.loads(found.to_json()) == SAVED[name]["diagnosis"]


def test_the_record_is_of_all_cases_and_keeps_what_is_claimed(benchmarks: Any) -> None:
    assert [(case.name, case.cause.name) for case in benchmarks.CASES] == [
        (name, case["expected"]) for name, case in SAVED.items()
    ]
    assert len(SAVED) == 30
    assert sum(case["diagnosis"]["cause"] == case["expected"] for case in SAVED.values()) >= 29
    for case in SAVED.values():
        if case["promised"] is not None:
            assert case["given"] - 1 >= 0.5 * (case["promised"] - 1), case["case"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_cause_is_named_and_every_promise_kept_when_measured(benchmarks: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        outcomes = [benchmarks.run_case(case) for case in benchmarks.CASES]
    wrong = [(found.case, found.diagnosis.cause.name) for found in outcomes if not found.is_right]
    assert len(wrong) <= 1, wrong
    assert [(found.case, found.best.promise, found.given) for found in outcomes if not found.is_kept] == []
    for name in ("diagnose", "diagnose_cases"):
        sys.modules.pop(name, None)
