"""Ctrl-C while workers are started: kept in the middle of a fork, and not heard by who is being born.

A signal that arrives while a process forks is handled by the first line of Python after it, which belongs to some
module's at-fork callback (logging has one). Python ignores what such callbacks raise, so the KeyboardInterrupt would be
printed and forgotten, and the training loop would run on. Blocking the signal is not enough: another thread would take
it, and the main thread would handle it all the same. So for the length of a start a handler stands in that only notes
the signal, which is raised again afterwards.

A spawned worker imports for seconds before it can say that it ignores Ctrl-C, which reaches the whole process group. It
inherits what its parent blocks, so the signal is blocked while it is started, until it has said so. (The standard
library's resource tracker is started beside the first worker, and unblocks the signal: it has to be there before.)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

_KEPT = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Around the start of a process: signals with a handler in Python are handled after it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread, which is not here
        return
    noted: list[signal.Signals] = []

    def note(number: int, frame: Any) -> None:
        noted.append(signal.Signals(number))

    handlers = {number: handler for number in _KEPT if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in noted:
            signal.raise_signal(number)


@contextmanager
def born_deaf(start_method: str) -> Iterator[None]:
    """Around the start of a process: if it is spawned, it hears no Ctrl-C until `deafness_over`.

    Others ignore it at once; and a fork server would hand deafness down to children that are not ours.
    """
    if start_method != "spawn":
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def deafness_over() -> None:
    """In a worker: Ctrl-C is the training process's matter; what has arrived so far is forgotten."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
