"""Workers killed from outside."""

from __future__ import annotations

import os
import signal
from multiprocessing import connection
from typing import Any


def kill(workers: list[Any]) -> None:
    """Kill them, and be sure that they are gone. (The loader must still find out for itself.)"""
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    for worker in workers:
        connection.wait([worker.end])
