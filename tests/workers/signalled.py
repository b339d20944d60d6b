"""Datasets that know of signals. Without torch, so that a spawned worker starts quickly."""

from __future__ import annotations

import os
import signal


class Hearing:
    """Samples tell whether their process blocks Ctrl-C, and whether it ignores it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[bool]:
        blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return [blocked, signal.getsignal(signal.SIGINT) is signal.SIG_IGN]


class Terminating:
    """One sample sends its own process what a scheduler sends to all processes of a job."""

    def __init__(self, victim: bool = True) -> None:
        self.victim = victim

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.victim and index == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return index
