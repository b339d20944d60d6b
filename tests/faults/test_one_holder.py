"""A ticket has one holder, whatever happens: late workers never write into a slot that holds another batch."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests.faults.killing import kill
from tests.faults.mended_datasets import METHODS, Rows, SlowKeys, StopsNowAndThen, StopsOnce, TensorKeys, UnreadableKey

import stoker
from stoker import Workers
from stoker.contracts import Ask, Ticket

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
methods = pytest.mark.parametrize("method", METHODS)


def sharing(method: Any, **more: Any) -> Workers:
    return Workers(**{"processes": 2, "start_method": method, "share": "rows", "on_death": "restart", **more})


def check(batch: Any, first: int) -> None:
    """Each row of a batch of four is what it should be, over its whole length."""
    wanted = torch.arange(first, first + len(batch))
    assert torch.equal(batch, wanted[:, None].expand(-1, 1000)), f"{batch[:, 0].tolist()} instead of {wanted.tolist()}"


def walk(loader: Any, folder: Path, at_step: int) -> Iterator[Any]:
    """The batches; before one of them a worker has stopped and another is killed, and its ticket is waited for in vain.

    Whoever gives out a ticket that its holder has not lost would hand that batch over now, and the stopped worker, when
    it goes on, would write into whatever lies in the slot then.
    """
    iterator: Any = iter(loader)
    for step in range(len(loader)):
        if step == at_step:
            stopped = _wait_for_number(folder / "stopped")
            kill([worker for worker in iterator._workers if worker.pid != stopped])
            with contextlib.suppress(stoker.WorkerTimeout):
                for _ in range(6):
                    yield next(iterator)
            os.kill(stopped, signal.SIGCONT)
        batch = patiently(iterator)
        if batch is None:
            return
        yield batch


def patiently(iterator: Any) -> Any:
    """The next batch, however long it takes; None at the end."""
    while True:
        with contextlib.suppress(stoker.WorkerTimeout):
            return next(iterator, None)


def _wait_for_number(path: Path) -> int:
    while not path.exists() or not path.read_text():
        os.sched_yield()
    return int(path.read_text())


@methods
@pytest.mark.parametrize("where", ["key", "sample"])
def test_a_worker_that_stood_still_while_another_died_spoils_nothing(method: str, where: str, tmp_path: Path) -> None:
    """Its ticket is its own for as long as it lives: nobody else gets it, and its slot is not used again."""
    if where == "key":
        loader = stoker.DataLoader(
            Rows(64), 4, sampler=SlowKeys(64, 9, str(tmp_path)), workers=sharing(method), timeout=2.0
        )
    else:
        loader = stoker.DataLoader(StopsOnce(64, 9, str(tmp_path)), 4, workers=sharing(method), timeout=2.0)
    kept, first = [], 0
    for batch in walk(loader, tmp_path, at_step=2):
        check(batch, first)
        kept.append((first, batch))
        first += 4
    assert first == 64
    for begin, batch in kept[-8:]:
        check(batch, begin)
    assert loader.failures == []


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("fork", TensorKeys),
        ("forkserver", range),
        ("spawn", range),
        pytest.param("forkserver", TensorKeys, marks=pytest.mark.slow),  # every new worker imports torch for its keys
        pytest.param("spawn", TensorKeys, marks=pytest.mark.slow),
    ],
)
def test_random_kills_and_stalls_lose_and_spoil_nothing(method: str, keys: Any, tmp_path: Path) -> None:
    count, chance = 400 if method == "fork" else 80, random.Random(4)
    dataset = StopsNowAndThen(count, str(tmp_path))
    workers = sharing(method, processes=3, rows_per_run=2, max_restarts=10**6)
    loader = stoker.DataLoader(dataset, 8, sampler=keys(count), workers=workers, timeout=0.05)
    iterator: Any = iter(loader)
    first = 0
    while first < count:
        try:
            batch = next(iterator)
        except stoker.WorkerTimeout:  # if somebody has stopped: kill one that may be another, then let all go on
            stopped = [worker for worker in iterator._workers if _is_stopped(worker.pid)]
            if stopped:
                kill([chance.choice(iterator._workers)])
            for worker in stopped:
                _go_on(worker.pid)
            continue
        check(batch, first)
        first += 8
    assert list(iterator) == []


def _is_stopped(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() == psutil.STATUS_STOPPED


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@methods
@pytest.mark.parametrize("share", ["auto", "rows"])
def test_a_key_that_cannot_be_unpickled_is_an_error_and_not_a_death(method: Any, share: Any) -> None:
    sampler: Any = [[0, 1], [UnreadableKey(), 3], [4, 5]]
    workers = Workers(2, 1, method, share=share)
    iterator = iter(stoker.DataLoader(Rows(6), batch_sampler=sampler, workers=workers))
    check(next(iterator), 0)
    with pytest.raises(Exception, match="this key cannot be read"):
        next(iterator)
    check(next(iterator), 4)


class Counted(Rows):
    """Leaves a byte for every sample that is loaded."""

    def __init__(self, count: int, path: Path) -> None:
        super().__init__(count)
        self.path = path

    def __getitem__(self, key: Any) -> Any:
        with self.path.open("ab") as file:
            file.write(b".")
        return super().__getitem__(key)


def test_a_ticket_that_was_answered_while_the_dead_were_counted_is_not_sent_again(tmp_path: Path) -> None:
    """Whoever lives answers and lets go before anybody looks who holds what, and nothing was read of it yet."""
    loaded = tmp_path / "loaded"
    loader = stoker.DataLoader(Counted(400, loaded), 4, workers=sharing("fork", rows_per_run=1))
    iterator: Any = iter(loader)
    check(next(iterator), 0)
    crew, dead, crew_slot = iterator._crew, iterator._workers[0], iterator._pool.take()
    look = crew._handed.sender.lost_with

    def late(worker: int) -> Any:
        crew.submit(Ticket(10**6, Ask.ROWS, crew_slot, 0, 1, 1, crew._epoch, 0, [0]))  # there is something to answer
        crew.flush()
        connection.wait([crew._pipes.report_reader])
        while crew._arena.control[crew._control.lane_at(1, 0)]:  # and let go
            os.sched_yield()
        return look(worker)

    crew._handed.sender.lost_with = late
    kill([dead])
    for step in range(1, 100):
        check(next(iterator), 4 * step)
    assert list(iterator) == []
    assert loaded.stat().st_size <= 402  # the odd one, and the one that the dead worker may have had, once more
