"""What is read of processes is so: who there is, whose child, since when; and who is gone raises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stoker.proc import all_pids, parent_of, started_at

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")


def test_a_child_is_found_with_its_parent_and_its_start() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert child.pid in all_pids()
            assert parent_of(child.pid) == os.getpid()
            assert started_at(child.pid) >= started_at(os.getpid())
        finally:
            child.kill()


def test_who_is_gone_raises() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(OSError, match="No such"):
        parent_of(child.pid)
