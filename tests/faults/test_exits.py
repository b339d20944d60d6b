"""The exit matrix: however a run ends, nothing is left behind, and what went wrong is said.

Each case is a program of its own in a session of its own, so every process that it ever started can be found, orphans
and fork servers included. `make test` plays one case of each fault; `make torture` plays all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).with_name("exit_script.py")
ROOT = SCRIPT.parents[2]
GONE_WITHIN_S = 20.0
pytestmark = pytest.mark.faults


@dataclass
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str
    left: list[psutil.Process]


@dataclass
class Program:
    process: subprocess.Popen[str]
    errors: Path

    def ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "READY\n", self.errors.read_text()

    def end(self) -> Ended:
        """Wait for its end, and for that of everything it started."""
        self.process.wait(40)
        _, left = psutil.wait_procs(_session(self.process.pid), GONE_WITHIN_S)
        assert self.process.stdout is not None
        out = "" if left else self.process.stdout.read()
        for process in left:
            process.kill()
        return Ended(self.process.returncode, out, self.errors.read_text(), left)


def _session(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    programs: list[Program] = []

    def begin(*arguments: str) -> Program:
        errors = tmp_path / "stderr"
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
                env=environment,
            )
        programs.append(Program(process, errors))
        return programs[-1]

    yield begin
    for program in programs:
        for process in _session(program.process.pid):
            process.kill()
        program.process.wait()
        assert program.process.stdout is not None
        program.process.stdout.close()


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
