"""One way of going, played in a process of its own: `exit_script.py FAULT FILLER`.

FILLER is "thread" or a start method. The script says READY when the first batch has come; the source then waits for
ever if the fault is about waiting, so that the filler is in the middle of a batch when it happens.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil

from stoker import prefetch


class Source:
    def __init__(self, waits: bool) -> None:
        self.waits = waits

    def __iter__(self) -> Iterator[Any]:
        for number in range(40):
            yield np.full((64, 1024), number, np.float32)
            if self.waits and number == 2:
                threading.Event().wait()


def main(fault: str, filler: str) -> None:
    how: dict[str, Any] = {"by": "thread"} if filler == "thread" else {"by": "process", "start_method": filler}
    accessor = prefetch(Source(waits=fault.endswith("-waiting")), **how)
    iterator = iter(accessor)
    next(iterator)
    print("READY", flush=True)
    if fault == "dropped":
        del accessor, iterator
        _list_processes()
    elif fault == "kept":
        globals()["kept"] = accessor, iterator
    elif fault == "parent-raises":
        raise LookupError("the training loop has failed")
    elif fault == "os-exit":
        os._exit(7)
    elif fault in ("killed", "killed-waiting", "ctrl-c"):
        signal.pause()
    elif fault == "ctrl-c-waiting":
        list(iterator)


def _list_processes() -> None:
    left = [child for child in psutil.Process().children() if "from multiprocessing" not in " ".join(child.cmdline())]
    print("LEFT", [child.cmdline() for child in left], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
