"""A run on real ranks is killed again and again, and goes on each time on another number of them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.programs import Nursery, listened_to
from tests.resume.elastic_ranks import PER_STEP, SAMPLES, make_loader, read_log

import stoker

SCRIPT = Path(__file__).with_name("elastic_ranks.py")
LAST_STEP = SAMPLES // PER_STEP


def _run_until_killed(nursery: Nursery, log: Path, world: int, workers: stoker.Workers, last_step: int) -> None:
    with listened_to(nursery, SCRIPT, log, world, workers.processes, workers.lanes, last_step) as (run, output):
        said = output.readline()
        os.killpg(run.pid, signal.SIGKILL)  # all ranks and their workers at once
        assert said == "paused\n"
    assert run.returncode == -signal.SIGKILL


def _run_to_the_end(nursery: Nursery, log: Path, world: int, workers: stoker.Workers) -> None:
    nursery.run(SCRIPT, log, world, workers.processes, workers.lanes, -1).check_returncode()


def _uninterrupted() -> list[list[list[float]]]:
    """Every step of the epoch, by one rank that is never stopped."""
    return [batch.tolist() for batch in make_loader(1, shard=(0, 1))]


@pytest.fixture(scope="module")
def log(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a run on 4, 2, 8 and 3 ranks has logged, killed three times on its way through an epoch."""
    path = tmp_path_factory.mktemp("elastic") / "log.jsonl"
    _run_until_killed(nursery, path, 4, stoker.Workers(1), last_step=3)
    _run_until_killed(nursery, path, 2, stoker.Workers(0), last_step=6)
    _run_until_killed(nursery, path, 8, stoker.Workers(0, threads=2), last_step=9)
    _run_to_the_end(nursery, path, 3, stoker.Workers(2))
    return read_log(path)


pytestmark = pytest.mark.faults


def test_every_step_came_once_and_in_turn(log: list[dict[str, Any]]) -> None:
    assert [(entry["step"], entry["world"]) for entry in log] == [
        (step, 4 if step <= 3 else 2 if step <= 6 else 8 if step <= 9 else 3) for step in range(LAST_STEP + 1)
    ]


def test_every_full_step_is_that_of_a_run_that_was_never_stopped(log: list[dict[str, Any]]) -> None:
    expected = _uninterrupted()
    assert [entry["seen"] for entry in log[:LAST_STEP]] == expected[:LAST_STEP]


def test_the_last_step_is_padded_from_the_beginning_of_the_epoch(log: list[dict[str, Any]]) -> None:
    expected = _uninterrupted()
    last, seen = expected[LAST_STEP], log[LAST_STEP]["seen"]
    assert len(last) == 17
    assert len(seen) == 18  # six for each of three ranks
    assert seen[:17] == last
    assert seen[17][0] == expected[0][0][0]


def test_together_they_saw_every_sample_once_and_the_padding_twice(log: list[dict[str, Any]]) -> None:
    seen = Counter(int(index) for entry in log for index, _ in entry["seen"])
    padding = int(_uninterrupted()[0][0][0])
    assert seen == Counter(range(SAMPLES)) + Counter([padding])
