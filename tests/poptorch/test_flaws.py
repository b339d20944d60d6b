"""Eight things that PopTorch's loader does wrong, and that must not happen here."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest
from tests.poptorch.data import Numbers, loaders, numbers_of
from torch.utils.data import BatchSampler, SequentialSampler

import stoker.poptorch as poptorch

ROOT = Path(__file__).parents[2]
ASYNC = [poptorch.DataLoaderMode.Async, poptorch.DataLoaderMode.AsyncRebatched]
MODES = list(poptorch.DataLoaderMode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taken", [1, 4, 5])  # of 5: at the end an asynchronous loader is in the next epoch already
def test_hosts_stay_disjoint_after_one_restarts_an_epoch(mode: Any, taken: int) -> None:
    one, other = loaders(3, shuffle=True, mode=mode)[:2]
    for epoch in range(3):
        if epoch:
            for number, _ in enumerate(one, start=1):
                if number == taken:
                    break
        parts = [numbers_of(one), numbers_of(other)]
        assert not set(parts[0]) & set(parts[1])
        assert [len(part) for part in parts] == [20, 20]


def test_a_dataset_too_small_for_its_hosts_is_told_in_numbers() -> None:
    with pytest.raises(poptorch.Error, match=r"the dataset has 7 samples, but one step takes 12 .* 3 hosts") as raised:
        loaders(3, length=7)
    assert not isinstance(raised.value, ZeroDivisionError)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop_last", [True, False])
def test_len_with_a_batch_sampler_is_what_is_delivered(mode: Any, drop_last: bool) -> None:
    options = poptorch.Options().deviceIterations(4)
    sampler = BatchSampler(SequentialSampler(Numbers(27)), batch_size=3, drop_last=False)
    loader = poptorch.DataLoader(options, Numbers(27), batch_sampler=sampler, drop_last=drop_last, mode=mode)
    assert len(loader) == len(list(loader)) == (2 if drop_last else 3)


@pytest.mark.parametrize("mode", ASYNC)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_shuffling_follows_from_the_seed_when_asynchronous(mode: Any, num_workers: int) -> None:
    def epochs(stops_after: int) -> list[list[int]]:
        options = poptorch.Options().randomSeed(9)
        loader = poptorch.DataLoader(
            options, Numbers(30), batch_size=3, shuffle=True, num_workers=num_workers, mode=mode
        )
        for number, _ in enumerate(loader, start=1):  # however far ahead the loader was when it was left
            if number == stops_after:
                break
        return [numbers_of(loader) for _ in range(2)]

    first = epochs(2)
    assert first == epochs(9) == epochs(10)
    assert first[0] != first[1]


@pytest.mark.parametrize("mode", MODES)
def test_an_iterator_goes_on_where_it_is(mode: Any) -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(10), batch_size=2, num_workers=1, mode=mode)
    steps = iter(loader)
    assert iter(steps) is steps
    assert next(steps).tolist() == [0, 1]
    assert numbers_of(steps) == list(range(2, 10))
    assert numbers_of(steps) == []


def test_an_older_pass_is_told_that_it_is_over() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(10), batch_size=2, mode=poptorch.DataLoaderMode.Async)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    assert next(newer).tolist() == [0, 1]
    with pytest.raises(poptorch.Error, match="another pass was begun"):
        next(older)
    assert numbers_of(newer) == list(range(2, 10))


@pytest.mark.faults
@pytest.mark.parametrize("source", ["loader", "iterable"])
def test_an_interrupted_child_leaves_no_consumer_waiting(source: str) -> None:
    if source == "loader":
        mode = poptorch.DataLoaderMode.Async
        steps: Any = poptorch.DataLoader(poptorch.Options(), Numbers(50), num_workers=2, mode=mode)
        accessor = steps._accessor
    else:
        steps = accessor = poptorch.AsynchronousDataAccessor(Numbers(50))
    going = iter(steps)
    next(going)
    for pid in accessor._pids():
        os.kill(pid, signal.SIGINT)
    assert len(list(going)) == 49  # a Ctrl-C is for the training process to decide about
    assert len(list(steps)) == 50


@pytest.mark.faults
@pytest.mark.parametrize("source", ["loader", "iterable"])
def test_a_killed_child_is_an_error_that_names_it(source: str) -> None:
    if source == "loader":
        mode = poptorch.DataLoaderMode.Async
        steps: Any = poptorch.DataLoader(poptorch.Options(), Numbers(500), num_workers=1, mode=mode)
        accessor = steps._accessor
    else:
        steps = accessor = poptorch.AsynchronousDataAccessor(Numbers(500))
    going = iter(steps)
    next(going)
    pids = accessor._pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match=f"(?s)pid {pids[0]}.*SIGKILL"):
        list(going)


@pytest.mark.faults
@pytest.mark.parametrize("strategy", ["Fork"])  # the one whose children PopTorch leaves behind
def test_no_child_outlives_a_killed_parent(strategy: str) -> None:
    command = [sys.executable, "-m", "tests.poptorch.killed", strategy]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(handles) == 3
        parent.kill()
    try:
        for handle in handles:
            assert connection.wait([handle], 30), "a worker is still there"
    finally:
        for handle in handles:
            os.close(handle)


@pytest.mark.parametrize("source", ["loader", "iterable"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_dropped_loader_is_gone_with_all_that_works_for_it(source: str, begun: bool) -> None:
    if source == "loader":
        mode = poptorch.DataLoaderMode.Async
        dropped: Any = poptorch.DataLoader(poptorch.Options(), Numbers(500), num_workers=2, mode=mode)
        accessor = dropped._accessor
    else:
        dropped = accessor = poptorch.AsynchronousDataAccessor(Numbers(500))
    if begun:
        next(iter(dropped))
    handles = [os.pidfd_open(pid) for pid in accessor._pids()]
    seen, ring = weakref.ref(dropped), weakref.ref(accessor._prefetch)
    del dropped, accessor
    gc.collect()
    try:
        assert seen() is None
        assert ring() is None
        assert handles
        for handle in handles:
            assert connection.wait([handle], 30), "a worker is still there"
    finally:
        for handle in handles:
            os.close(handle)
