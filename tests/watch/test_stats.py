"""The statistics of a loader are right: counts to the sample and the byte, whoever loads and whoever asks.

Of times only what must always hold is checked here; `test_stats_times` has a clock in hand.
"""

from __future__ import annotations

import copy
import pickle
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.datasets import Awaited, Made, Numbers, number, picture, ragged_every_fifth, record
from tests.watch.watched import who
from torch.utils.data import Dataset, TensorDataset

from stoker import DataLoader, Workers
from stoker.bench.trial import count_bytes
from stoker.watch.stats import Stats


def as_list(samples: list[Any]) -> list[Any]:
    return samples


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "numbers": (Made(23, number), {"batch_size": 4}),
    "records": (Made(23, record), {"batch_size": 4}),
    "pictures": (Made(9, picture), {"batch_size": 4}),
    "misfits": (Made(23, ragged_every_fifth), {"batch_size": 1}),
    "own collate": (Made(9, picture), {"batch_size": 4, "collate_fn": as_list}),
    "one by one": (Made(9, picture), {"batch_size": None}),
    "gathered": (TensorDataset(torch.rand(23, 3), torch.arange(23)), {"batch_size": 4, "drop_last": True}),
}


@who
@pytest.mark.parametrize("kind", KINDS)
def test_steps_samples_and_bytes_are_exact(kind: str, workers: Workers) -> None:
    dataset, options = KINDS[kind]
    loader: DataLoader[Any] = DataLoader(dataset, workers=workers, **options)
    batches = list(loader)
    stats = loader.stats()
    length = len(dataset) // 4 * 4 if options.get("drop_last") else len(dataset)
    assert (stats.steps, stats.samples) == (len(batches), length)
    assert stats.size_bytes == sum(count_bytes(batch) for batch in batches)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_samples_of_iterable_datasets_are_exact(processes: int, batch_size: int | None) -> None:
    loader: DataLoader[Any] = DataLoader(Numbers(23), batch_size, num_workers=processes)
    batches = list(loader)
    stats = loader.stats()
    assert (stats.steps, stats.samples) == (len(batches), 23)
    assert stats.size_bytes == sum(count_bytes(batch) for batch in batches)


@pytest.mark.parametrize("workers", [Workers(0, 3), Workers(1, 3, start_method="fork")], ids=["threads", "processes"])
def test_samples_that_are_awaited_are_counted(workers: Workers) -> None:
    loader: DataLoader[Any] = DataLoader(Awaited(11), 4, workers=workers)
    size_bytes = sum(batch.nbytes for batch in loader)
    stats = loader.stats()
    assert (stats.steps, stats.samples, stats.size_bytes) == (3, 11, size_bytes)


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_add_up(persistent: bool) -> None:
    loader: DataLoader[Any] = DataLoader(Made(23, number), 4, num_workers=2, persistent_workers=persistent)
    seen = []
    for _ in range(3):
        for _ in loader:
            pass
        seen.append(loader.stats())
    assert [stats.steps for stats in seen] == [6, 12, 18]
    assert [stats.samples for stats in seen] == [23, 46, 69]
    assert seen[0].seconds < seen[1].seconds < seen[2].seconds
    assert all(0 <= share <= 1 for stats in seen for share in (*stats.busy, stats.wait_share))
    assert len(seen[0].busy) == 2
    last = seen[2].since(seen[1])
    assert (last.steps, last.samples) == (6, 23)
    assert 0 < last.wait_s <= last.seconds < seen[2].seconds


@who
def test_before_the_first_pass_there_is_nothing_to_tell(workers: Workers) -> None:
    stats = DataLoader(Made(8, number), workers=workers).stats()
    assert (stats.steps, stats.seconds, stats.wait_s, stats.samples_per_s, stats.wait_share) == (0, 0, 0, 0, 0)
    assert stats.peak_bytes > 0
    assert "no batch yet" in str(stats)


def test_a_worker_that_never_answered_has_a_share_of_zero() -> None:
    loader: DataLoader[Any] = DataLoader(Made(1, number), 1, workers=Workers(2, share="batches", start_method="fork"))
    list(loader)
    assert len(loader.stats().busy) == 2
    assert loader.stats().busy[1] == 0


class HoldsUpTheFirst(Dataset[Any]):
    """Sample 0 is ready when sample 5 is."""

    def __init__(self) -> None:
        self.last_was_begun = threading.Event()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 0:
            assert self.last_was_begun.wait(60)
        elif index == 5:
            self.last_was_begun.set()
        return index


def test_queue_depth_is_what_stood_ready_when_the_training_loop_asked() -> None:
    workers = Workers(0, 2, share="batches")
    loader: DataLoader[Any] = DataLoader(HoldsUpTheFirst(), 1, workers=workers, prefetch_factor=3)
    batches = iter(loader)
    next(batches)
    assert loader.stats().ready == 0
    next(batches)
    assert 4 <= loader.stats().ready <= 5  # the last one may have been on its way
    assert len(list(batches)) == 4
    assert loader.stats().ready == 0


def test_slots_say_who_holds_them() -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, picture), 1, num_workers=1, persistent_workers=True)
    kept = list(loader)[:2]
    stats = loader.stats()
    assert stats.slots_leased == 2
    assert stats.slots_leased <= stats.slots_in_use <= stats.slots
    kept.clear()
    assert loader.stats().slots_leased == 0


class Hoards(Made):
    """Each worker holds 64 MiB of its own."""

    hoard: Any = None

    def __getitem__(self, index: int) -> int:
        if self.hoard is None:
            self.hoard = np.ones(64 * 2**20, np.uint8)
        return index


def test_peak_memory_is_that_of_all_processes_together_and_outlives_them() -> None:
    loader: DataLoader[Any] = DataLoader(Hoards(8, number), 1, num_workers=2, multiprocessing_context="fork")
    alone_bytes = loader.stats().peak_bytes
    batches = iter(loader)
    for _ in range(6):
        next(batches)
    together_bytes = loader.stats().peak_bytes
    assert together_bytes > alone_bytes + 100 * 2**20
    assert len(list(batches)) == 2
    assert loader.stats().peak_bytes >= together_bytes


def test_memory_is_looked_at_unasked_when_a_look_is_due() -> None:
    loader: DataLoader[Any] = DataLoader(Made(8, number), 1)
    list(loader)
    assert loader.stats(memory=False).peak_bytes == 0  # a short pass is not held up
    loader._course.watch.tally.memory.due_ns = 1
    list(loader)
    assert loader.stats(memory=False).peak_bytes > 0
    assert loader._course.watch.tally.memory.due_ns > loader._course.watch.tally.clock()


def test_another_thread_may_ask_at_any_time() -> None:
    loader: DataLoader[Any] = DataLoader(Made(400, picture), 2, workers=Workers(0, 2))
    seen: list[Stats] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            seen.append(loader.stats(memory=False))

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        samples = sum(len(batch) for batch in loader)
    finally:
        over.set()
        asker.join()
    assert loader.stats().samples == samples == 400
    assert seen
    assert all(a.steps <= b.steps and a.seconds <= b.seconds for a, b in pairwise(seen))
    assert all(max(stats.busy, default=0) <= 1 and stats.slots_leased <= stats.slots for stats in seen)


def test_two_threads_may_iterate_and_nothing_is_lost() -> None:
    loader: DataLoader[Any] = DataLoader(Made(500, number), 1)
    threads = [threading.Thread(target=lambda: list(loader)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = loader.stats()
    assert (stats.steps, stats.samples, stats.size_bytes) == (2000, 2000, 16000)
    assert stats.wait_share <= 1


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_begins_its_statistics_anew(travel: Any, tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(8, number), 2, num_workers=1)
    with loader.trace(tmp_path / "trace.json"):
        list(loader)
        other = travel(loader)
        assert other.stats().steps == 0
        assert len(list(other)) == 4
    assert (other.stats().steps, loader.stats().steps) == (4, 4)


def test_as_a_dictionary_all_is_numbers() -> None:
    loader: DataLoader[Any] = DataLoader(Made(8, number), 2, num_workers=2)
    list(loader)
    stats = loader.stats()
    values = stats.as_dict()
    assert all(type(value) in (int, float) for value in values.values())
    assert values["stoker/steps"] == 4
    assert values["stoker/wait_share"] == stats.wait_share
    assert values["stoker/busy_worker_1"] == stats.busy[1]
    assert values["stoker/wait_p99_s"] == stats.wait_quantiles_s["p99"]
    assert set(stats.as_dict(prefix="")) == {name.removeprefix("stoker/") for name in values}


def test_the_block_says_it_all_in_words() -> None:
    stats = Stats(
        steps=1200,
        samples=38400,
        size_bytes=2_500_000,
        seconds=10.0,
        wait_s=2.5,
        wait_quantiles_s={"median": 0.0021, "longest": 1.25},
        start_up_s=0.25,
        first_batch_s=0.0004,
        busy_s=(18.0, 5.0),
        lanes=2,
        slots=4,
        slots_in_use=3,
        slots_leased=1,
        ready=2,
        failures=7,
        retries=9,
        restarts=1,
        peak_bytes=300_000_000,
    )
    assert str(stats).splitlines() == [
        "steps        1,200 (38,400 samples, 2.5 MB)",
        "throughput   3,840 samples/s, 0.2 MB/s",
        "waiting      2.500 s of 10.000 s (25%)",
        "per batch    median 2.1 ms, longest 1.2 s",
        "first batch  250.0 ms starting + 400 µs loading",
        "workers      busy 90%, 25%; 1 restarts",
        "faults       7 samples failed, 9 retries",
        "slots        4, 3 in use, 1 held by batches; 2 batches ready",
        "memory       peak 300.0 MB",
    ]
