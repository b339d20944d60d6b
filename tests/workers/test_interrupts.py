"""Signals that arrive while a worker is started are kept until it has; who handles SIGTERM speaks for the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader, Workers
from stoker.workers.interrupts import born_deaf, interrupts_kept


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals that a handler of the user's own was told of."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    yield told
    signal.signal(signal.SIGTERM, before)


def test_an_interrupt_in_the_middle_comes_after(handled: list[int]) -> None:
    with interrupts_kept():
        signal.raise_signal(signal.SIGTERM)
        assert handled == []
    assert handled == [signal.SIGTERM]


def test_ctrl_c_in_the_middle_is_raised_after() -> None:
    steps: list[str] = []

    def start() -> None:
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            steps.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_a_worker_is_forked_reaches_the_training_loop() -> None:
    fork_callbacks: list[Any] = [lambda: signal.raise_signal(signal.SIGINT)]
    os.register_at_fork(after_in_parent=lambda: fork_callbacks.pop()() if fork_callbacks else None)
    with pytest.raises(KeyboardInterrupt):
        list(DataLoader(Terminating(victim=False), 4, workers=Workers(2, start_method="fork")))
    assert not fork_callbacks


BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


@pytest.mark.parametrize(("start_method", "deaf"), [("fork", "False"), ("forkserver", "False"), ("spawn", "True")])
def test_only_a_spawned_child_is_born_deaf(start_method: str, deaf: str) -> None:
    with born_deaf(start_method):
        child = subprocess.run([sys.executable, "-c", BLOCKED], check=True, capture_output=True, text=True)
    assert child.stdout.strip() == deaf
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Hearing(Dataset[list[bool]]):
    """Samples tell whether their process blocks Ctrl-C, and whether it ignores it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[bool]:
        blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return [blocked, signal.getsignal(signal.SIGINT) is signal.SIG_IGN]


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_worker_ignores_ctrl_c_and_blocks_nothing(start_method: Any) -> None:
    told = [bool(flag) for flag in next(iter(DataLoader(Hearing(), workers=Workers(1, start_method=start_method))))]
    assert told == [False, True]


class Terminating(Dataset[int]):
    """One sample sends its own process what a scheduler sends to all processes of a job."""

    def __init__(self, victim: bool = True) -> None:
        self.victim = victim

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.victim and index == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return index


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_survive_a_sigterm_that_the_training_process_handles(handled: list[int], start_method: Any) -> None:
    batches = list(DataLoader(Terminating(), 4, workers=Workers(2, start_method=start_method)))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_workers_go_with_a_sigterm_that_nobody_handles() -> None:
    assert not callable(signal.getsignal(signal.SIGTERM))
    with pytest.raises(RuntimeError, match="SIGTERM"):
        list(DataLoader(Terminating(), 4, workers=Workers(2, start_method="fork")))
