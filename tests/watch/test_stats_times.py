"""Times in the statistics are right to the nanosecond of a clock that dataset and training loop turn themselves."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from tests.watch.watched import MS, Hand, Timed

from stoker import DataLoader
from stoker.contracts import Answer, Report
from stoker.watch.tally import PassTally, Tally
from stoker.watch.watch import Watch


def timed(**options: Any) -> tuple[DataLoader[Any], Hand]:
    clock = Hand()
    loader: DataLoader[Any] = DataLoader(Timed(clock, **options))
    loader._course.watch = Watch(Tally(clock))
    return loader, clock


def test_waits_are_what_the_training_loop_waited_and_no_more() -> None:
    loader, clock = timed()
    for _ in loader:
        clock.turn(30)  # the model
    stats = loader.stats()
    assert stats.wait_s == pytest.approx(0.010 + 0.020 + 0.030 + 0.040)
    assert stats.seconds == pytest.approx(0.100 + 4 * 0.030)
    assert stats.wait_share == pytest.approx(100 / 220)
    assert stats.samples_per_s == pytest.approx(4 / 0.220)
    assert stats.bytes_per_s == pytest.approx(32 / 0.220)
    assert stats.wait_quantiles_s == {"median": 0.03, "p90": 0.04, "p99": 0.04, "longest": 0.04}
    assert (stats.start_up_s, stats.first_batch_s) == (0.0, 0.01)


def test_time_between_passes_is_nobodys() -> None:
    loader, clock = timed()
    list(loader)
    clock.turn(100_000)  # an evaluation
    assert loader.stats().seconds == pytest.approx(0.1)
    list(loader)
    clock.turn(100_000)
    assert loader.stats().seconds == pytest.approx(0.2)
    assert loader.stats().wait_s == pytest.approx(0.2)


def test_a_pass_that_is_left_early_ends_with_its_last_batch() -> None:
    loader, clock = timed()
    for _ in loader:
        break
    clock.turn(5_000)
    assert loader.stats().seconds == pytest.approx(0.01)
    list(loader)
    assert loader.stats().seconds == pytest.approx(0.11)


def test_a_pass_under_way_goes_on_and_a_closed_one_does_not() -> None:
    loader, clock = timed()
    batches = iter(loader)
    next(batches)
    clock.turn(90)
    assert loader.stats().seconds == pytest.approx(0.1)
    batches.close()  # type: ignore[attr-defined]
    assert loader.stats().seconds == pytest.approx(0.01)


def test_asking_again_after_the_end_counts_nothing() -> None:
    loader, clock = timed()
    batches = iter(loader)
    assert len(list(batches)) == 4
    clock.turn(50)
    assert next(batches, None) is None
    assert loader.stats().seconds == pytest.approx(0.1)


def test_waiting_for_a_batch_that_fails_is_waiting() -> None:
    loader, _clock = timed(bad=(1,))
    batches = iter(loader)
    next(batches)
    with pytest.raises(ValueError, match="1"):
        next(batches)
    assert len(list(batches)) == 2
    stats = loader.stats()
    assert (stats.steps, stats.samples) == (3, 3)
    assert stats.wait_s == pytest.approx(0.1)


def test_a_wait_that_is_not_over_counts_already() -> None:
    clock, tally = Hand(), Tally()
    tally.clock = clock
    owner = threading.Event()
    count = tally.begin_pass(clock(), owner, 0)
    clock.turn(100)
    count.asked_ns = clock()
    clock.turn(700)
    stats = tally.stats(1, failures=0, slots=0, slots_in_use=0, slots_leased=0)
    assert (stats.wait_s, stats.seconds, stats.steps) == (0.7, 0.8, 0)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_a_listener_takes_inside_next_is_waiting(device: str | None) -> None:
    clock = Hand()
    loader: DataLoader[Any] = DataLoader(Timed(clock, milliseconds=0), device=device)
    loader._course.watch = Watch(Tally(clock))
    seen: list[float] = []
    loader.on_stats(lambda stats, _step: (seen.append(stats.wait_s), clock.turn(7)), every=2)
    for _ in loader:
        clock.turn(30)  # the model
    assert loader.stats().wait_s == pytest.approx(0.007 * len(seen))
    assert loader.stats().seconds == pytest.approx(4 * 0.030 + 0.007 * len(seen))
    assert sum(seen) == pytest.approx(0.007 * (len(seen) - 1))  # told before it was over: the next window has it


def test_a_look_at_memory_counts_in_the_window_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, clock = timed(milliseconds=0)
    loader._course.watch.tally.memory.due_ns = 1
    monkeypatch.setattr(loader._course.watch.tally.memory, "look", lambda _pids: clock.turn(5))
    seen: list[float] = []
    loader.on_stats(lambda stats, _step: seen.append(stats.wait_s), every=1)
    batches = iter(loader)
    next(batches)
    clock.turn(30)  # the model
    next(batches)
    assert sum(seen) == pytest.approx(0.010)


def test_a_listener_that_raises_ends_the_wait() -> None:
    loader, clock = timed(milliseconds=0)

    def tell(_stats: Any, _step: int) -> None:
        clock.turn(5)
        raise KeyError("a logger")

    loader.on_stats(tell, every=3)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    with pytest.raises(KeyError):
        next(batches)
    clock.turn(1000)  # the training loop does something else
    assert loader.stats().wait_s == pytest.approx(0.005)
    assert len(list(batches)) == 1
    assert loader.stats().wait_s == pytest.approx(0.005)


def test_two_passes_side_by_side_are_both_counted() -> None:
    loader, clock = timed()
    for _ in zip(loader, loader, strict=True):
        clock.turn(1)
    stats = loader.stats()
    assert (stats.steps, stats.samples) == (8, 8)
    assert stats.wait_s == pytest.approx(0.2)
    assert stats.wait_share <= 1


def test_until_somebody_loads_is_start_up_and_the_rest_of_the_first_wait_is_loading() -> None:
    clock = Hand()
    tally, begun_ns = Tally(clock), clock()
    clock.turn(5)  # processes are started
    count = tally.begin_pass(begun_ns, clock, 2)
    for began_ms, worker in ((25, 1), (20, 0)):  # they import for a while
        count.heard(Report(0, Answer.DONE, 0, 1, worker, busy_ns=10 * MS, began_ns=begun_ns + began_ms * MS))
    count.log.extend((begun_ns + 5 * MS, begun_ns + 40 * MS, 8, 64))  # asked, got, samples, bytes
    clock.turn(35)
    stats = tally.stats(1, failures=0, slots=0, slots_in_use=0, slots_leased=0)
    assert (stats.start_up_s, stats.first_batch_s) == (0.020, 0.020)
    assert stats.wait_s == 0.040


def test_what_a_worker_did_before_the_pass_is_not_counted_in_its_share() -> None:
    count = PassTally(begun_ns=100, now_ns=110, owner=threading.Event(), workers=2, waits_ns=deque())
    count.heard(Report(0, Answer.DONE, 0, 1, 1, busy_ns=50, began_ns=80))
    count.heard(Report(0, Answer.DONE, 0, 1, 1, busy_ns=10, began_ns=20))
    count.heard(Report(0, Answer.FAILED, 0, 1, 0))  # given in the name of a dead worker
    assert count.busy_ns == [0, 30]
    assert count.first_load_ns == 0


def test_passes_beyond_number_are_folded() -> None:
    loader, _clock = timed()
    for _ in range(50):
        list(loader)
    assert len(loader._course.watch.tally._passes) == 1
    assert loader.stats().steps == 200


def test_summing_up_on_the_way_changes_nothing() -> None:
    loader, clock = timed()
    for _ in loader:
        clock.turn(30)
        before = loader.stats(memory=False)
        loader._course.watch._latest().count.sum_up()  # type: ignore[misc, union-attr]
        assert loader.stats(memory=False) == before
    assert loader.stats(memory=False).steps == 4
