"""The exit matrix: however a run ends, nothing is left behind, and what went wrong is said.

Each case is a program of its own in a session of its own, so every process that it ever started can be found, orphans
and fork servers included. `make test` plays one case of each fault; `make torture` plays all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.programs import Nursery, programs_of

SCRIPT = Path(__file__).with_name("exit_script.py")
pytestmark = pytest.mark.faults


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Any]:
    with programs_of(nursery, SCRIPT, tmp_path) as begin:
        yield begin


HOWS = [(method, lanes) for method in ("fork", "forkserver", "spawn") for lanes in ("1", "4")] + [("threads", "4")]
QUICK = {
    "worker-killed": [("fork", "1"), ("spawn", "4")],
    "parent-killed": [("fork", "1"), ("forkserver", "4")],
    "dropped": [("fork", "1"), ("threads", "4")],
    "kept-at-exit": [("fork", "1"), ("threads", "4")],
    "worker-exits": [("fork", "1"), ("fork", "4"), ("threads", "4")],
    "ctrl-c": [("fork", "1")],
}


def cases(*faults: str) -> list[Any]:
    """All hows of a fault; one of them is played in `make test`, the others are slow."""
    chosen = []
    for fault in faults:
        for method, lanes in HOWS:
            if method == "threads" and fault in ("worker-killed", "worker-segfault"):
                continue  # there is no worker to die
            marks = [] if (method, lanes) in QUICK.get(fault, [("fork", "4")]) else [pytest.mark.slow]
            chosen.append(pytest.param(fault, method, lanes, marks=marks, id=f"{fault}-{method}-{lanes}"))
    return chosen


@pytest.mark.parametrize(("fault", "how", "lanes"), cases("early-break", "dropped", "kept-at-exit", "persistent"))
def test_an_iterator_that_is_left_leaves_nothing(start: Any, fault: str, how: str, lanes: str) -> None:
    program = start(fault, how, lanes)
    if fault == "dropped":
        program.ready()
    ended = program.end()
    assert (ended.code, ended.left, ended.err) == (0, [], "")
    if fault in ("early-break", "dropped"):
        assert "LEFT []" in ended.out


@pytest.mark.parametrize(("fault", "how", "lanes"), cases("worker-raises", "parent-raises"))
def test_an_error_ends_the_run_with_its_own_traceback_only(start: Any, fault: str, how: str, lanes: str) -> None:
    ended = start(fault, how, lanes).end()
    assert (ended.code, ended.left) == (1, [])
    if fault == "parent-raises":
        assert ended.err.rstrip().endswith("LookupError: the training loop has failed")
    else:
        assert ended.err.rstrip().endswith("ValueError: sample 21 is spoilt")
        assert ("Caught ValueError in DataLoader worker process" in ended.err) == (how != "threads")
    assert "Exception ignored" not in ended.err


DEATHS = {
    "worker-killed": ("SIGKILL", "out-of-memory"),
    "worker-segfault": ("SIGSEGV", "num_workers=0"),
    "worker-exits": ("exit code 3", "num_workers=0"),
}


@pytest.mark.parametrize(("fault", "how", "lanes"), cases("worker-killed", "worker-segfault", "worker-exits"))
def test_a_workers_death_names_worker_cause_samples_and_what_to_try(
    start: Any, fault: str, how: str, lanes: str
) -> None:
    ended = start(fault, how, lanes).end()
    assert (ended.code, ended.left) == (3 if how == "threads" else 1, [])
    if how == "threads":
        return  # sys.exit in a sample ends the run itself, as it would without threads
    message = ended.err[ended.err.index("WorkerDied") :]
    assert "of 2" in message
    assert "21" in message
    for words in DEATHS[fault]:
        assert words in message


@pytest.mark.parametrize(("fault", "how", "lanes"), cases("parent-killed", "os-exit"))
def test_workers_leave_when_the_training_process_is_gone(start: Any, fault: str, how: str, lanes: str) -> None:
    program = start(fault, how, lanes)
    program.ready()
    if fault == "parent-killed":
        program.process.kill()
    ended = program.end()
    assert (ended.code, ended.left) == (-signal.SIGKILL if fault == "parent-killed" else 7, [])
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("fault", "how", "lanes"), cases("ctrl-c", "ctrl-c-loading"))
def test_ctrl_c_ends_everything_with_one_traceback(start: Any, fault: str, how: str, lanes: str) -> None:
    program = start(fault, how, lanes)
    program.ready()
    os.killpg(program.process.pid, signal.SIGINT)
    ended = program.end()
    assert (ended.code, ended.left) == (-signal.SIGINT, [])
    assert ended.err.count("KeyboardInterrupt") == 1
    assert ended.err.rstrip().endswith("KeyboardInterrupt")
