"""Deaths are noticed whatever the program does with its children, and errors arrive whole."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from tests.faults.killing import kill
from tests.faults.mended_datasets import METHODS, LongError, Refuses, Rows, Texts, fails
from tests.programs import Nursery

import stoker
from stoker import WorkerDied, Workers

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
methods = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def sigchld_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@methods
@pytest.mark.parametrize("on_death", ["raise", "restart"])
@pytest.mark.usefixtures("sigchld_ignored")
def test_a_death_is_noticed_where_sigchld_is_ignored(method: Any, on_death: Any) -> None:
    loader = stoker.DataLoader(Rows(64), 4, workers=Workers(2, 1, method, on_death=on_death))
    iterator: Any = iter(loader)
    taken = [next(iterator)]
    for worker in iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    if on_death == "raise":
        with pytest.raises(WorkerDied):
            taken += list(iterator)
        return
    taken += list(iterator)
    assert [batch[0, 0].item() for batch in taken] == list(range(0, 64, 4))


def test_a_death_is_noticed_where_another_thread_reaps_children() -> None:
    loader = stoker.DataLoader(Rows(64), 4, workers=Workers(2, 1, "fork", on_death="restart"))
    iterator: Any = iter(loader)
    taken = [next(iterator)]
    pids = [worker.pid for worker in iterator._workers]
    kill(iterator._workers)
    thread = threading.Thread(target=lambda: [os.waitpid(pid, 0) for pid in pids])
    thread.start()
    thread.join()
    taken += list(iterator)
    assert [batch[0, 0].item() for batch in taken] == list(range(0, 64, 4))


def test_workers_outlive_a_fork_server_that_was_killed_and_are_not_replaced_alive() -> None:
    loader = stoker.DataLoader(Rows(64), 4, workers=Workers(2, 1, "forkserver", on_death="restart"))
    iterator: Any = iter(loader)
    taken = [next(iterator)]
    server: Any = forkserver._forkserver
    os.kill(server._forkserver_pid, signal.SIGKILL)
    os.waitid(os.P_PID, server._forkserver_pid, os.WEXITED | os.WNOWAIT)
    taken += list(iterator)
    assert [batch[0, 0].item() for batch in taken] == list(range(0, 64, 4))
    assert loader.stats().restarts == 0


@methods
def test_when_all_workers_fail_to_start_the_users_own_error_is_raised(method: Any) -> None:
    for _ in range(3 if method == "fork" else 1):  # it was a race that failed, and forking is what makes races
        loader = stoker.DataLoader(Rows(8), 4, num_workers=4, multiprocessing_context=method, worker_init_fn=fails)
        with pytest.raises(LongError, match=r"worker \d cannot start because"):
            list(loader)


@pytest.mark.parametrize(
    "workers",
    [Workers(2, 1, "fork"), Workers(2, 16, "fork"), Workers(2, 1, "fork", share="rows"), Workers(0, 16)],
    ids=["parts", "lanes", "rows", "threads"],
)
def test_what_loads_with_two_processes_loads_with_any_lanes(workers: Workers) -> None:
    batch = next(iter(stoker.DataLoader(Texts(1024, 700, 20_000_000), 1024, workers=workers)))
    assert batch[0].tolist() == list(range(1024))
    assert [len(text) for text in batch[1]] == [20_000_000 if at == 700 else len(str(at)) for at in range(1024)]


@pytest.mark.parametrize("workers", [Workers(2, 1, "fork"), Workers(2, 16, "fork")], ids=["parts", "lanes"])
def test_a_long_error_keeps_its_type_and_its_text(workers: Workers) -> None:
    with pytest.raises(LongError) as caught:
        list(stoker.DataLoader(Refuses(1024, 700, 8_000_000), 1024, workers=workers))
    assert len(str(caught.value)) > 8_000_000


def test_there_may_be_more_lanes_than_sixteen_thousand() -> None:
    """Not started, which takes long: the rooms for them are there, and no number is too large for its place."""
    from stoker.contracts import Answer, Report
    from stoker.slots import Arena
    from stoker.workers.control import Control
    from stoker.workers.wire import ReportReader, ReportWriter

    room = Control(seats=2, lanes=50_000)
    arena = Arena(room.size_bytes, outboxes=2)
    arena.control[room.lane_at(1, 49_999)] = 7
    sent = Report(3, Answer.DONE, 0, 1, worker=1, lane=49_999)
    assert ReportReader(arena, room).decode(ReportWriter(arena, room, 1).encode(sent)) == [sent]
    arena.close()


# Descriptors and file sizes


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@methods
def test_starts_that_fail_for_want_of_descriptors_leave_none_open(method: Any) -> None:
    list(stoker.DataLoader(Rows(4), 4, workers=Workers(1, 1, method)))  # what the standard library keeps is open now
    before, limits = _descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in range(1, 64):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, limits[1]))
        try:
            list(stoker.DataLoader(Rows(8), 4, workers=Workers(3, 1, method)))
            break  # there is room enough
        except OSError:
            pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert _descriptors() == before
    assert _descriptors() == before
    assert 4 < room < 63


PROGRAM = """
import resource, sys
import stoker
from tests.faults.mended_datasets import Rows

if __name__ == "__main__":
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    loader = stoker.DataLoader(Rows(400), 100, workers=stoker.Workers(2, 1, sys.argv[1]))
    kept = [batch for _ in range(3) for batch in loader]
    assert [batch[:, 0].tolist() for batch in kept] == [list(range(at, at + 100)) for at in (0, 100, 200, 300)] * 3
"""


@methods
def test_a_limit_on_file_sizes_leaves_loaders_running(method: Any, nursery: Nursery, tmp_path: Path) -> None:
    """In a process of its own, because the limit cannot be lifted again."""
    program = tmp_path / "limited.py"
    program.write_text(PROGRAM)
    nursery.run(program, method, 64 * 2**20).check_returncode()
