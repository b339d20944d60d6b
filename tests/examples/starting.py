"""Starts `ranks.py`, for tests that kill it, and for those that do not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.programs import Nursery, listened_to

SCRIPT = Path(__file__).with_name("ranks.py")


def run_until_killed(nursery: Nursery, *arguments: Any) -> None:
    """Until rank 0 pauses; then nothing of it gets another word in."""
    with listened_to(nursery, SCRIPT, *arguments) as (ranks, output):
        paused = "paused\n" in iter(output.readline, "")  # reads up to that line, or to the end
        os.killpg(ranks.pid, signal.SIGKILL)  # all ranks and their workers at once
        assert paused
    assert ranks.returncode == -signal.SIGKILL


def run_to_the_end(nursery: Nursery, *arguments: Any) -> None:
    nursery.run(SCRIPT, *arguments).check_returncode()
