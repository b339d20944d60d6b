"""One way of going, played in a process of its own: `exit_script.py FAULT START_METHOD LANES`.

START_METHOD "threads" loads in the training process. The script says READY when the first batch has come; what happens
then is the fault's own. At the end it lists the processes it still has, if it gets that far.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

import numpy as np
import psutil

import stoker
from stoker import Workers

FATAL = 21  # the sample at which a worker meets its end


class Fragile:
    """Big enough samples for slots; one of them is fatal."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if index == FATAL:
            _meet_the_end(self.fault)
        return np.full((64, 64), index, np.float32)


def _meet_the_end(fault: str) -> None:
    if fault == "worker-raises":
        raise ValueError(f"sample {FATAL} is spoilt")
    if fault == "worker-killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "worker-segfault":
        ctypes.string_at(0)
    if fault == "worker-exits":
        sys.exit(3)


def _loader(fault: str, start: str, lanes: int) -> stoker.DataLoader[Any]:
    workers = Workers(0, lanes) if start == "threads" else Workers(2, lanes, start)  # type: ignore[arg-type]
    persistent = fault == "persistent" and start != "threads"
    return stoker.DataLoader(Fragile(fault), 4, workers=workers, persistent_workers=persistent)


def main(fault: str, start: str, lanes: int) -> None:
    loader = _loader(fault, start, lanes)
    if fault == "early-break":
        for _ in loader:
            break
    elif fault in ("kept-at-exit", "persistent"):
        globals()["kept"] = iterator = iter(loader)
        next(iterator)
    else:
        _take_all(loader, fault)
    _list_processes()


def _take_all(loader: stoker.DataLoader[Any], fault: str) -> None:
    iterator = iter(loader)
    next(iterator)
    print("READY", flush=True)
    if fault == "parent-raises":
        raise LookupError("the training loop has failed")
    if fault == "os-exit":
        os._exit(7)
    if fault in ("parent-killed", "ctrl-c"):
        signal.pause()
    if fault == "ctrl-c-loading":
        while True:
            for _ in iter(loader):
                pass
    if fault != "dropped":
        for _ in iterator:
            pass


def _list_processes() -> None:
    left = [child for child in psutil.Process().children() if "from multiprocessing" not in " ".join(child.cmdline())]
    print("LEFT", [child.cmdline() for child in left], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
