"""A trial with a clock that is turned by hand and a loader that follows a script: no time passes in these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import BatchPlan, StepBatch
from stoker.bench.trial import Trial, count_bytes, count_samples, measure


class HandClock:
    """Stands still until someone moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def move(self, seconds: float) -> None:
        self.now_s += seconds


class ScriptedLoader:
    """Takes `start_s` to begin, the scripted time for each batch of four float32 pairs, `end_s` to end."""

    def __init__(self, clock: HandClock, waits_s: list[float], start_s: float = 0.0, end_s: float = 0.0) -> None:
        self.clock, self.waits_s, self.start_s, self.end_s = clock, waits_s, start_s, end_s

    def __iter__(self) -> Iterator[Any]:
        self.clock.move(self.start_s)
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        for wait_s in self.waits_s:
            self.clock.move(wait_s)
            yield np.zeros((4, 2), np.float32)
        self.clock.move(self.end_s)


def test_every_part_of_a_pass_is_told_apart() -> None:
    clock = HandClock()
    loader = ScriptedLoader(clock, [2.0, 0.5, 0.25], start_s=1.0, end_s=0.125)
    trial = measure(loader, model=lambda _batch: clock.move(0.75), clock=clock)
    assert trial == Trial(
        samples=12, size_bytes=96, start_s=1.0, waits_s=(2.0, 0.5, 0.25), models_s=(0.75, 0.75, 0.75), end_s=0.125
    )
    assert trial.first_batch_s == 3.0
    assert trial.waiting_s == 3.875
    assert trial.seconds == 6.125
    assert trial.wait_share == pytest.approx(3.875 / 6.125)
    assert trial.samples_per_s == pytest.approx(12 / 6.125)
    assert trial.bytes_per_s == pytest.approx(96 / 6.125)
    assert trial.later_step_s == pytest.approx((0.5 + 0.25 + 1.5) / 2)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_parts_add_up_to_all_the_time_that_passed(waits: list[int], start: int, end: int, model: int) -> None:
    clock = HandClock()
    measure_from_s = clock.now_s
    loader = ScriptedLoader(clock, [float(wait) for wait in waits], float(start), float(end))
    trial = measure(loader, model=lambda _batch: clock.move(model), clock=clock)
    assert trial.seconds == clock.now_s - measure_from_s
    assert trial.batches == len(waits)


def test_a_limit_stops_asking() -> None:
    clock = HandClock()
    trial = measure(ScriptedLoader(clock, [1.0] * 9, end_s=50.0), clock=clock, limit=2)
    assert (trial.batches, trial.seconds, trial.end_s) == (2, 2.0, 0.0)


def test_a_pass_without_batches_has_no_first_batch() -> None:
    clock = HandClock()
    trial = measure(ScriptedLoader(clock, [], end_s=1.0), clock=clock)
    assert (trial.samples, trial.samples_per_s, trial.wait_share) == (0, 0.0, 1.0)
    with pytest.raises(ValueError, match="no batch"):
        _ = trial.first_batch_s
    with pytest.raises(ValueError, match="had 0"):
        _ = trial.later_step_s


def test_the_previous_batch_is_held_while_the_next_is_waited_for() -> None:
    import weakref

    alive: list[bool] = []

    def batches() -> Iterator[Any]:
        previous: weakref.ref[Any] | None = None
        for _ in range(3):
            alive.append(previous is not None and previous() is not None)
            batch = np.zeros(1)
            previous = weakref.ref(batch)
            yield batch
            del batch

    measure(batches())
    assert alive == [False, True, True]


@pytest.mark.parametrize(
    ("batch", "samples", "size_bytes"),
    [
        (np.zeros((5, 2), np.float64), 5, 80),
        ([np.zeros((3, 2), np.float32), np.zeros(3, np.int64)], 3, 48),
        ({"a": {"b": np.zeros((6, 1), np.uint8)}, "label": ["x"] * 6}, 6, 6),
        (["cat", "dog"], 2, 0),
        (StepBatch((np.zeros((4, 2), np.float32), ["x"] * 4), BatchPlan(2, replicas=2)), 4, 32),
        (StepBatch(["cat", "dog"], BatchPlan(2)), 2, 0),
        (np.float64(1.0), 1, 8),
        (7, 1, 0),
        ([], 0, 0),
    ],
)
def test_samples_and_bytes_of_a_batch(batch: Any, samples: int, size_bytes: int) -> None:
    assert count_samples(batch) == samples
    assert count_bytes(batch) == size_bytes


def test_torch_batches_are_counted_as_arrays_are() -> None:
    torch = pytest.importorskip("torch")
    batch = [torch.zeros(4, 3, 2), torch.zeros(4, dtype=torch.int64)]
    assert (count_samples(batch), count_bytes(batch)) == (4, 4 * 6 * 4 + 32)


def test_the_ending_is_called_once_after_the_clock_while_the_iterator_is_held() -> None:
    clock = HandClock()
    alive: list[bool] = []

    def batches() -> Iterator[Any]:
        try:
            yield from ([np.zeros((4, 2), np.float32)] * 3)
        finally:
            alive.append(False)

    def ending() -> None:
        alive.append(True)
        clock.move(9.0)

    trial = measure(batches(), clock=clock, limit=2, ending=ending)
    assert alive == [True, False]
    assert (trial.batches, trial.seconds) == (2, 0.0)
