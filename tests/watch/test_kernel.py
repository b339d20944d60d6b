"""What the kernel says of processes, read quickly, is what psutil says slowly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from stoker.watch import kernel

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
IDLE = [sys.executable, "-c", "input()"]


@pytest.fixture
def child() -> Iterator[Any]:
    with subprocess.Popen(IDLE, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process
        process.stdin.close()  # ends it


@linux
def test_memory_is_what_psutil_counts(child: Any) -> None:
    counted = psutil.Process().memory_full_info().pss
    assert kernel.proportional_bytes([]) == pytest.approx(counted, rel=0.05)
    assert kernel.proportional_bytes([child.pid]) > kernel.proportional_bytes([]) > 0


def test_who_is_gone_holds_nothing_and_never_began(child: Any) -> None:
    child.stdin.close()
    child.wait()
    for held in (kernel._held_on_linux, kernel._held_elsewhere):
        assert held(child.pid) == 0
    for began in (kernel._began_on_linux, kernel._began_elsewhere):
        assert began(child.pid) == 0


@linux
def test_processes_that_began_at_different_times_are_told_apart(child: Any) -> None:
    assert kernel.began(os.getpid()) == kernel.began(os.getpid()) > 0
    assert kernel.began(os.getppid()) < kernel.began(child.pid)


@linux
def test_a_long_pass_does_not_import_psutil_in_the_loop() -> None:
    watched = """if True:
        import sys, stoker
        from stoker.watch import chores
        chores._PAGE_EVERY_NS = 0  # the page, at every step
        loader = stoker.DataLoader(range(20), batch_size=2)
        for batch in loader:
            loader._course.watch.tally.memory.due_ns = 1  # and a look at memory
        assert loader.stats().peak_bytes > 0
        print("psutil" in sys.modules)
    """
    told = subprocess.run([sys.executable, "-c", watched], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "False"
