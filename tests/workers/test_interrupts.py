"""Signals that arrive while a worker is started are kept until it has; who handles SIGTERM speaks for the workers."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
from tests.plain import Made, number
from tests.workers.signalled import Hearing, Terminating

import stoker
from stoker import DataLoader, Workers
from stoker.interrupts import born_deaf, interrupts_kept
from stoker.workers import pipes


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


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_worker_ignores_ctrl_c_and_blocks_nothing(start_method: Any) -> None:
    told = [bool(flag) for flag in next(iter(DataLoader(Hearing(), workers=Workers(1, start_method=start_method))))]
    assert told == [False, True]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_survive_a_sigterm_that_the_training_process_handles(handled: list[int], start_method: Any) -> None:
    batches = list(DataLoader(Terminating(), 4, workers=Workers(2, start_method=start_method)))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_workers_go_with_a_sigterm_that_nobody_handles() -> None:
    assert not callable(signal.getsignal(signal.SIGTERM))
    with pytest.raises(RuntimeError, match="SIGTERM"):
        list(DataLoader(Terminating(), 4, workers=Workers(2, start_method="fork")))


@pytest.mark.parametrize("workers", [Workers(2, 1, "fork"), Workers(0, 2)], ids=["processes", "threads"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_ctrl_c_while_a_dropped_pass_is_let_go_reaches_the_training_loop(
    workers: Workers, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python forgets what is raised in the callback of a weak reference: it has to come after it."""
    iterator = iter(stoker.DataLoader(Made(64, number), 2, workers=workers, device=device))
    next(iterator)
    join, told = threading.Thread.join, [signal.SIGINT]
    end = pipes.end_all

    def interrupted(*arguments: Any) -> Any:
        while told:
            signal.raise_signal(told.pop())
        return (end if isinstance(arguments[0], list) else join)(*arguments)

    monkeypatch.setattr(pipes, "end_all", interrupted)
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at any moment after the pass is gone
        del iterator
        threading.Event().wait(20)
    assert not told


def test_ctrl_c_in_the_middle_of_a_first_import_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(name: str) -> Any:
        signal.raise_signal(signal.SIGINT)
        return importlib.import_module(name)

    monkeypatch.setattr(stoker, "importlib", types.SimpleNamespace(import_module=importing))
    with pytest.raises(KeyboardInterrupt):
        stoker.__getattr__("WorkerDied")
    monkeypatch.undo()
    assert stoker.WorkerDied.__name__ == "WorkerDied"


def test_a_spawned_child_is_born_deaf_also_beside_the_first_resource_tracker() -> None:
    """Starting the tracker unblocks the signal, so it has to be there before: in a program that has none yet."""
    code = (
        "import signal; from multiprocessing import resource_tracker; from stoker.interrupts import born_deaf\n"
        "with born_deaf('spawn'):\n"
        "    resource_tracker.getfd()  # what starting a process asks for\n"
        "    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "True"
