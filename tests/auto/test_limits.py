"""What "auto" may do, what it is told, and what it tells."""

from __future__ import annotations

import json
import logging
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.auto import steering as steering_module
from stoker.auto.choice import Wanted, decide
from stoker.auto.controller import Decision
from stoker.auto.memory import room_for
from stoker.auto.probe import probe
from stoker.auto.processor import ProcessorTime, core_share
from stoker.auto.size import Limits, Size
from stoker.auto.steering import Steering
from stoker.options import Workers
from stoker.watch.tally import Counts


class Numbers:
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        return index


class Drawn(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index, np.random.rand()


class NeedsInit(Numbers):
    opened = False

    def __getitem__(self, index: int) -> int:
        assert NeedsInit.opened
        return index


def open_it(worker: int) -> None:
    NeedsInit.opened = True


# Ranges.


def test_a_range_is_two_numbers_and_the_least_is_the_number() -> None:
    workers = Workers(processes=(1, 8), threads=(2, 32))
    assert (workers.processes, workers.most_processes, workers.threads, workers.most_threads) == (1, 8, 2, 32)
    assert workers.is_range
    assert not Workers(4, 2).is_range
    assert workers.fixed_at(3, 4) == Workers(3, 4)
    assert workers.fixed_at(3, 1) == Workers(3)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((3, 1), ValueError, "processes should be at least 3"),
        ((0, 0), ValueError, "processes should be at least 1"),
        ((1,), ValueError, "a range"),
        ((1, 2, 3), ValueError, "a range"),
        ((1, "many"), TypeError, "whole number"),
        ((-1, 2), ValueError, "processes should be at least 0"),
    ],
)
def test_what_is_no_range_is_refused(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Workers(processes=given)


def test_numbers_beside_auto_are_the_most_there_may_be() -> None:
    assert Limits.of(None, True, 8) == Limits(0, 8, 1, 32)
    assert Limits.of(Workers(4), True, 8) == Limits(0, 4, 1, 32)
    assert Limits.of(Workers(4, 2), True, 8) == Limits(0, 4, 1, 2)
    assert Limits.of(Workers((1, 3), (4, 6)), False, 8) == Limits(1, 3, 4, 6)
    assert Limits.of(Workers((1, 3)), False, 8) == Limits(1, 3, 1, 1)


def test_limits_survive_being_written_as_ranges() -> None:
    for limits in (Limits(0, 8, 1, 32), Limits(1, 3, 4, 6), Limits(2, 2, 1, 1)):
        assert Limits.of(limits.written_in(Workers(on_death="restart")), False, 4) == limits


def test_a_loader_keeps_within_its_range() -> None:
    loader = stoker.DataLoader(Numbers(), batch_size=10, workers=Workers(processes=(1, 2)))
    assert loader.stats().fixed == Workers(1)
    assert [batch.tolist() for batch in loader] == [list(range(n, n + 10)) for n in range(0, 400, 10)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_workers": 3, "workers": Workers(processes=(1, 2))}, "not within the range"),
        ({"num_workers": "auto", "workers": Workers(2, share="parts")}, "share"),
        ({"num_workers": "many"}, "whole number"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        stoker.DataLoader(Numbers(), **arguments)


# The first look.


def test_samples_that_draw_are_seen_to_and_keyed_by_the_sample() -> None:
    assert probe(Drawn()).draws
    assert not probe(Numbers()).draws
    chosen = decide(Wanted(Drawn()))
    assert chosen.draws
    assert chosen.limits is not None
    assert chosen.limits.most_lanes == 1
    loaders = [
        stoker.DataLoader(Drawn(), batch_size=10, seed=1, **who)
        for who in ({"num_workers": "auto"}, {"reseed": "sample"}, {"reseed": "sample", "num_workers": 2})
    ]
    first, *others = [torch.cat([drawn for _, drawn in loader]) for loader in loaders]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("dataset", [Drawn, Numbers])
def test_the_generators_of_the_training_process_are_left_alone(dataset: type) -> None:
    def after(**who: Any) -> Any:
        torch.manual_seed(0)
        np.random.seed(0)
        for _ in stoker.DataLoader(dataset(), batch_size=100, **who):
            pass
        return torch.rand(1).item(), np.random.rand()

    reseed = {"reseed": "sample"} if dataset is Drawn else {}
    assert after(num_workers="auto") == after(**reseed)


def test_a_collate_of_the_users_own_counts() -> None:
    calls = []

    def collate(samples: list[int]) -> int:
        calls.append(len(samples))
        return sum(samples)

    looked = probe(Numbers(), collate=collate)
    assert calls
    assert looked.collate_s > 0
    assert looked.copy_s == looked.collate_s
    plain = probe(Numbers())
    assert plain.copy_s == plain.sample_bytes / 4e9


def test_what_only_a_process_can_do_is_done_by_one() -> None:
    loader = stoker.DataLoader(NeedsInit(), batch_size=100, num_workers="auto", worker_init_fn=open_it)
    assert [len(batch) for batch in loader] == [100] * 4
    assert loader.stats().fixed.processes >= 1  # type: ignore[union-attr]
    assert not NeedsInit.opened


def test_datasets_that_keep_a_state_stay_with_their_number() -> None:
    class Stateful(Numbers):
        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None: ...

    assert decide(Wanted(Stateful(), keeps_state=True)).limits is None


# The processor.


def test_cores_are_shared_with_the_other_ranks_and_bounded_by_the_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stoker.auto.processor.cores", lambda: 16)
    assert core_share(tmp_path) == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert core_share(tmp_path) == 4
    (tmp_path / "cpu.max").write_text("800000 100000\n")
    assert core_share(tmp_path) == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert core_share(tmp_path) == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "all of them")
    assert core_share(tmp_path) == 16


def test_processor_time_is_counted_for_processes_that_come_and_go() -> None:
    time = ProcessorTime()
    time.look([os.getpid()])
    before = time.total_s
    until = os.times().user + 0.05
    while os.times().user < until:
        pass
    time.look([os.getpid(), 2**22 + 1])  # nobody has that number
    assert time.total_s >= before + 0.03
    time.look([])
    assert time.total_s >= before + 0.03


def test_nobody_is_added_where_memory_is_short(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 1000000 kB\nMemAvailable: 100001 kB\n")
    assert room_for([], tmp_path, meminfo) == 0
    meminfo.write_text(f"MemTotal: 1000000 kB\nMemAvailable: {100000 + 3 * 65536} kB\n")
    assert room_for([], tmp_path, meminfo) == 3
    assert room_for([2**22 + 1], tmp_path, meminfo) == 3  # who is gone holds nothing
    (tmp_path / "memory.max").write_text(str(10 * 64 * 2**20))
    (tmp_path / "memory.current").write_text(str(9 * 64 * 2**20))
    (tmp_path / "memory.stat").write_text(f"anon 0\ninactive_file {64 * 2**20 + 1}\n")
    assert room_for([], tmp_path, meminfo) == 1
    (tmp_path / "memory.max").write_text("max\n")
    assert room_for([], tmp_path, meminfo) == 3


# What it tells.


def steered(loader: Any) -> Steering:
    found = loader._course.steering
    assert isinstance(found, Steering)
    return found


def scripted(monkeypatch: pytest.MonkeyPatch, *sizes: Size) -> None:
    """Controllers that want one size after the other."""
    left = list(sizes)

    def look(self: Any, now: Any) -> Decision | None:
        if not left:
            return None
        self.size, self.is_changing = left.pop(0), True
        return Decision(self.size, "it is in the script")

    monkeypatch.setattr("stoker.auto.controller.Controller.look", look)
    monkeypatch.setattr(steering_module, "_LOOK_EVERY_S", 0.0)


def test_decisions_are_logged_counted_traced_and_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    scripted(monkeypatch, Size(2), Size(1), Size(0))
    loader = stoker.DataLoader(Numbers(), batch_size=4, num_workers="auto")
    with caplog.at_level(logging.INFO, "stoker.auto"), loader.trace(tmp_path / "trace.json"):
        loaded = [index for batch in loader for index in batch.tolist()]
    assert loaded == list(range(400))
    stats = loader.stats()
    assert stats.changes == 3
    assert len(stats.decisions) == 3
    assert "2 processes, because it is in the script" in stats.decisions[0]
    assert stats.decisions[0] in caplog.text
    assert "Workers(processes=0, threads=0) now, after 3 changes" in str(stats)
    events = json.loads((tmp_path / "trace.json").read_text())
    assert [event["args"]["workers"] for event in events if event["name"] == "auto"] == [
        "2 processes",
        "1 process",
        "no workers",
    ]


def test_what_was_found_can_be_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripted(monkeypatch, Size(2))
    loader = stoker.DataLoader(Numbers(), batch_size=4, num_workers="auto")
    assert len(list(loader)) == 100
    loader.save_tuned(tmp_path / "stoker.toml")
    again = stoker.DataLoader(Numbers(), batch_size=4, tuned=tmp_path / "stoker.toml")
    assert again.workers == Workers(2) == loader.stats().fixed


def test_whoever_is_not_wanted_any_more_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, Size(2, 4), Size(1, 2), Size(1, 1))

    class Longer(Numbers):
        def __len__(self) -> int:
            return 100_000

    batches = iter(stoker.DataLoader(Longer(), batch_size=4, num_workers="auto"))
    seen = {len(batches.pids())}
    while seen != {0, 1, 2} or len(batches.pids()) != 1:
        next(batches)  # which ends, with StopIteration, should nobody ever leave
        seen.add(len(batches.pids()))
    batches.close()


def test_loaders_of_one_process_leave_each_other_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering_module, "core_share", lambda: 8.0)
    monkeypatch.setattr(steering_module, "_ALL", weakref.WeakSet())  # those of other tests go by another clock
    now = [100.0]
    train, val = (Steering(Workers(), Limits(0, 8, 1, 1), Size(n), clock=lambda: now[0]) for n in (6, 3))
    val.look(Counts(), [])
    assert train.free_cores() == 5.0
    now[0] += 10.0  # it has not loaded for long
    assert train.free_cores() == 8.0


def test_a_copy_begins_with_what_was_found() -> None:
    found = Steering(Workers(), Limits(0, 8, 1, 4), Size(3, 2))
    assert found.anew().size == Size(3, 2)
    assert steered(stoker.DataLoader(Numbers(), num_workers="auto")) is not None


def test_what_cannot_have_workers_is_loaded_without_whatever_was_asked_of_them() -> None:
    loader = stoker.DataLoader(Local(), batch_size=100, num_workers="auto", workers=Workers(start_method="spawn"))
    assert [len(batch) for batch in loader] == [100] * 4
    assert loader.num_workers == 0
    arrays = torch.utils.data.TensorDataset(torch.zeros(4, 2))
    kept = stoker.DataLoader(arrays, num_workers="auto", workers=Workers(on_death="restart"))
    assert kept.stats().fixed is None


class Local(Numbers):
    def __init__(self) -> None:
        self.one = lambda index: index  # which cannot be pickled

    def __getitem__(self, index: int) -> int:
        return int(self.one(index))


def test_numbers_of_numpy_and_odd_worlds_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = stoker.DataLoader(Numbers(), num_workers=np.int64(2), workers=Workers(processes=(1, 4)))
    assert loader.stats().fixed is not None
    for told in ("", "²", "3.5", "-3", "99999"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", told)
        assert core_share() >= 1


def test_a_bad_sample_does_not_keep_it_from_looking() -> None:
    class Bad(Numbers):
        def __getitem__(self, index: int) -> int:
            if index % 100 == 0:
                raise ValueError("bad")
            return index

    chosen = decide(Wanted(Bad()))
    assert chosen.limits is not None
    loader = stoker.DataLoader(Bad(), batch_size=100, num_workers="auto", on_error="drop")
    assert [len(batch) for batch in loader] == [99] * 4
