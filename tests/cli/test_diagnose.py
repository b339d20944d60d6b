"""`stoker diagnose` from the words of a command line to a verdict, a file, and exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stoker.cli.app import app
from stoker.diagnosis import Cause, Change, Diagnosis, TriedChange, diagnosis_from_json
from stoker.diagnosis.facts import Facts, GivenLoader, Pace
from stoker.report.findings import closing

MODULE = """
import time
from torch.utils.data import DataLoader

class Sour(list):
    def __getitem__(self, index):
        if index == 3:
            raise KeyError("[bold]sample 3")
        return super().__getitem__(index)

def training(): return DataLoader(list(range(64)), batch_size=8), lambda batch: time.sleep(0.02)
def alone(): return DataLoader(list(range(64)), batch_size=8)
def nothing(): pass
def dataset(): return [1, 2, 3]
def odd(): return DataLoader([1]), 3
def generator(): yield 1
def empty(): return DataLoader([])
def sour(): return DataLoader(Sour(range(8)), batch_size=2)
def raises(): raise OSError("disk gone")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "trainings.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, answer in (("load_per_core", 0.0), ("crowding", 1.0)):  # the suite itself crowds the machine
        monkeypatch.setattr(f"stoker.diagnosis.measuring.{name}", lambda answer=answer: answer)
    monkeypatch.setattr("stoker.diagnosis.measuring.share_taken", lambda seconds: 0.0)
    yield tmp_path
    sys.modules.pop("trainings", None)


def stoker(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diagnose", *arguments])


def test_a_verdict_is_printed_and_saved(here: Path) -> None:
    done = stoker("trainings:training", "--seconds", "1", "--out", "found/it.json")
    assert done.exit_code == 0, done.output
    found = diagnosis_from_json((here / "found" / "it.json").read_text())
    assert " ".join(found.verdict.split()) in " ".join(done.output.split())
    assert found.facts.model_s is not None
    assert "model on a batch in memory" in done.output
    assert "saved in found/it.json" in done.output


def test_a_loader_alone_gets_a_pretended_model(here: Path) -> None:
    done = stoker("trainings:alone", "--step-ms", "30", "--seconds", "1")
    assert done.exit_code == 0, done.output
    assert "The loader is not the bottleneck" in done.output
    without = stoker("trainings:alone", "--seconds", "1")
    assert without.exit_code == 0, without.output
    assert "what holds it up is" in without.output


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("trainings:nothing", "returned None"),
        ("trainings:dataset", "which is a dataset: return the loader"),
        ("trainings:odd", "returned a int beside the loader, which cannot be called as a step"),
        ("trainings:generator", "can be iterated only once"),
        ("trainings:empty", "is the dataset empty"),
        ("trainings:sour", "raised KeyError at "),
        ("trainings:raises", "raised OSError at "),
        ("trainings:trainin", "Did you mean training"),
        ("nowhere:make", "there is no module 'nowhere'"),
        ("faces", "is no module:function"),
    ],
)
def test_what_cannot_be_diagnosed_says_why_and_leaves_with_2(here: Path, target: str, message: str) -> None:
    done = stoker(target, "--seconds", "1")
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output + done.stderr


def found(*tried: TriedChange, advice: str = "") -> Diagnosis:
    facts = Facts(GivenLoader("torch", "map", 2), Pace(0.1, 0.1, 0.0, 4, 9))
    return Diagnosis(Cause.STORAGE, "why", facts, tried, (), advice)


def test_the_last_lines_say_what_to_change() -> None:
    better = TriedChange(Change({"num_workers": 8}), (3.0, 4.0), (1.0, 1.0))
    best = TriedChange(Change({}, "stoker"), (30.0, 40.0), (1.0, 1.0))
    assert closing(found(better, best, advice="and more")) == [
        "Change: stoker.DataLoader with the same arguments – expect 30 × as fast.",
        "and more",
    ]
    assert closing(found(TriedChange(Change({"num_workers": 8}), (1.0,), (1.0,)))) == [
        "No change that was tried makes it 1.15 × as fast."
    ]
    assert closing(found()) == []
