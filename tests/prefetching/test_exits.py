"""However a program with an accessor ends, nothing is left behind and nothing hangs."""

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
QUICK: dict[str, tuple[str, ...]] = {
    "dropped": ("fork",),
    "kept": ("thread",),
    "parent-raises": (),
    "os-exit": (),
    "killed": ("fork", "forkserver", "spawn"),
    "killed-waiting": (),
    "ctrl-c": (),
    "ctrl-c-waiting": ("fork",),
}


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Any]:
    with programs_of(nursery, SCRIPT, tmp_path) as begin:
        yield begin


def cases(*faults: str) -> list[Any]:
    """Every filler; those that `make test` leaves out are slow."""
    return [
        pytest.param(fault, filler, marks=[] if filler in QUICK[fault] else [pytest.mark.slow])
        for fault in faults
        for filler in ("thread", "fork", "forkserver", "spawn")
    ]


@pytest.mark.parametrize(("fault", "filler"), cases("dropped", "kept"))
def test_an_accessor_that_is_dropped_or_kept_to_the_end_leaves_nothing(start: Any, fault: str, filler: str) -> None:
    program = start(fault, filler)
    program.ready()
    ended = program.end()
    assert (ended.code, ended.left, ended.err) == (0, [], "")
    assert fault == "kept" or "LEFT []" in ended.out


@pytest.mark.parametrize(("fault", "filler"), cases("killed", "killed-waiting", "os-exit"))
def test_the_filler_goes_with_its_parent(start: Any, fault: str, filler: str) -> None:
    program = start(fault, filler)
    program.ready()
    if fault.startswith("killed"):
        program.process.kill()
    ended = program.end()
    assert (ended.code, ended.left) == (7 if fault == "os-exit" else -signal.SIGKILL, [])
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("fault", "filler"), cases("parent-raises"))
def test_an_error_of_the_training_loop_is_all_that_is_told(start: Any, fault: str, filler: str) -> None:
    ended = start(fault, filler).end()
    assert (ended.code, ended.left) == (1, [])
    assert ended.err.count("Traceback") == 1
    assert ended.err.rstrip().endswith("LookupError: the training loop has failed")


@pytest.mark.parametrize(("fault", "filler"), cases("ctrl-c", "ctrl-c-waiting"))
def test_ctrl_c_ends_everything_with_one_traceback(start: Any, fault: str, filler: str) -> None:
    program = start(fault, filler)
    program.ready()
    os.killpg(program.process.pid, signal.SIGINT)
    ended = program.end()
    assert (ended.code, ended.left) == (-signal.SIGINT, [])
    assert ended.err.count("KeyboardInterrupt") == 1
