"""A diagnosis keeps to its time, reads what nobody has read, and says first what makes it doubtful."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

import stoker
from stoker.diagnosis import Cause, crowd, diagnose
from stoker.diagnosis.bound import Alarm, Deadline, OutOfTime
from stoker.diagnosis.facts import Change, Diagnosis, Facts, GivenLoader, Inside, Pace, Sample, TriedChange
from stoker.diagnosis.ground import Ground, Onward
from stoker.diagnosis.inside import look_inside
from stoker.diagnosis.judge import judge
from stoker.diagnosis.noted import noting, with_notes
from stoker.diagnosis.pace import Bounds, TooSlow, pace_of
from stoker.diagnosis.rig import given_of
from stoker.diagnosis.streams import judge_streams, streams_of
from stoker.diagnosis.suspects import suspects
from stoker.diagnosis.words import advice, numbers, verdict
from stoker.report.findings import closing

SAMPLE = Sample(64, 0.01, 0.9, 0.0, 0.01, 0.01, 1000, 0.0)
GIVEN = GivenLoader("torch", "map", cores=4, batches=1000, batch_size=16, processes=2, prefetch=2)
PACE = Pace(0.1, 0.1, 0.0, 16, 50)


class Keys(Dataset[int]):
    """Remembers which keys were asked for, in this process."""

    def __init__(self, length: int = 160) -> None:
        self.asked: list[int] = []
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: int) -> int:
        self.asked.append(key)
        return key


class Never(Keys):
    """A sample that does not come while anybody waits for it."""

    def __getitem__(self, key: int) -> int:
        time.sleep(600)
        return key


class Numbers(IterableDataset[int]):
    """A stream: read whole by every worker, by the first one only, or split."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if self.how == "one" and number:
            return iter(())
        return iter(range(number, 1000, workers) if self.how == "split" else range(1000))


def facts(**more: Any) -> Facts:
    more.setdefault("inside", Inside(SAMPLE))
    return Facts(more.pop("given", GIVEN), more.pop("alone", PACE), **more)


# The time.


def test_an_alarm_interrupts_whoever_waits_and_nobody_else() -> None:
    with Alarm(0.01) as alarm:
        time.sleep(0.05)  # a step
        alarm.waiting = True
        with pytest.raises(OutOfTime):
            time.sleep(600)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(0.0, abs=600)  # a test runner's own may be on
    assert signal.getsignal(signal.SIGALRM) != alarm._ring


def test_an_alarm_leaves_that_of_others_as_it_was() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    kept = signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        with Alarm(100.0):
            pass
        assert 400.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500.0
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.setitimer(signal.ITIMER_REAL, *kept)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("kind", "workers"), [(DataLoader, 0), (DataLoader, 1), (stoker.DataLoader, 0)])
def test_a_batch_that_does_not_come_is_not_waited_for(kind: Any, workers: int) -> None:
    loader = kind(Never(), batch_size=4, num_workers=workers)
    with pytest.raises(TooSlow, match="gave no batch within"):
        pace_of(loader, given_of(loader), Bounds(0.01, limit_s=0.2))


def test_a_look_that_takes_too_long_gives_what_it_has_seen() -> None:
    inside = look_inside(DataLoader(Never(), batch_size=4), given_of(DataLoader(Never(), batch_size=4)), 0.1, 0.3)
    assert inside.sample is None
    assert inside.drawn_s > 0.0


def test_a_deadline_gives_what_is_left() -> None:
    assert 4.0 < Deadline(10.0).share(0.5) <= 5.0
    assert Deadline(0.0).share(0.5) == Deadline(0.0).left_s == 0.0


def test_a_batch_that_never_came_has_a_verdict_too() -> None:
    waited = Pace(9.0, 9.0, 0.0, 16.0, 0, start_known=False)
    slow = facts(alone=waited, inside=Inside(replace(SAMPLE, seconds=2.0)), hurried="no batch came within 9.0 s")
    assert judge(slow) is Cause.STORAGE
    assert verdict(slow, Cause.STORAGE).startswith("The loader gave no batch within 9.0 s")
    assert "more --seconds" in advice(slow, Cause.STORAGE)
    starting = replace(slow, inside=Inside(replace(SAMPLE, seconds=1e-4)))
    assert judge(starting) is Cause.EPOCH_START  # nobody has begun to load
    assert "had not given a batch" in verdict(starting, Cause.EPOCH_START)


def test_a_slow_step_is_made_as_seldom_as_possible() -> None:
    made: list[float] = []

    def step(_batch: Any) -> None:
        made.append(time.perf_counter())
        time.sleep(1.0)

    found = diagnose(DataLoader(list(range(640)), batch_size=4), step, seconds=3)  # type: ignore[arg-type]
    assert found.cause is Cause.MODEL
    assert len(made) <= 5


# The ground.


def test_an_order_goes_on_where_it_was_left_and_is_whole_the_next_time() -> None:
    order = Onward([[0], [1], [2], [3]], skipped=2)
    iter(order)  # torch makes an iterator that it does not use
    assert list(order) == [[2], [3]]
    assert list(order) == [[0], [1], [2], [3]]
    short = Onward([[0], [1], [2], [3]], skipped=1, most=2)
    assert list(short) == [[1], [2]]
    assert len(short) == 4


@pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
def test_every_pass_reads_what_no_other_has_read(kind: Any) -> None:
    dataset = Keys(4000)
    loader = kind(dataset, batch_size=4)
    ground = Ground(loader, given_of(loader))
    passes = []
    for _ in range(3):
        dataset.asked.clear()
        ground.pace(Bounds(0.0, most=3))
        passes.append(set(dataset.asked))
    assert all(passes)
    assert not passes[0] & passes[1] | passes[1] & passes[2] | passes[0] & passes[2]
    assert not ground.rereads


@pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
def test_an_order_that_is_used_up_is_read_again_and_that_is_told(kind: Any) -> None:
    loader = kind(Keys(16), batch_size=4)
    ground = Ground(loader, given_of(loader), taken=3)
    ground.pace(Bounds(0.0))
    assert loader.dataset.asked[0] == 0
    assert ground.rereads


def test_a_sampler_that_takes_long_is_not_drawn_from_only_to_leave_out() -> None:
    loader: Any = DataLoader(Keys(400), batch_size=4)
    ground = Ground(loader, given_of(loader), drawn_s=1.0, taken=50)
    dataset: Any = loader.dataset
    ground.pace(Bounds(0.0, most=2))
    assert dataset.asked[0] == 0
    assert ground.rereads


class SlowStart(Sampler[int]):
    """Computes its order whenever an epoch begins."""

    def __init__(self) -> None:
        self.begun = 0

    def __len__(self) -> int:
        return 400

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        time.sleep(0.2)
        yield from range(400)


@pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
def test_the_start_of_an_epoch_of_workers_that_are_kept_is_timed(kind: Any) -> None:
    loader = kind(Keys(400), batch_size=4, sampler=SlowStart(), num_workers=1, persistent_workers=True)
    pace = Ground(loader, given_of(loader)).pace(Bounds(0.01))
    assert pace.start_known
    assert pace.first_s >= 0.2


def test_a_stream_of_workers_that_are_kept_has_a_second_start_too() -> None:
    loader: Any = DataLoader(Numbers("whole"), batch_size=4, num_workers=1, persistent_workers=True)
    ground = Ground(loader, given_of(loader))
    assert ground.pace(Bounds(0.01)).start_known
    started = Pace(7.0, 0.1, 0.0, 4.0, 9)
    assert ground.pace(Bounds(0.01), started=started).first_s >= 7.0  # not timed once more


def test_a_start_that_was_not_timed_is_said_not_to_be_known() -> None:
    unknown = facts(alone=replace(PACE, start_known=False))
    assert dict(numbers(unknown))["first batch of an epoch"].startswith("not known")


def test_samples_that_somebody_remembers_are_not_promised_anything_when_read_again() -> None:
    remembered = Inside(replace(SAMPLE, once_s=0.01, again_s=0.0001))
    tried = (TriedChange(Change({"num_workers": 4}), (2.0, 2.0), (1.0, 1.0)),)
    fresh = Diagnosis(Cause.STORAGE, "", facts(inside=remembered), tried)
    assert [one.promise for one in fresh.changes] == [2.0]
    assert "read for the first time" in dict(numbers(fresh.facts))["beware"]
    warmed = replace(fresh, facts=facts(inside=remembered, rereads=True))
    assert warmed.changes == []
    assert verdict(warmed.facts, Cause.STORAGE).startswith("Samples were read again")
    assert "No change is promised" in closing(warmed)[0]


# The machine.


@pytest.mark.parametrize(
    ("crowded", "words"),
    [
        ({"crowding": 3.0}, "computing takes 3.0 times its time"),
        ({"load": 20.0}, "its load average is 20.0 times its cores"),
        ({"taken": 1.0}, "other programs use 100% of its cores"),
    ],
)
def test_a_crowded_machine_is_told_first_and_nothing_is_promised(crowded: dict[str, float], words: str) -> None:
    seen = facts(**crowded)
    found = Diagnosis(
        Cause.STORAGE, verdict(seen, Cause.STORAGE), seen, (TriedChange(Change({}, "stoker"), (9.0,), (1.0,)),)
    )
    assert found.verdict.startswith(f"This machine is crowded ({words})")
    assert found.changes == []
    assert not any("expect" in line for line in closing(found))


def test_a_machine_that_swaps_is_told() -> None:
    assert "beware" not in dict(numbers(facts(swapped_bytes=1000)))
    assert "memory is short" in dict(numbers(facts(swapped_bytes=10**9)))["beware"]
    assert crowd.swapped_bytes() >= 0


def test_the_load_is_counted_by_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (40.0, 1.0, 1.0), raising=False)
    assert crowd.load_per_core() == 10.0
    assert 0.0 <= crowd.share_taken(0.01) <= 1.0


# Causes.


def test_a_sampler_that_computes_is_named_whoever_loads() -> None:
    for given in (GIVEN, replace(GIVEN, processes=0), replace(GIVEN, kind="stoker", lanes=8)):
        seen = facts(given=given, inside=Inside(replace(SAMPLE, seconds=1e-4), drawn_s=0.09, handed_s=0.002))
        assert judge(seen) is Cause.SAMPLER
        assert "takes 90.0 ms to draw the indices of a batch" in verdict(seen, Cause.SAMPLER)
        assert suspects(seen) == []
    assert "at once" in advice(seen, Cause.SAMPLER)


class Pondering(Sampler[int]):
    def __len__(self) -> int:
        return 64

    def __iter__(self) -> Iterator[int]:
        for key in range(64):
            time.sleep(0.002)
            yield key


@pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
@pytest.mark.parametrize("workers", [0, 1])
def test_drawing_is_timed_apart_from_handing_over(kind: Any, workers: int) -> None:
    loader = kind(list(range(64)), batch_size=4, sampler=Pondering(), num_workers=workers)
    inside = look_inside(loader, given_of(loader), 0.5, 20.0)
    assert inside.trouble == ""
    assert inside.drawn_s >= 0.008
    assert inside.handed_s is None or inside.handed_s < inside.drawn_s + 0.1


def test_few_samples_far_above_the_middle_are_stragglers() -> None:
    slow = replace(SAMPLE, count=97, seconds=0.006, median_s=0.002, longest_s=0.4, slow=1, slow_share=0.67)
    for given in (GIVEN, replace(GIVEN, processes=0)):
        seen = facts(given=given, inside=Inside(slow))
        assert judge(seen) is Cause.STRAGGLERS
        assert "up to 400.0 ms (one in 97)" in verdict(seen, Cause.STRAGGLERS)
    words = advice(seen, Cause.STRAGGLERS)
    assert all(word in words for word in ('share="rows"', "prefetch_factor", "in_order=False", "sample_timeout_s"))
    many = replace(slow, seconds=0.012, slow=48)  # every second one: that is no straggler
    assert judge(facts(inside=Inside(many))) is Cause.STORAGE


def test_slow_batches_that_the_look_does_not_explain_are_stragglers() -> None:
    spiky = replace(PACE, step_s=0.2, round=2, middle_s=0.16, longest_s=3.0)
    assert judge(facts(alone=spiky)) is Cause.STRAGGLERS
    assert "2 batches take 160.0 ms in the middle but up to 3.0 s" in verdict(facts(alone=spiky), Cause.STRAGGLERS)


class Bulk(Keys):
    """Gives a batch in one call, which takes as long as one sample would."""

    def __getitem__(self, key: int) -> int:
        raise AssertionError("nobody asks for a single sample")

    def __getitems__(self, keys: list[int]) -> list[int]:
        time.sleep(0.02)
        return keys


def test_a_dataset_that_gives_whole_batches_is_asked_for_whole_batches() -> None:
    loader: Any = DataLoader(Bulk(4000), batch_size=100)
    inside = look_inside(loader, given_of(loader), 0.3, 20.0)
    assert inside.trouble == ""
    assert inside.sample is not None
    assert 0.0002 <= inside.sample.seconds < 0.02


class OneIsSlow(Keys):
    def __getitem__(self, key: int) -> int:
        time.sleep(0.05 if key == 37 else 0.001)
        return key


@pytest.mark.parametrize("workers", [0, 1])
def test_every_sample_of_a_pass_is_noted_wherever_it_is_loaded(workers: int) -> None:
    dataset = OneIsSlow(60)
    loader: Any = DataLoader(
        dataset, batch_size=4, num_workers=workers, multiprocessing_context=("fork" if workers else None)
    )
    sample = replace(SAMPLE, count=8, median_s=0.001)
    with noting(loader, given_of(loader), sample) as notes:
        list(loader)
        assert notes is not None
        seen = with_notes(sample, notes)
    assert type(dataset) is OneIsSlow
    assert seen.count == 59  # without the first
    assert seen.longest_s >= 0.05
    assert seen.slow >= 1


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([["a", "b"], ["a", "b"]], "same"),
        ([["a", "a"], ["a", "a"]], ""),  # all alike: nothing can be said
        ([["a", "c"], ["b", "d"]], "split"),
        ([["a", "b", "c", "d"]], "one"),
        ([], ""),
    ],
)
def test_streams_are_told_apart_by_what_workers_give(found: list[list[str]], words: str) -> None:
    assert judge_streams(found, all_asked=True) == words


@pytest.mark.parametrize(("how", "words"), [("whole", "same"), ("one", "one"), ("split", "split")])
def test_workers_say_what_each_of_them_gets(how: str, words: str) -> None:
    loader: Any = DataLoader(Numbers(how), batch_size=4, num_workers=2)
    assert streams_of(loader, given_of(loader), 30.0) == words


@pytest.mark.parametrize("streams", ["same", "one"])
def test_a_stream_that_is_not_split_is_named_with_how_to_split_it(streams: str) -> None:
    given = replace(GIVEN, dataset="iterable", batches=None)
    seen = facts(given=given, inside=Inside(SAMPLE, streams=streams))
    assert judge(seen) is Cause.ONE_STREAM
    assert "get_worker_info()" in advice(seen, Cause.ONE_STREAM)
    assert verdict(seen, Cause.ONE_STREAM).startswith("Every one") == (streams == "same")
    alone = replace(seen, given=replace(given, processes=1))
    assert judge(alone) is not Cause.ONE_STREAM
    assert "get_worker_info()" in advice(alone, judge(alone))


def test_nobody_is_told_to_start_more_processes_than_cores() -> None:
    for processes in (0, 1, 2, 8):
        for waiting in (0.0, 0.99):
            for lanes in (1, 4):
                given = replace(
                    GIVEN, cores=2, processes=processes, lanes=lanes, kind="stoker" if lanes > 1 else "torch"
                )
                for change in suspects(facts(given=given, inside=Inside(replace(SAMPLE, waiting=waiting)))):
                    asked = change.arguments.get("num_workers", 0)
                    workers = change.arguments.get("workers", stoker.Workers(processes=asked))
                    assert workers.processes <= 2, str(change)


def test_a_step_that_converts_its_batch_is_copying() -> None:
    batches = torch.zeros(8, 3, 64, 64, dtype=torch.uint8)
    static = torch.zeros(4, 3, 64, 64)
    copied = facts(
        model_s=0.001, copy_s=0.2, copies=((".copy_", 0.2),), together=replace(PACE, step_s=0.3, model_s=0.2)
    )
    assert judge(copied) is Cause.COPYING
    assert "copies and converts its batch for 200.0 ms (.copy_)" in verdict(copied, Cause.COPYING)
    assert "collate_fn" in advice(copied, Cause.COPYING)
    found = diagnose(DataLoader(batches, batch_size=4), lambda batch: static.copy_(batch), seconds=3)  # type: ignore[arg-type]
    assert [name for name, _ in found.facts.copies] == [".copy_"]
