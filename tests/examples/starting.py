"""Starts `ranks.py`, for tests that kill it, and for those that do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("ranks.py")
ROOT = SCRIPT.parents[2]


def start(*arguments: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # so that all ranks and their workers can be killed at once
    )


def run_until_killed(*arguments: Any) -> None:
    """Until rank 0 pauses; then nothing of it gets another word in."""
    with start(*arguments) as ranks:
        assert ranks.stdout is not None
        paused = b"paused\n" in iter(ranks.stdout.readline, b"")  # reads up to that line, or to the end
        os.killpg(ranks.pid, signal.SIGKILL)
        assert paused
    assert ranks.returncode == -signal.SIGKILL


def run_to_the_end(*arguments: Any) -> None:
    with start(*arguments) as ranks:
        ranks.communicate()
    assert ranks.returncode == 0
