"""Runs what might hang in a forked process, so that a hang is a failed test and not the end of the whole run."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

ENDS_WITHIN_S = 10.0


def outcome_of(work: Callable[[], Any]) -> str:
    """`"ended"`, the name of the exception that `work` raised, or `"hangs"`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, _named(work).encode())
        os._exit(0)
    os.close(writer)
    ended = bool(connection.wait([reader], ENDS_WITHIN_S))
    said = os.read(reader, 1000).decode() if ended else "hangs"
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said


def _named(work: Callable[[], Any]) -> str:
    try:
        work()
    except BaseException as error:
        traceback.print_exc()
        return type(error).__name__
    return "ended"
