"""The torture run in short: poison in one sample of 200 (see `tests.faults.torture`), and nothing else changes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from tests.faults import torture as runner
from tests.faults.poison import TURNS, Tortured, choose_faults
from tests.faults.stalls import Outcome as StallsOutcome
from tests.faults.stalls import Setup as Stalls
from tests.faults.stalls import _compare, torment
from tests.faults.torture import Outcome, Setup, torture

from stoker.contracts import Failure

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

QUICK = {
    "parts": Setup(2_000),
    "rows": Setup(2_000, share="rows", processes=3, epochs=1),
    "batches": Setup(2_000, share="batches", processes=4, epochs=1),
    "lanes": Setup(2_000, lanes=3, epochs=1),
    "lanes-rows": Setup(2_000, lanes=2, share="rows", epochs=1),
    "persistent": Setup(2_000, persistent=True, seed=11),
}


@pytest.mark.parametrize("name", QUICK)
def test_every_good_sample_stands_in_its_place_and_the_failures_are_those_injected(name: str) -> None:
    outcome = torture(QUICK[name])
    assert outcome.wrong == []
    assert outcome.rows == QUICK[name].samples * QUICK[name].epochs
    # A sample that kills does so twice before it counts as bad, one that hangs is ended at once.
    least = {"kill": 4, "segv": 4, "hang": 1}
    assert all(outcome.deaths[kind] >= count * QUICK[name].epochs for kind, count in least.items())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_workers_that_are_not_forked_are_replaced_as_well(start: str) -> None:
    outcome = torture(Setup(400, epochs=1, one_in=40, start=start))
    assert outcome.wrong == []
    assert outcome.total_deaths >= 9


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("share", "lanes"), [("auto", 1), ("auto", 3), ("rows", 1), ("rows", 3), ("batches", 2)])
def test_poison_in_one_sample_of_25_changes_nothing_else(seed: int, share: str | None, lanes: int) -> None:
    assert torture(Setup(1_200, 1, 25, seed, 3, lanes, share=share, batch_size=5 + 3 * seed)).wrong == []


def test_faults_follow_from_the_seed_and_come_in_every_kind() -> None:
    faults = choose_faults(20_000, 200, seed=3)
    assert len(faults) == 100
    assert faults == choose_faults(20_000, 200, seed=3) != choose_faults(20_000, 200, seed=4)
    assert Counter(faults.values()) == {kind: 10 * TURNS.count(kind) for kind in TURNS}


# The judge itself is judged: what it must catch, it catches.


def _verdict(change: Any) -> list[str]:
    """What the runner says of batches in which something was changed."""
    setup = Setup(200, epochs=1, batch_size=50)
    batches = [batch.clone() for batch in runner._twin(setup)]
    outcome = Outcome({})
    faults = {int(batches[1][3, 0]): "raise"}
    batches[1][3, 0] = batches[0][0, 0]  # the row of the bad sample holds a good one
    list(runner._compare(0, change(batches), runner._twin(setup), faults, outcome))
    return outcome.wrong


def _swapped(batches: list[Any]) -> list[Any]:
    batches[2][[0, 1]] = batches[2][[1, 0]]
    return batches


def _other_draw(batches: list[Any]) -> list[Any]:
    batches[0][7, 1] += 1
    return batches


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda batches: batches, 0),
        (_swapped, 2),
        (_other_draw, 1),
        (lambda batches: batches[:3], 1),
        (lambda batches: [*batches, batches[0]], 1),
    ],
    ids=["nothing", "two rows swapped", "another draw", "a batch lost", "a batch doubled"],
)
def test_the_runner_sees(change: Any, wrong: int) -> None:
    assert len(_verdict(change)) == wrong


def _failure(index: int, position: int, error: str) -> Failure:
    return Failure(index, 0, position, error, error, 0.0, 0, "skip")


def test_the_runner_sees_failures_that_were_not_injected_missed_doubled_or_misread() -> None:
    outcome = Outcome({})
    listed = [_failure(4, 4, "ValueError: x"), _failure(5, 5, "OSError"), _failure(5, 5, "OSError")]
    faults = {3: "kill", 5: "raise"}
    runner._judge_failures(listed, faults, list(range(10)), Setup(10, epochs=1), outcome)
    text = "\n".join(outcome.wrong)
    assert "not injected, but listed: (0, 4)" in text
    assert "injected, but not listed: (0, 3)" in text
    assert "listed 2 times in its own place: (0, 5)" in text
    assert "raise of sample 5 reads 'OSError'" in text


def test_a_dataset_without_poison_loads_as_it_is() -> None:
    assert [int(Tortured(3)[index][0]) for index in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("way", [("rows", 1), ("rows", 3), ("auto", 1), ("batches", 1)], ids=str)
def test_workers_that_are_stopped_late_and_killed_spoil_no_row(way: tuple[Any, int]) -> None:
    outcome = torment(Stalls(deaths=8, stalls=8, share=way[0], lanes=way[1], rows_per_run=None, busy=1))
    assert outcome.wrong == []
    assert outcome.deaths == 8
    assert outcome.stalls >= 8


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_so_do_those_that_are_not_forked(start: str) -> None:
    assert torment(Stalls(start, deaths=5, stalls=20)).wrong == []


def test_a_row_that_was_overwritten_later_is_seen() -> None:
    kept: list[Any] = []

    class Batches(list[Any]):
        _workers: tuple[Any, ...] = ()

    numbers = list(range(60))
    for step in range(10):
        kept.append(torch.tensor(numbers[step * 6 : step * 6 + 6])[:, None].repeat(1, 4_000))
    outcome = StallsOutcome({})
    late = Batches(kept)

    def walk() -> Any:
        for step, batch in enumerate(late):
            if step == 4:
                late[1][2, 3_999] = 7  # a late worker
            yield batch

    _compare(walk(), numbers, Stalls(deaths=0), outcome, random.Random(0))
    assert [line.split(":")[0] for line in outcome.wrong] == ["step 1, some batches later"]
