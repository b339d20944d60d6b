"""Workers whose training process is killed while they are still being born go with it, by every start method."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.mended_datasets import METHODS
from tests.faults.programs import ROOT

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(("method", "where"), [*((method, "dataset") for method in METHODS), ("spawn", "main")])
def test_workers_that_are_still_importing_go_with_a_killed_training_process(
    method: str, where: str, tmp_path: Path
) -> None:
    note = tmp_path / "born"
    late = {"STOKER_TEST_LATE_MAIN": str(note)} if where == "main" else {}
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, str(ROOT / "tests/faults/births.py"), method, str(note)]
    program = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **late}, cwd=ROOT)
    pids: list[int] = []
    while len(pids) < (1 if where == "main" else 2):
        assert program.poll() is None
        pids = [int(pid) for pid in note.read_text().split()] if note.exists() else []
        os.sched_yield()
    ends = [os.pidfd_open(pid) for pid in pids]
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    for end in ends:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        gone = poll.poll(20_000)
        os.close(end)
        assert gone, "a worker outlived its training process"
