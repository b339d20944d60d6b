"""Samples that never end: past `sample_timeout_s` they are bad samples, and only they."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.poison import Tortured

from stoker import DataLoader, OnError, Workers
from stoker.contracts import Ask, Ticket
from stoker.errors import WorkerDied, WorkerTimeout
from stoker.workers.control import FIRST, NUMBER, ROW, SINCE, Control
from stoker.workers.deaths import Deaths, Held

pytestmark = pytest.mark.faults
LIMIT_S = 0.5

SHARES: dict[str, dict[str, Any]] = {
    "parts": {"processes": 2},
    "rows": {"processes": 2, "share": "rows"},
    "batches": {"processes": 2, "share": "batches"},
    "lanes": {"processes": 2, "threads": 3},
}
shares = pytest.mark.parametrize("share", SHARES)
deaths = pytest.mark.parametrize("on_death", ["raise", "restart"])


def limited(share: str = "parts", **more: Any) -> Workers:
    return Workers(**{"start_method": "fork", "sample_timeout_s": LIMIT_S, **SHARES[share], **more})


def loader_of(dataset: Any, workers: Workers, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 8, **{"seed": 5, "shuffle": True, "workers": workers, **options})


def inline(dataset: Any, **options: Any) -> list[Any]:
    return [batch.tolist() for batch in loader_of(dataset, Workers(), **options)]


@shares
@deaths
@pytest.mark.parametrize("action", ["skip", "drop"])
def test_a_sample_that_hangs_is_a_bad_sample_at_once(share: str, on_death: Any, action: Any, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    dataset = Tortured(64, {21: "hang", 50: "hang"}, str(hung))
    loader = loader_of(dataset, limited(share, on_death=on_death), on_error=action)
    batches = [batch.tolist() for batch in loader]
    assert sorted(failure.index for failure in loader.failures) == [21, 50]
    assert all(f"TimeoutError: no answer within {LIMIT_S} seconds" in failure.error for failure in loader.failures)
    assert batches == inline(Tortured(64, {21: "raise", 50: "raise"}), on_error=action)
    tried = len(hung.read_text().split())
    assert tried == 2 or (share == "lanes" and tried == 3)  # once each; a lane dies with another


def test_by_default_a_sample_that_hangs_raises_a_timeout_error() -> None:
    with pytest.raises(TimeoutError, match=f"no answer within {LIMIT_S} seconds"):
        list(loader_of(Tortured(64, {21: "hang"}), limited()))


@deaths
def test_restarts_for_stuck_samples_have_the_same_budget_and_say_what_happened(on_death: Any) -> None:
    faults = dict.fromkeys(range(0, 64, 8), "hang")
    workers = limited(sample_timeout_s=0.2, max_restarts=3, on_death=on_death)
    with pytest.raises(WorkerDied, match="All 3 restarts are used up") as info:
        list(loader_of(Tortured(64, faults), workers, on_error="skip"))
    assert "out-of-memory" not in str(info.value)
    assert "0.2 seconds" in str(info.value)


def _slowly(samples: list[Any]) -> Any:
    time.sleep(2 * LIMIT_S)  # the thing under test is time itself
    return np.stack(samples).tolist()


def test_the_time_of_a_collate_fn_counts_to_no_sample() -> None:
    loader = loader_of(Tortured(16), limited(), collate_fn=_slowly, on_error="skip")
    assert list(loader) == inline(Tortured(16))
    assert loader.failures == []


def test_pauses_between_tries_count_to_no_sample() -> None:
    policy = OnError("skip", tries=2, pause_s=2.5 * LIMIT_S)  # scattered by half: at least 1.25 times the limit
    loader = loader_of(Tortured(16, {5: "raise"}), limited(), on_error=policy)
    list(loader)
    assert [failure.error for failure in loader.failures] == ["ValueError: sample 5 is spoilt"]


class Slow(Tortured):
    """Every sample takes a fifth of the limit: together they are far beyond it."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(LIMIT_S / 5)  # the thing under test is time itself
        return Tortured(self.samples)[index]


@pytest.mark.parametrize("share", ["parts", "batches", "lanes"])
def test_the_limit_is_for_each_sample_and_not_for_a_run_of_them(share: str) -> None:
    loader = loader_of(Slow(32), limited(share), on_error="skip")
    assert [batch.tolist() for batch in loader] == inline(Tortured(32))
    assert loader.failures == []


class Gated(Tortured):
    """Sample 21 hangs; while it does, every sample beside it in the process is only slow."""

    def __getitem__(self, index: int) -> Any:
        if index % 8 != 5 and index > 16:
            time.sleep(LIMIT_S * 0.6)  # the thing under test is time itself
        return super().__getitem__(index)


def test_neighbours_of_a_stuck_sample_are_loaded_again_and_not_blamed() -> None:
    loader = loader_of(Gated(32, {21: "hang"}), limited("lanes"), shuffle=False, on_error="skip")
    batches = [batch.tolist() for batch in loader]
    assert [failure.index for failure in loader.failures] == [21]
    assert batches == inline(Tortured(32, {21: "raise"}), shuffle=False, on_error="skip")


def test_a_training_step_longer_than_the_limit_blames_nobody() -> None:
    loader = loader_of(Tortured(64), limited(sample_timeout_s=0.1), on_error="skip")
    batches = []
    for batch in loader:
        batches.append(batch.tolist())
        threading.Event().wait(0.15)  # the thing under test is time itself
    assert batches == inline(Tortured(64))
    assert loader.failures == []


# `timeout`, as torch has it


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[str]:
    """A pipe that nobody writes to: whoever opens it for reading waits until the test is over."""
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    yield path
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


class Waiting(Tortured):
    """Sample 9 waits for a pipe that nobody writes to."""

    def __getitem__(self, index: int) -> Any:
        if index == 9 and self.deaths is not None:
            with open(self.deaths):
                pass
        return Tortured(self.samples)[index]


def test_without_a_limit_for_samples_the_loaders_timeout_says_what_waits(gate: str) -> None:
    loader = loader_of(Waiting(32, {}, gate), Workers(2, 1, "fork"), timeout=0.3, shuffle=False)
    batches = iter(loader)
    next(batches)
    with pytest.raises(WorkerTimeout, match=r"timed out after 0\.3 seconds"):
        next(batches)
    del batches


def test_the_limit_for_samples_comes_before_the_loaders_timeout() -> None:
    workers = limited(sample_timeout_s=0.2)
    loader = loader_of(Tortured(64, {21: "hang"}), workers, timeout=20, on_error="skip")
    assert len(list(loader)) == 8
    assert [failure.index for failure in loader.failures] == [21]


# Where nothing can be stopped


@pytest.mark.parametrize("workers", [(0, 0), (0, 4)], ids=["inline", "threads"])
def test_without_processes_a_limit_is_refused_because_a_thread_cannot_be_stopped(workers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="thread"):
        DataLoader(Tortured(16), 8, workers=Workers(*workers, sample_timeout_s=1.0))


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
def test_a_limit_that_makes_no_sense_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="sample_timeout_s should be above 0"):
        Workers(2, sample_timeout_s=wrong)


# The decision itself, without processes or clocks


ROOM = Control(seats=2, lanes=2)


def _control(**lanes: tuple[int, int, int, int]) -> list[int]:
    cells = [0] * (ROOM.size_bytes // 8)
    for name, (order, first, row, since_ns) in lanes.items():
        place = ROOM.all_lanes()[int(name.removeprefix("lane"))]
        cells[place + NUMBER], cells[place + FIRST] = order + 1, first
        cells[place + ROW], cells[place + SINCE] = row, since_ns
    return cells


def test_only_workers_with_a_sample_past_its_time_are_ended() -> None:
    recovery = Deaths(Workers(2, 2, sample_timeout_s=1.0))
    control = _control(lane0=(4, 0, 1, 10), lane1=(4, 2, 3, 2_000_000_000), lane3=(5, 0, 0, 2_000_000_000))
    assert recovery.stuck(control, ROOM, now_ns=2_500_000_000) == {0}
    assert recovery.stuck(_control(lane3=(5, 0, 0, 5)), ROOM, now_ns=2_500_000_000) == {1}


def test_a_lane_that_has_begun_no_sample_is_not_stuck() -> None:
    recovery = Deaths(Workers(2, sample_timeout_s=1.0))
    assert recovery.stuck(_control(lane0=(4, 0, -1, 0)), ROOM, now_ns=10**12) == set()


def test_a_sample_that_was_finished_while_its_worker_was_ended_is_not_blamed() -> None:
    recovery = Deaths(Workers(1, sample_timeout_s=1.0))
    recovery.stuck(_control(lane0=(4, 0, 1, 10)), ROOM, now_ns=2_000_000_000)
    ticket = Ticket(4, Ask.ROWS, 0, 0, 4, 8, 1, keys=np.arange(4))
    assert recovery.verdict(Held(ROOM.lanes_at, ticket, 2, 0), True, True, -9) is None
    stuck = recovery.verdict(Held(ROOM.lanes_at, ticket, 1, 0), alone=True, stuck=True, exit_code=-9)
    assert stuck is not None
    assert stuck.name == "TimeoutError"
