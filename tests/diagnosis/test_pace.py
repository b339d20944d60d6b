"""Short passes say what an epoch takes: with a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given as assume
from hypothesis import strategies as st

from stoker.bench.trial import Trial
from stoker.diagnosis.facts import GivenLoader
from stoker.diagnosis.pace import NoBatch, pace_of, step_of


@dataclass
class Bench:
    """A clock, and a loader whose batches arrive in bursts by it."""

    batches: int
    burst: int = 1
    period_s: float = 1.0
    start_s: float = 5.0
    now_s: float = 0.0
    starts: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.now_s += self.start_s if not self.starts else self.starts.pop(0)
        for number in range(self.batches):
            if number % self.burst == 0:
                self.now_s += self.period_s
            yield torch.zeros(4, 2)

    def model(self, _batch: Any) -> None:
        self.now_s += 0.25


WORKERS = GivenLoader("torch", "map", 2, processes=4)
INLINE = GivenLoader("torch", "map", 2)


def test_a_long_epoch_follows_from_its_beginning() -> None:
    bench = Bench(batches=10_000)
    pace = pace_of(bench, INLINE, 20.0, clock=bench.clock)
    assert (pace.first_s, pace.step_s, pace.rows) == (6.0, 1.0, 4)
    assert pace.epoch_s is None
    assert pace.epoch(10_000) == 6.0 + 9_999 * 1.0
    assert pace.epoch(None) == 1000.0
    assert pace.per_sample(10_000) == pytest.approx(10_005 / 40_000)


def test_a_batch_has_as_many_rows_as_its_loader_says() -> None:
    bench = Bench(batches=3)
    assert pace_of(bench, GivenLoader("torch", "map", 2, batch_size=9), 1.0, clock=bench.clock).rows == 9


def test_the_model_is_part_of_a_step() -> None:
    bench = Bench(batches=10_000)
    pace = pace_of(bench, INLINE, 20.0, bench.model, bench.clock)
    assert (pace.step_s, pace.model_s) == (1.25, 0.25)


@assume(st.integers(1, 8), st.integers(2, 40))
def test_bursts_are_counted_whole(burst: int, batches: int) -> None:
    waits = tuple(2.0 if number % burst == 0 else 0.0 for number in range(batches))
    step_s = step_of(Trial(1, 1, 7.0, waits, (0.0,) * batches, 0.0), burst)
    if batches >= 2 * burst:
        assert step_s == pytest.approx(2.0 / burst)


def test_workers_that_hand_over_in_bursts_are_not_flattered() -> None:
    bench = Bench(batches=10_000, burst=4, period_s=4.0)
    assert pace_of(bench, WORKERS, 30.0, clock=bench.clock).step_s == pytest.approx(1.0)


def test_a_short_epoch_is_timed_whole_again_and_again() -> None:
    bench = Bench(batches=3)
    pace = pace_of(bench, INLINE, 40.0, clock=bench.clock)
    assert pace.epoch_s == 8.0
    assert pace.epoch_batches == 3
    assert pace.batches == 15  # five epochs of eight seconds
    assert pace.epoch(3) == 8.0
    assert pace.start_s() == 5.0


def test_the_first_epoch_of_workers_that_are_kept_does_not_count() -> None:
    bench = Bench(batches=3, start_s=0.5, starts=[60.0])
    kept = GivenLoader("torch", "map", 2, processes=1, keeps_workers=True)
    assert pace_of(bench, kept, 70.0, clock=bench.clock).epoch_s == 3.5
    long = Bench(batches=10_000, start_s=60.0)
    assert pace_of(long, kept, 70.0, clock=long.clock).start_s() == 0.0


def test_a_pass_has_enough_batches_but_not_at_any_price() -> None:
    slow = Bench(batches=10_000, burst=4, period_s=4.0)
    assert pace_of(slow, WORKERS, 6.0, clock=slow.clock).batches == 10  # two bursts and a little more
    slower = Bench(batches=10_000, burst=4, period_s=100.0)
    assert pace_of(slower, WORKERS, 6.0, clock=slower.clock).batches == 5  # four times the time is up


def test_lanes_hand_over_all_that_is_under_way_at_once() -> None:
    lanes = GivenLoader("stoker", "map", 2, batch_size=16, processes=2, lanes=16, prefetch=2)
    assert lanes.burst == 4
    assert GivenLoader("stoker", "map", 2, batch_size=4, processes=2, lanes=16).burst == 16
    assert WORKERS.burst == 4
    assert INLINE.burst == 1


def test_an_empty_loader_is_refused() -> None:
    bench = Bench(batches=0)
    with pytest.raises(NoBatch, match="is the dataset empty"):
        pace_of(bench, INLINE, 1.0, clock=bench.clock)
