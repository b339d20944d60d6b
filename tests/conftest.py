"""Every test is also a test that nothing is left behind.

Around each test an autouse fixture counts what a loader could leak: child processes, threads, open descriptors and
mappings of shared memory. What is there afterwards and was not there before is an error of that very test, with the
list of what was left. Autouse fixtures are set up first and torn down last, so a test's own fixtures have cleaned up
by then; fixtures of a module or session live longer and are there in both counts.

Three things are not leaks. The standard library keeps one resource tracker and one fork server per program, with a
pipe each. Garbage may wait for the collector, which is run before anything is called left behind (and only then). And a
test that failed has frames kept alive by its traceback, so it is not judged a second time.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path

import psutil
import pytest
from tests.programs import Nursery

GRACE_S = 5.0
"""How long what is on its way out may take to be gone: a guess, far above what an ending process needs."""

LISTS_OF_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
"""Kernels may be built without them."""

_FAILED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Holdings:
    """What this program holds at one moment."""

    processes: frozenset[psutil.Process]  # equal by pid and start time, so a reused pid is another process
    threads: frozenset[threading.Thread]
    descriptors: Counter[str]  # by target, because a number may be reused; counted, because targets repeat
    mappings: Counter[str]

    @classmethod
    def now(cls) -> Holdings:
        return cls(_processes(), frozenset(threading.enumerate()), _descriptors(), _shared_mappings())

    def beyond(self, before: Holdings) -> Holdings:
        """What is held now and was not held before."""
        return Holdings(
            self.processes - before.processes,
            self.threads - before.threads,
            self.descriptors - before.descriptors,
            self.mappings - before.mappings,
        )

    def __bool__(self) -> bool:
        return bool(self.processes or self.threads or self.descriptors or self.mappings)

    def __str__(self) -> str:
        lines = [f"process     {process}" for process in self.processes]
        lines += [f"thread      {thread}" for thread in self.threads]
        lines += [f"descriptor  {target} (×{count})" for target, count in self.descriptors.items()]
        lines += [f"mapping     {target} (×{count})" for target, count in self.mappings.items()]
        return "\n".join(lines)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Programs of their own, without importing torch each time."""
    opened = Nursery()
    yield opened
    opened.close()


def pytest_configure() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, down to the last child: tests of Ctrl-C would hang."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was imported stays to the end: the collector need not look at it again, neither here nor in forked workers.

    With torch and Lightning loaded that is a quarter of a second for each collection, and there are two after each test
    that leaves garbage.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Holdings.now()
    yield
    if request.node.stash.get(_FAILED, False):
        return
    left = Holdings.now().beyond(before)
    if left:
        left = _after_the_dust_settles(before, left)
    if left:
        pytest.fail(f"this test left behind:\n{left}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


def _after_the_dust_settles(before: Holdings, left: Holdings) -> Holdings:
    """Collect garbage, wait for what is ending, and count again."""
    gc.collect()
    deadline = time.monotonic() + GRACE_S
    for thread in left.threads - {threading.current_thread()}:
        thread.join(max(0.0, deadline - time.monotonic()))
    _await_processes({process.pid for process in left.processes}, deadline)
    gc.collect()  # what ended may have held descriptors
    return Holdings.now().beyond(before)


def _await_processes(pids: set[int], deadline: float) -> None:
    for pid in pids:
        _wait_for_exit(pid, deadline - time.monotonic())
    for child in multiprocessing.active_children():
        if child.pid in pids:
            child.join(max(0.0, deadline - time.monotonic()))


def _wait_for_exit(pid: int, timeout_s: float) -> None:
    """Wait without reaping: the exit status belongs to whoever started the process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        connection.wait([handle], max(0.0, timeout_s))
    finally:
        os.close(handle)


def _processes() -> frozenset[psutil.Process]:
    # By pid: a worker of the fork server has the fork server's own command line.
    kept = {resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid}
    if not LISTS_OF_CHILDREN.exists():
        return frozenset(child for child in psutil.Process().children(recursive=True) if child.pid not in kept)
    found = (_process(pid) for pid in _descendants(os.getpid()) if pid not in kept)
    return frozenset(process for process in found if process is not None)


def _process(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid)
    return None


def _descendants(pid: int) -> Iterator[int]:
    """Children and theirs, from the kernel's own lists: psutil asks every process of the machine, which takes 6 ms."""
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    """Each thread has a list of its own, of the processes that it has started."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile, and has no children then
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _descriptors() -> Counter[str]:
    kept = {resource_tracker._resource_tracker._fd, forkserver._forkserver._forkserver_alive_fd}
    numbers = {int(name) for name in os.listdir("/proc/self/fd")} - kept
    targets = (target for number in numbers if (target := _target(number)) is not None)
    return Counter(target for target in targets if not target.endswith(".ttf"))  # matplotlib keeps its fonts open


def _target(number: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:  # the descriptor that listed the directory
        return None


def _shared_mappings() -> Counter[str]:
    """Mapped shared memory, which outlives its descriptor: `inode path` of every memfd and every file in /dev/shm."""
    lines = Path("/proc/self/maps").read_bytes().split(b"\n")
    rows = (line.decode().split(maxsplit=5) for line in lines if b" /memfd:" in line or b" /dev/shm/" in line)
    return Counter(f"{inode} {path}" for *_, inode, path in rows)
