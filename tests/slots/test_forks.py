"""Forking while batches are held: each side keeps its own view of the world, and memory stays bounded."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.datasets import Made, picture
from tests.slots.pictures import CREWS, each_crew, firsts, pictures

import stoker
from stoker import Workers


class Forked:
    """A child process that runs `work(wait)` and whose end says whether it went well; `wait` lasts until `go`."""

    def __init__(self, work: Callable[[Callable[[], None]], Any]) -> None:
        reader, self._go = os.pipe()
        started, self._started = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os._exit(_run(work, lambda: (os.write(self._started, b"."), os.read(reader, 1))))
        os.close(reader)
        os.close(self._started)
        os.read(started, 1)
        os.close(started)

    def go(self) -> int:
        """Let it go on; its exit status."""
        os.write(self._go, b".")
        os.close(self._go)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _run(work: Callable[[Any], Any], wait: Callable[[], Any]) -> int:
    try:
        work(wait)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def in_a_fork(scenario: Callable[[], None]) -> Callable[[], None]:
    """Run a test in a process of its own: what it proves wrong may end in a bus error."""

    @functools.wraps(scenario)
    def test() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(_run(lambda _: scenario(), lambda: None))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return test


def _expect(wanted: list[int], batch: torch.Tensor) -> None:
    if firsts(batch) != wanted:
        raise AssertionError(f"{firsts(batch)} instead of {wanted}")


@each_crew
def test_a_forked_child_keeps_seeing_the_batch_that_its_parent_dropped(workers: Workers) -> None:
    iterator = iter(pictures(160, workers))
    held = [next(iterator)]

    def work(wait: Callable[[], None]) -> None:
        wait()
        _expect([0, 1, 2, 3], held[0])

    child = Forked(work)
    held.clear()
    for later in iterator:
        del later
    assert child.go() == 0


@in_a_fork
def test_a_pass_without_workers_may_go_on_in_both_parent_and_child() -> None:
    iterator = iter(pictures(80, Workers()))
    next(iterator)

    def work(wait: Callable[[], None]) -> None:
        mine = next(iterator)
        wait()
        _expect([4, 5, 6, 7], mine)
        _expect([8, 9, 10, 11], next(iterator))

    child = Forked(work)
    mine = [next(iterator) for _ in range(5)]
    assert child.go() == 0
    assert [firsts(batch)[0] for batch in mine] == [4, 8, 12, 16, 20]


def test_workers_may_each_walk_a_copy_of_an_iterator_made_before_them() -> None:
    class Chained(torch.utils.data.IterableDataset[Any]):
        def __init__(self) -> None:
            self.inner = iter(pictures(80, Workers()))

        def __iter__(self) -> Any:
            held: list[torch.Tensor] = []
            for batch in self.inner:
                held = [*held[-2:], batch]
                yield held[0].clone()

    loader = stoker.DataLoader(Chained(), None, num_workers=2, multiprocessing_context="fork")
    seen = [firsts(batch) for batch in loader]
    once = [list(range(max(0, at - 8), max(0, at - 8) + 4)) for at in range(0, 80, 4)]
    assert seen == [batch for batch in once for _ in range(2)]


def test_what_a_child_writes_into_an_inline_batch_stays_in_the_child() -> None:
    batch = next(iter(pictures(8, Workers())))

    def work(wait: Callable[[], None]) -> None:
        batch.numpy().fill(0)  # not torch's own: its threads do not survive a fork
        wait()

    assert Forked(work).go() == 0
    assert firsts(batch) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["inline", "processes"])
def test_a_hundred_forks_do_not_cost_a_hundred_slots(name: str) -> None:
    iterator = iter(pictures(400, CREWS[name]))
    for batch in iterator:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        del batch
    assert iterator._pool.made <= 24


def test_a_loader_can_be_used_in_a_forked_child() -> None:
    loader = stoker.DataLoader(Made(20, picture), 4, num_workers=2, multiprocessing_context="fork")
    held = iter(loader)
    next(held)

    def work(wait: Callable[[], None]) -> None:
        wait()
        for at, batch in enumerate(loader):
            _expect(list(range(4 * at, 4 * at + 4)), batch)

    assert Forked(work).go() == 0
    assert [firsts(batch)[0] for batch in held] == [4, 8, 12, 16]


def test_a_child_that_outlives_the_loader_does_not_keep_its_workers_alive() -> None:
    iterator = iter(stoker.DataLoader(Made(20, picture), 4, num_workers=2, multiprocessing_context="fork"))
    next(iterator)
    workers = list(iterator._workers)
    child = Forked(lambda wait: wait())
    iterator.close()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert child.go() == 0
