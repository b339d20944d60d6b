"""Workers whose training process is killed while they are still being born go with it, by every start method."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest
from tests.faults.mended_datasets import METHODS
from tests.programs import ROOT, Nursery

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(("method", "where"), [*((method, "dataset") for method in METHODS), ("spawn", "main")])
def test_workers_that_are_still_importing_go_with_a_killed_training_process(
    method: str, where: str, nursery: Nursery, tmp_path: Path
) -> None:
    note = tmp_path / "born"
    os.mkfifo(note)
    notes = os.open(note, os.O_RDWR)  # to write as well: it has no end then, whoever comes and goes
    late = {"STOKER_TEST_LATE_MAIN": str(note)} if where == "main" else {}
    program = nursery.start(ROOT / "tests/faults/births.py", method, note, stdout=1, stderr=2, environment=late)
    pids: list[int] = []
    while len(pids) < (1 if where == "main" else 2):
        pids += [int(pid) for pid in os.read(notes, 4096).split()]
    os.close(notes)
    ends = [os.pidfd_open(pid) for pid in pids]
    program.kill()
    program.wait(20)
    for end in ends:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        gone = poll.poll(20_000)
        os.close(end)
        assert gone, "a worker outlived its training process"
