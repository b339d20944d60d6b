"""Ctrl-C while workers are started or let go: kept until it is heard, and not heard by who is being born.

A signal that arrives while a process forks is handled by the first line of Python after it, which belongs to some
module's at-fork callback (logging has one). Python ignores what such callbacks raise, so the KeyboardInterrupt would be
printed and forgotten, and the training loop would run on. Blocking the signal is not enough: another thread would take
it, and the main thread would handle it all the same. So for the length of a start a handler stands in that only notes
the signal, which is raised again afterwards.

The same happens where an iterator is dropped, by a `break` for example: its workers are let go in the callback of a
weak reference, which takes a moment, and Python forgets what is raised there too. What was noted then is sent again by
a thread, once the callback is left. And it happens in the middle of an import, which has such callbacks of its own.

A spawned worker imports for seconds before it can say that it ignores Ctrl-C, which reaches the whole process group. It
inherits what its parent blocks, so the signal is blocked while it is started, until it has said so. (The standard
library's resource tracker is started beside the first worker, and unblocks the signal: it has to be there before.)
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_KEPT = (signal.SIGINT, signal.SIGTERM)
_CALLBACK = weakref.finalize.__call__.__code__


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Around the start or the end of workers: signals with a handler in Python are handled after it."""
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
        if noted and _is_forgotten_here():
            threading.Thread(target=_send_again, args=(noted,), name="stoker-signals", daemon=True).start()
        else:
            for number in noted:
                signal.raise_signal(number)


def _is_forgotten_here(frame: FrameType | None = None) -> bool:
    """Whether a frame is part of a weak reference's callback; by default the caller's."""
    frame = frame or sys._getframe()
    while frame is not None:
        if frame.f_code is _CALLBACK and frame.f_locals.get("_") is not None:  # the dead reference
            return True
        frame = frame.f_back
    return False


def _send_again(signals: list[signal.Signals]) -> None:
    """Wait until the main thread has left the callback that it is in, then send it what it would have forgotten."""
    main = threading.main_thread()
    while main.is_alive() and _is_forgotten_here(sys._current_frames().get(main.ident or 0)):
        time.sleep(0.001)
    for number in signals:
        if main.is_alive() and main.ident is not None:
            signal.pthread_kill(main.ident, number)


@contextmanager
def born_deaf(start_method: str) -> Iterator[None]:
    """Around the start of a process: if it is spawned, it hears no Ctrl-C until `deafness_over`.

    Others ignore it at once; and a fork server would hand deafness down to children that are not ours.
    """
    if start_method != "spawn":
        yield
        return
    from multiprocessing import resource_tracker  # late: `import stoker` stays light

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
