"""Ranks for tests of several training processes, forked from one that has imported everything: torch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def fork_ranks(ranks: int, run: Callable[[int], None]) -> int:
    """Run every rank in a process of its own and wait for all; 0 if all went well."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    pids = [_fork(rank, run) for rank in range(ranks)]
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def _fork(rank: int, run: Callable[[int], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run(rank)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)
