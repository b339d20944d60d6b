"""Time that is up is up: a deadline for a diagnosis, and an end for a loader that does not give its batch in time.

A pass looks at the clock between batches, which is not enough where one batch takes minutes. So waiting for a batch is
interrupted by an alarm, where the system has one and this is the main thread; elsewhere it takes as long as it takes.
A model's step is never interrupted: half a step may leave a model in a state that no training has.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.utils.data import _utils

_AGAIN_S = 0.25  # the alarm rings again: a step may have been under way
_LEAST_PATIENCE_S = 0.5
_TORCHS_PATIENCE_S = 5.0
_REPEATS = 40  # who was interrupted lets go of workers, and is disturbed again only if that takes ten seconds


class OutOfTime(BaseException):
    """Raised in whatever waits for a batch. No Exception: loaders and datasets may catch those."""


class Deadline:
    """A moment that all stages of a diagnosis keep to."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - time.monotonic())

    def share(self, share: float) -> float:
        """So much of the whole time, or what is left of it."""
        return min(share * self.seconds, self.left_s)


class Alarm:
    """While entered, raises OutOfTime in whoever waits (sets `waiting`) when the time is up; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.waiting = False
        self._begun_at = 0.0
        self._rings = 0
        self._before: tuple[Any, float, float] | None = None

    @property
    def is_up(self) -> bool:
        return self.seconds is not None and time.monotonic() - self._begun_at >= self.seconds

    def __enter__(self) -> Alarm:
        self._begun_at = time.monotonic()
        if self.seconds is not None and _can_ring():
            handler = signal.signal(signal.SIGALRM, self._ring)
            self._before = (handler, *signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 1e-3), _AGAIN_S))
        return self

    def __exit__(self, *_: object) -> None:
        self.waiting = False
        if self._before is None:
            return
        handler, others_s, again_s = self._before
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if others_s:  # somebody else's alarm, a test's say, which still is to ring
            left_s = others_s - (time.monotonic() - self._begun_at)
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left_s), again_s)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self.waiting:
            self._rings += 1
            if self._rings % _REPEATS == 1:
                raise OutOfTime


def _can_ring() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def briefly() -> Iterator[None]:
    """Without torch's warnings of more workers than cores, and with less patience for workers that are let go.

    torch waits five seconds for each worker of a pass that was cut, then ends it. A worker in the middle of a slow
    batch takes all of that, in every trial.
    """
    before = _utils.MP_STATUS_CHECK_INTERVAL
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        be_patient(0.0)
        try:
            yield
        finally:
            _utils.MP_STATUS_CHECK_INTERVAL = before


def be_patient(batch_s: float) -> None:
    """Wait for workers that need so long for a batch: who is ended in the middle of one may hold a lock for ever."""
    _utils.MP_STATUS_CHECK_INTERVAL = min(_TORCHS_PATIENCE_S, max(_LEAST_PATIENCE_S, 1.5 * batch_s))
