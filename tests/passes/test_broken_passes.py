"""What comes after an exception out of `next()`: it goes on raising, and the state is that of the last batch given."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from tests.faults.killing import kill
from tests.plain import Made, number, number_but_not_nine

import stoker
from stoker import PassInterrupted, WorkerDied, Workers

CREWS = {
    "threads": Workers(0, 2),
    "parts": Workers(2, 1, "fork"),
    "rows": Workers(2, 1, "fork", share="rows"),
    "batches": Workers(2, 1, "fork", share="batches"),
    "spawn": Workers(1, 1, "spawn"),
}
each_crew = pytest.mark.parametrize("workers", CREWS.values(), ids=CREWS)
processes = pytest.mark.parametrize("workers", list(CREWS.values())[1:], ids=list(CREWS)[1:])


NUMBERS = Made(64, number)


def given(batches: Any) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


def take_until(kind: type[Exception], iterator: Any, taken: list[int]) -> Exception:
    """Take batches until that is raised."""
    try:
        while True:
            taken += given([next(iterator)])
    except kind as error:
        return error


def rest_after(loader: Any, taken: list[int]) -> None:
    """The state goes on exactly after what was taken, here and in another loader."""
    state = loader.state_dict()
    other = stoker.DataLoader(NUMBERS, 4)
    for one in (other, loader):
        one.load_state_dict(state)
        assert taken + given(one) == list(range(64))


@processes
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_after_a_death_it_goes_on_raising_and_the_state_stays(workers: Workers, device: Any, steps: int) -> None:
    loader = stoker.DataLoader(NUMBERS, 4, workers=workers, device=device)
    iterator: Any = iter(loader)
    taken = given(next(iterator) for _ in range(steps))
    inner = iterator if device is None else iterator._reader.batches
    kill(inner._workers)
    death = take_until(WorkerDied, iterator, taken)
    for _ in range(3):
        assert str(take_until(WorkerDied, iterator, taken)) == str(death)
    rest_after(loader, taken)


@processes
def test_with_persistent_workers_a_new_pass_begins_with_new_ones(workers: Workers) -> None:
    loader = stoker.DataLoader(NUMBERS, 4, workers=workers, persistent_workers=True)
    iterator: Any = iter(loader)
    next(iterator)
    kill(iterator._workers)
    with pytest.raises(WorkerDied):
        list(iterator)
    assert given(loader) == list(range(64))


class Alarm(Exception):
    """What a signal handler raises."""


@pytest.fixture
def alarm() -> Any:
    def handler(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


class Gated(Made):
    """Gives sample 20 only when told to."""

    def __init__(self, gate: int) -> None:
        super().__init__(64, number)
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        if index == 20:
            os.read(self.gate, 1)
        return index


def _signal_when_waiting(iterator: Any) -> threading.Thread:
    """Signal this thread as soon as it waits for the sixth batch."""

    def wait_and_signal() -> None:
        while iterator._yielded < 5 or not iterator._crew.is_at_rest:
            os.sched_yield()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=wait_and_signal)
    thread.start()
    return thread


@pytest.mark.parametrize("workers", list(CREWS.values())[1:4], ids=list(CREWS)[1:4])
@pytest.mark.usefixtures("alarm")
def test_after_a_signal_handlers_exception_the_pass_and_the_state_stand_where_they_stood(workers: Workers) -> None:
    gate, opened = os.pipe()
    loader = stoker.DataLoader(Gated(gate), 4, workers=workers)
    iterator: Any = iter(loader)
    thread = _signal_when_waiting(iterator)
    taken: list[int] = []
    take_until(Alarm, iterator, taken)
    thread.join()
    assert taken == list(range(20))
    other = stoker.DataLoader(NUMBERS, 4)
    other.load_state_dict(loader.state_dict())
    assert taken + given(other) == list(range(64))
    os.write(opened, b".")
    assert taken + given(iterator) == list(range(64))
    os.close(gate)
    os.close(opened)


@each_crew
@pytest.mark.parametrize("where", ["_hear", "_fill", "_hand_over"])
def test_after_an_exception_in_the_middle_of_its_work_a_pass_goes_on_raising(workers: Workers, where: str) -> None:
    loader = stoker.DataLoader(NUMBERS, 4, workers=workers)
    iterator: Any = iter(loader)
    taken = given(next(iterator) for _ in range(3))
    own = getattr(iterator, where)

    def interrupted(*arguments: Any) -> Any:
        setattr(iterator, where, own)
        raise Alarm

    setattr(iterator, where, interrupted)
    take_until(Alarm, iterator, taken)
    for _ in range(2):
        with pytest.raises(PassInterrupted, match="interrupted by Alarm"):
            next(iterator)
    iterator.close()
    rest_after(loader, taken)


class Raising:
    """A sampler that raises in the middle."""

    def __iter__(self) -> Any:
        yield from range(20)
        raise Alarm

    def __len__(self) -> int:
        return 64


@each_crew
def test_a_samplers_error_comes_after_the_batches_before_it_and_goes_on(workers: Workers) -> None:
    loader = stoker.DataLoader(NUMBERS, 4, sampler=Raising(), workers=workers)
    iterator = iter(loader)
    assert given(next(iterator) for _ in range(5)) == list(range(20))
    with pytest.raises(Alarm):
        next(iterator)
    with pytest.raises(PassInterrupted):
        next(iterator)
    assert loader.state_dict()["batches"] == 5


@each_crew
def test_a_bad_sample_is_raised_once_and_the_state_stays_before_it_until_more_is_given(workers: Workers) -> None:
    loader = stoker.DataLoader(Made(20, number_but_not_nine), 4, workers=workers)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    with pytest.raises(ValueError, match="9"):
        next(iterator)
    assert loader.state_dict()["batches"] == 2
    assert given([next(iterator)]) == [12, 13, 14, 15]
    assert loader.state_dict()["batches"] == 4


@each_crew
def test_a_pass_that_was_closed_early_keeps_its_place(workers: Workers) -> None:
    loader = stoker.DataLoader(NUMBERS, 4, workers=workers)
    iterator: Any = iter(loader)
    taken = given(next(iterator) for _ in range(3))
    iterator.close()
    assert list(iterator) == []
    rest_after(loader, taken)


def test_too_many_failures_go_on_being_said_and_the_batch_is_not_counted_as_given() -> None:
    for workers in (Workers(), Workers(0, 2), Workers(2, 1, "fork")):
        loader = stoker.DataLoader(
            Made(20, number_but_not_nine), 4, workers=workers, on_error=stoker.OnError("skip", budget=0), seed=1
        )
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        for _ in range(2):
            with pytest.raises(stoker.TooManyFailures):
                next(iterator)
        assert loader.state_dict()["batches"] == 2
