"""From a loader and a step to a verdict, measured for real, with nothing said about how long anything took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import stoker
from stoker.bench.settings import STOKER
from stoker.diagnosis import Cause, Change, DiagnosisError, diagnose
from stoker.diagnosis.bound import Deadline
from stoker.diagnosis.facts import Facts, Inside, Pace
from stoker.diagnosis.ground import Ground
from stoker.diagnosis.measuring import measure_facts
from stoker.diagnosis.rig import rig_of
from stoker.diagnosis.trials import build, try_all

SECONDS = 0.4


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the machine does: that is tested by its own tests."""
    monkeypatch.setattr("stoker.diagnosis.measuring.share_taken", lambda seconds: 0.0)
    monkeypatch.setattr("stoker.diagnosis.measuring.load_per_core", lambda: 0.0)
    monkeypatch.setattr("stoker.diagnosis.measuring.crowding", lambda: 1.0)


class Waiting:
    """Forty milliseconds of waiting: more than any machine here takes for all the rest."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.04)
        return np.zeros(8)


def test_a_waiting_dataset_waits_and_lanes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.diagnosis.suspects._MOST", 1)
    loader = stoker.DataLoader(Waiting(), batch_size=4)
    told: list[str] = []
    found = diagnose(loader, 0.001, seconds=8 * SECONDS, tell=told.append)  # a busy machine has time for a trial too
    assert found.cause is Cause.STORAGE
    assert found.verdict.startswith("The loader is the bottleneck")
    assert any("threads=16" in str(tried.change) for tried in found.tried)
    assert all(len(tried.gains) == 2 for tried in found.tried if not tried.failure)
    assert told[:4] == [
        "looking into the loader",
        "the loader without a model",
        "the model on a batch in memory",
        "both together",
    ]


def test_a_slow_model_is_told_apart_and_nothing_is_tried() -> None:
    loader: Any = DataLoader(list(range(64)), batch_size=4)  # type: ignore[arg-type]
    found = diagnose(loader, lambda batch: time.sleep(0.05), seconds=SECONDS)
    assert found.cause is Cause.MODEL
    assert found.tried == ()
    assert "not the bottleneck" in found.verdict


class Batches:
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(20):
            time.sleep(0.02)
            yield torch.zeros(4, 2)


def test_any_iterable_can_be_diagnosed() -> None:
    found = diagnose(Batches(), seconds=SECONDS)
    assert found.cause is Cause.STORAGE
    assert found.facts.inside == Inside()
    assert found.facts.model_s is None
    assert found.tried == ()


class Far(torch.Tensor):
    """A tensor whose way to the device is long."""

    def to(self, *_: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        time.sleep(0.03)
        return self.as_subclass(torch.Tensor)


class FarBatches:
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(10):
            yield torch.zeros(4, 2).as_subclass(Far)


def test_copies_to_the_device_are_timed_apart_from_the_step() -> None:
    kinds: list[type] = []
    found = diagnose(FarBatches(), lambda batch: kinds.append(type(batch)), device="far", seconds=SECONDS)
    assert found.cause is Cause.COPYING
    assert set(kinds) == {torch.Tensor}
    assert found.facts.model_s is not None
    assert found.facts.copy_s > found.facts.model_s


class Sour(Waiting):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise KeyError("sample 3")
        return index


def broken_step(_batch: Any) -> None:
    raise RuntimeError("no gradient")


@pytest.mark.parametrize(
    ("loader", "step", "message"),
    [
        (
            DataLoader(Sour(), batch_size=2),
            None,
            r"the loader raised KeyError at .*test_diagnosis\.py:\d+ in __getitem__",
        ),  # type: ignore[arg-type]
        (DataLoader(Sour(), batch_size=2, num_workers=1), None, r"the loader raised KeyError at .*'sample 3'"),  # type: ignore[arg-type]
        (stoker.DataLoader(Sour(), batch_size=2, num_workers=1), None, r"the loader raised KeyError at .*'sample 3'"),
        (DataLoader([], batch_size=2), None, "the loader gave no batch at all: is the dataset empty"),  # type: ignore[arg-type]
        (DataLoader([1, 2]), broken_step, r"the step raised RuntimeError at .* in broken_step: no gradient"),  # type: ignore[arg-type]
    ],
    ids=["inline", "torch's worker", "Stoker's worker", "empty", "step"],
)
def test_what_cannot_be_measured_says_who_raised_and_where(loader: Any, step: Any, message: str) -> None:
    with pytest.raises(DiagnosisError, match=message):
        diagnose(loader, step, seconds=SECONDS)


def test_trials_take_turns_backwards_and_a_change_that_fails_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(stoker.DataLoader(Waiting(), batch_size=4))
    ground = Ground(rig.loader, rig.given)
    seen = measure_facts(rig, ground, Deadline(2.5), lambda text: None)
    good, bad = Change({"num_workers": 1}), Change({"prefetch_factor": -1, "num_workers": 1})
    monkeypatch.setattr("stoker.diagnosis.trials.suspects", lambda facts: [good, bad])
    told: list[str] = []
    tried = try_all(rig, seen, ground, Deadline(10.0), told.append)
    assert told == [
        "the loader as it is",
        "trying num_workers=1",
        "trying prefetch_factor=-1, num_workers=1",
        "trying prefetch_factor=-1, num_workers=1",
        "trying num_workers=1",
        "the loader as it is",
    ]
    assert (len(tried[0].gains), tried[0].failure) == (2, "")
    assert tried[1].gains == []
    assert "prefetch_factor" in tried[1].failure


def test_nothing_is_tried_where_the_model_is_not_held_up() -> None:
    rig = rig_of(stoker.DataLoader(Waiting(), batch_size=4), 1.0)
    quick, slow = Pace(0.1, 0.1, 0.0, 4, 9), Pace(1.0, 1.0, 1.0, 4, 9)
    ground = Ground(rig.loader, rig.given)
    assert try_all(rig, Facts(rig.given, quick, 1.0, together=slow), ground, Deadline(9.0), lambda text: None) == ()


def test_the_change_can_be_made() -> None:
    loader: Any = DataLoader(list(range(8)), batch_size=4)  # type: ignore[arg-type]
    changed = build(loader, Change({"workers": stoker.Workers(threads=2)}, STOKER))
    assert isinstance(changed, stoker.DataLoader)
    assert [batch.tolist() for batch in changed] == [batch.tolist() for batch in loader]
