"""How a process ends, seen from the training process.

A process descriptor tells of that one process, and tells the truth: `waitpid`, and so the standard library, learns
nothing where SIGCHLD is ignored or another thread of the program reaps children; a sentinel is a pipe that a worker's
own children may hold open, and that a fork server drops when it is itself killed, while its workers live. So what the
descriptor says is believed, and the others only tell how it ended, if they know.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import time
import weakref
from multiprocessing import connection
from typing import Any

# How long a worker that is not needed any more may take to finish what it is doing (as with torch's loader, because it
# may hold a lock or write a file), and then to be ended politely. At the end of the program nobody waits that long.
_PATIENCE_S, _PATIENCE_AT_EXIT_S = 5.0, 1.0
_POLITENESS_S = 0.5
_UNKNOWN = 255
_EXIT_CODE_S = 1.0  # how long a fork server may take to tell how its child ended


_is_exiting = False


def _note_exit() -> None:
    global _is_exiting
    _is_exiting = True


weakref.finalize(_note_exit, bool)  # what weak references do at the end was registered before, so it is done after
atexit.register(_note_exit)


def patience_s() -> float:
    """How long to wait for somebody who is not needed any more."""
    return _PATIENCE_AT_EXIT_S if _is_exiting else _PATIENCE_S


def watch_end(worker: Any, start_method: str) -> None:
    """Note, as `worker.end`, a descriptor that becomes readable when a worker that was just started ends."""
    worker.end, worker.has_descriptor = worker.sentinel, False
    worker.told_by_server = start_method == "forkserver"
    worker.is_code_unknown = False
    with contextlib.suppress(OSError, AttributeError):  # a kernel or a sandbox without them; it may be gone already
        worker.end, worker.has_descriptor = os.pidfd_open(worker.pid), True
        weakref.finalize(worker, os.close, worker.end)


def has_ended(worker: Any) -> bool:
    poll = select.poll()
    poll.register(worker.end, select.POLLIN)
    return bool(poll.poll(0))


def exit_code(worker: Any) -> int | None:
    """How a worker that has ended did so, which reaps it; None where nobody knows."""
    if worker.exitcode is None and worker.told_by_server:
        connection.wait([worker.sentinel], _EXIT_CODE_S)  # the server tells it a little after the process descriptor
    if worker.exitcode is None:
        worker.is_code_unknown = True
        worker._popen.returncode = _UNKNOWN  # or the standard library would keep it among its living children
    worker.join()
    return None if worker.is_code_unknown else worker.exitcode


def end_all(workers: list[Any], are_deaf: bool) -> None:
    """Wait a little until workers that were told to leave are gone, and end those that are not.

    `are_deaf` says that they do not heed SIGTERM.
    """
    _wait_for(workers, patience_s())
    if not are_deaf:
        _signal(workers, signal.SIGTERM)
        _wait_for(workers, _POLITENESS_S)
    _signal(workers, signal.SIGKILL)
    _wait_for(workers, None)


def end_now(worker: Any) -> None:
    """End a worker that does not answer."""
    _signal([worker], signal.SIGKILL)
    _wait_for([worker], None)


def _signal(workers: list[Any], number: signal.Signals) -> None:
    for worker in workers:
        if has_ended(worker):
            continue
        if worker.has_descriptor and hasattr(signal, "pidfd_send_signal"):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker.end, number)
        else:
            worker.terminate() if number == signal.SIGTERM else worker.kill()


def _wait_for(workers: list[Any], patience_s: float | None) -> None:
    deadline = None if patience_s is None else time.monotonic() + patience_s
    waiting = {worker.end: worker for worker in workers}
    while waiting:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ended = connection.wait(list(waiting), left)
        for end in ended:
            exit_code(waiting.pop(end))
        if not ended:
            return
